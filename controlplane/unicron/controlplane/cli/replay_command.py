"""`unicron replay`: fold a log again, and with --verify decide again and compare."""

from typing import TYPE_CHECKING, Any

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.failure import NO, YES
from unicron.controlplane.cli.output import emit, number

if TYPE_CHECKING:  # what takes long to import is imported once the arguments are known to be good
    from unicron.controlplane.cli.log_source import Log
    from unicron.controlplane.core.state import ClusterState
    from unicron.controlplane.replay import Divergence, ReplayReport


@click.command()
@options.log_options
@click.option("--verify", is_flag=True, help="Decide again at each decision and compare.")
@click.option(
    "--until", callback=options.sequence, metavar="SEQ", help="Stop there; print the state."
)
@options.json_option
@options.verbose_option
@click.pass_context
def replay(
    ctx: click.Context,
    log: str,
    cluster: str | None,
    verify: bool,
    until: int | None,
    as_json: bool,
) -> None:
    """Fold a log from its first event on, as every control plane does.

    With --verify every decision is made again on the state it was made on: what was read then
    (the chain), the state (its digest) and the decision itself must be what the log holds. Exit
    code 1 and the first wrong sequence if not.
    """
    from unicron.controlplane.cli.log_source import read_log
    from unicron.controlplane.replay import Replayer

    content = read_log(log, cluster)
    replayer = Replayer(content.events)
    report = replayer.verify(until) if verify else replayer.replay(until)
    state = replayer.state_at(report.last_seq) if until is not None else None
    if as_json:
        emit(_as_json(content, report, until, state))
    else:
        emit(_as_text(content, report, state))
    ctx.exit(YES if report.divergence is None else NO)


def _as_json(
    log: "Log", report: "ReplayReport", until: int | None, state: "ClusterState | None"
) -> str:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(report)
    document = {
        "schema": "unicron.replay/1",
        "ok": report.divergence is None,
        "log": log.shown,
        "cluster": log.cluster,
        "birth": log.birth,
        "log_events": len(log.events),
        "until": until,
        **fields,
        "state": state,
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _as_text(log: "Log", report: "ReplayReport", state: "ClusterState | None") -> str:
    from unicron.controlplane.replay.phrases import one_line

    mark, verdict = _verdict(log, report)
    lines = [f"{mark}{one_line(verdict)}"]
    if report.divergence is not None:
        lines += [f"  {one_line(line)}" for line in _divergence(report.divergence)]
    lines += ["", *(f"{name:<11}{one_line(text)}" for name, text in _counts(log, report))]
    if state is not None:
        from unicron.controlplane.cli.state_text import state_lines

        lines += ["", *state_lines(state)]
    lines += ["", f"next: {_next(log, report)}"]
    return "\n".join(lines)


def _verdict(log: "Log", report: "ReplayReport") -> tuple[str, str]:
    """The first line: a mark for a reader in a hurry, and the rest."""
    if report.divergence is not None:
        mark = click.style("x diverges ", fg="red", bold=True)
        return mark, f"at #{number(report.divergence.seq)}: {report.divergence.message}"
    upto = f"cluster {log.cluster} up to #{number(report.last_seq)}"
    if report.verified is None:
        return "", f"folded {upto}; nothing was compared"
    mark = click.style("+ holds ", fg="green", bold=True)
    decided = number(report.redecided)
    return mark, f"for {upto}: {decided} decisions decided again, all as the log has them"


def _divergence(found: "Divergence") -> list[str]:
    lines = [found.why] if found.why else []
    if found.diff:
        lines += found.diff
    elif found.expected or found.actual:
        lines += [f"by replay: {found.expected or '-'}", f"in the log: {found.actual or '-'}"]
    return lines


def _counts(log: "Log", report: "ReplayReport") -> list[tuple[str, str]]:
    r = report
    decisions = (
        f"{number(r.inputs)} inputs, {number(r.redecided)} decided again, "
        f"{number(r.other_versions)} of other versions; "
        f"{number(r.foreign)} with other events in between"
    )
    lines = [
        ("log", f"{log.shown}, cluster {log.cluster}, born {log.birth}"),
        ("events", f"{number(r.events)} of {number(len(log.events))}"),
        ("decisions", f"{number(r.decisions)}: {decisions}"),
        ("void", _some(r.void)),
        ("digest", r.digest),
        ("chain", r.chain),
    ]
    if r.duplicates:
        lines.append(("duplicates", _some(r.duplicates)))
    lines += [("gap", f"#{g.seq}: {g.who} lacks its {g.first} to {g.last}") for g in r.gaps[:5]]
    lines += [("unread", f"#{u.seq} {u.tag or 'bytes'}: {u.reason}") for u in r.unread[:5]]
    left_out = max(len(r.gaps) - 5, 0) + max(len(r.unread) - 5, 0)
    if left_out:
        lines.append(("", f"and {left_out} more (--json has all)"))
    return lines


def _some(sequences: tuple[int, ...]) -> str:
    """``2: #7, #9``; many are cut short."""
    listed = ", ".join(f"#{number(seq)}" for seq in sequences[:8])
    more = ", ..." if len(sequences) > 8 else ""
    return f"{len(sequences)}: {listed}{more}" if sequences else "0"


def _next(log: "Log", report: "ReplayReport") -> str:
    from unicron.controlplane.cli.log_source import log_arguments

    arguments = log_arguments(log)
    if report.divergence is not None:
        return f"unicron replay {arguments} --until {report.last_seq}"
    if report.verified is None:
        return f"unicron replay {arguments} --verify"
    return f"unicron audit {arguments}"
