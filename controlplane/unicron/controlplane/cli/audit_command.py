"""`unicron audit`: the incidents of a log, or the story of one."""

import difflib
from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.failure import NO, YES
from unicron.controlplane.cli.output import Cell, duration, emit, number, rfc3339, table, utc, width
from unicron.controlplane.cli.trace_option import trace_option, write_traces
from unicron.events import ConfigError

if TYPE_CHECKING:  # what takes long to import is imported once the arguments are known to be good
    from unicron.controlplane.cli.log_source import Log
    from unicron.controlplane.replay import Incident, IncidentBook, IncidentStory, ReplayReport

_KIND_COLOURS = {"observed": "yellow", "decided": "cyan", "done": ""}


@click.command()
@click.argument("incident", required=False)
@options.log_options
@trace_option
@options.json_option
@options.verbose_option
@click.pass_context
def audit(
    ctx: click.Context,
    incident: str | None,
    log: str,
    cluster: str | None,
    trace_file: str | None,
    as_json: bool,
) -> None:
    """What was observed, decided and done: all incidents, or the story of one.

    INCIDENT is an id, or its beginning if that names only one. Times are the log's own (UTC); T+
    counts from the incident's first evidence. The record is verified on the way; exit code 1 if
    it doesn't hold.
    """
    from unicron.controlplane.cli.log_source import read_log
    from unicron.controlplane.replay import IncidentBook, Replayer

    content = read_log(log, cluster)
    book = IncidentBook(content.events)
    chosen = None if incident is None else _find(book, incident)
    report = Replayer(content.events).verify()
    if trace_file is not None:
        wanted = None if chosen is None else [chosen]
        click.echo(write_traces(trace_file, content, wanted), err=True)
    if chosen is None:
        listed = _list_json if as_json else _list_text
        emit(listed(content, book, report))
    else:
        told = _story_json if as_json else _story_text
        emit(told(content, book.story(chosen), report))
    ctx.exit(YES if report.divergence is None else NO)


def _find(book: "IncidentBook", wanted: str) -> str:
    """The id that `wanted` begins. ConfigError if there is none or more than one."""
    if wanted in book.ids:
        return wanted
    found = [i for i in book.ids if i.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"{wanted!r} begins {_incidents(len(found))}",
            why=f"there are {', '.join(found[:5])}{', ...' if len(found) > 5 else ''}",
            fix=f"give more of the id, such as {found[0]}",
            code="E-AUDIT-AMBIGUOUS",
        )
    near = difflib.get_close_matches(wanted, book.ids, n=3, cutoff=0.5)
    raise ConfigError(
        f"there is no incident {wanted!r} in this log",
        why=f"did you mean {' or '.join(near)}?" if near else f"it has {_incidents(len(book.ids))}",
        fix="unicron audit without an id lists all",
        code="E-AUDIT-INCIDENT",
    )


def _incidents(count: int) -> str:
    return f"{number(count)} incident{'' if count == 1 else 's'}"


# --- All incidents -------------------------------------------------------------------------------


def _list_text(log: "Log", book: "IncidentBook", report: "ReplayReport") -> str:
    from unicron.controlplane.cli.log_source import log_arguments
    from unicron.controlplane.replay.phrases import one_line

    incidents = book.incidents()
    still = sum(i.is_open for i in incidents)
    upto = f"cluster {log.cluster} up to #{number(len(log.events))}"
    lines = [one_line(f"{upto}: {_incidents(len(incidents))}, {still} open (times UTC)")]
    if incidents:
        header = ("ID", "SEV ", "WHEN", "TASK", "DETECT ", "STALL ", "LASTED ", "WHAT AND OUTCOME")
        lines += ["", table(header, [_row(i) for i in incidents], width())]
    arguments = log_arguments(log)
    follow = f"audit {arguments} {incidents[-1].id}" if incidents else f"replay {arguments}"
    return "\n".join([*lines, "", _trust(report), one_line(f"next: unicron {follow}")])


def _row(incident: "Incident") -> tuple[str, ...]:
    return (
        incident.id,
        str(incident.severity),
        utc(incident.first_evidence_at_ns),
        incident.task or "-",
        duration(incident.marks.detect_ms),
        duration(incident.marks.commit_ms),
        duration(incident.duration_ms),
        f"{incident.what}; {_outcome(incident)}",
    )


def _outcome(incident: "Incident") -> str:
    return "! still open" if incident.is_open else f"+ {incident.outcome}"


def _trust(report: "ReplayReport") -> str:
    from unicron.controlplane.replay.phrases import one_line

    if report.divergence is not None:
        mark = click.style("x the record does not hold", fg="red", bold=True)
        return f"{mark} at #{number(report.divergence.seq)}: {one_line(report.divergence.message)}"
    return (
        f"the record is verified to #{number(report.last_seq)}: "
        f"{number(report.redecided)} decisions decided again"
    )


def _list_json(log: "Log", book: "IncidentBook", report: "ReplayReport") -> str:
    return _document(
        "unicron.audit.incidents/1",
        log,
        report,
        {"items": [_item(i) for i in book.incidents()], "truncated": False},
    )


def _document(schema: str, log: "Log", report: "ReplayReport", content: dict[str, object]) -> str:
    import msgspec

    document = {
        "schema": schema,
        "cluster": log.cluster,
        "log": log.shown,
        "at_seq": len(log.events),
        "verified_to": report.last_seq,
        "divergence": report.divergence,
        **content,
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _item(incident: "Incident") -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(incident)
    return {**fields, "first_evidence_at": rfc3339(incident.first_evidence_at_ns)}


# --- One incident --------------------------------------------------------------------------------


def _story_text(log: "Log", story: "IncidentStory", report: "ReplayReport") -> str:
    from unicron.controlplane.cli.log_source import log_arguments
    from unicron.controlplane.replay.phrases import one_line

    incident = story.incident
    over = "still open" if incident.is_open else f"over after {duration(incident.duration_ms)}"
    who = {"task": incident.task, "node": incident.node, "worker": incident.worker}
    about = [
        f"{incident.id} SEV{incident.severity}, {over}: {incident.what}",
        f"outcome: {_outcome(incident)}",
        ", ".join(f"{name} {value}" for name, value in who.items() if value)
        + f"; first evidence #{number(incident.first_evidence_seq)} at "
        f"{utc(incident.first_evidence_at_ns)} UTC",
        f"T+ of each step: {_steps(incident)}",
    ]
    lines = [
        *map(one_line, about),
        "",
        _events_table(story),
        "",
        _trust(report),
        f"next: unicron replay {log_arguments(log)} --until {incident.first_evidence_seq}",
    ]
    return "\n".join(lines)


def _steps(incident: "Incident") -> str:
    marks = incident.marks
    steps = (
        ("detected", marks.detect_ms),
        ("closed", marks.close_ms),
        ("ordered", marks.order_ms),
        ("all ready", marks.ready_ms),
        ("first commit", marks.commit_ms),
        ("resolved", marks.resolve_ms),
    )
    return ", ".join(f"{name} {duration(ms)}" for name, ms in steps)


def _events_table(story: "IncidentStory") -> str:
    rows = []
    for event in story.events:
        void = " (void: it no longer applied)" if event.void else ""
        causes = ",".join(f"#{c}" for c in event.cause[:3]) + (
            ",..." if len(event.cause) > 3 else ""
        )
        rows.append(
            (
                duration(event.t_plus_ms),
                f"#{event.seq}",
                Cell(event.kind, _KIND_COLOURS[event.kind]),
                event.who,
                causes or "-",
                f"{event.what}{void}",
            )
        )
    return table(("T+ ", "SEQ ", "KIND", "WHO", "CAUSE", "WHAT"), rows, width())


def _story_json(log: "Log", story: "IncidentStory", report: "ReplayReport") -> str:
    return _document(
        "unicron.audit.incident/1",
        log,
        report,
        {"incident": _item(story.incident), "events": story.events},
    )
