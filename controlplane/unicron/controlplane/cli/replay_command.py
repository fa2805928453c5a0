"""`unicron replay`: fold a log again, decide again and compare, or write it into a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.failure import NO, UNUSABLE, YES
from unicron.controlplane.cli.output import emit, hung, number, width
from unicron.controlplane.cli.target import check_spares

if TYPE_CHECKING:  # what takes long to import is imported once the arguments are known to be good
    from unicron.controlplane.cli.exporting import Exported
    from unicron.controlplane.cli.log_source import OpenLog
    from unicron.controlplane.core.state import ClusterState
    from unicron.controlplane.replay import Divergence, ReplayReport
    from unicron.events import Recorded, StateDigest


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options."""

    log: str
    cluster: str | None
    verify: bool
    until: int | None
    from_snapshot: str | None
    file: str | None
    force: bool


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What came of it. `log_events`: entries that the log holds, None if they weren't counted.
    `told`: those up to --until, if that was given."""

    log: "OpenLog"
    report: "ReplayReport"
    state: "ClusterState"
    log_events: int | None
    told: "tuple[Recorded, ...]"


@click.command()
@options.log_options
@click.option("--verify", is_flag=True, help="Decide again at each decision and compare.")
@click.option(
    "--until", callback=options.sequence, metavar="SEQ", help="Stop there; print the state."
)
@click.option(
    "--from-snapshot",
    metavar="FILE",
    help="Begin with this snapshot, or the newest that the control plane keeps (FILE: newest), and "
    "believe what stands before it.",
)
@click.option(
    "--export",
    "file",
    metavar="FILE",
    help="Write the log into a history file that shows if it is touched; - is stdout.",
)
@click.option("--force", is_flag=True, help="With --export: replace FILE if it is there.")
@options.json_option
@options.verbose_option
@click.pass_context
def replay(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Fold a log from its first event on, as every control plane does.

    With --verify every decision is made again on the state it was made on: what was read then
    (the chain), the state (its digest) and the decision itself must be what the log holds. Exit
    code 1 and the first wrong sequence if not.

    With --from-snapshot what stands before that one is believed: a quick look at a long log.

    With --export the log, or its beginning up to --until, is written into a file whole or not at
    all, and read back; --verify then verifies what was written.
    """
    asked = Asked(**given)
    _check(asked, as_json=as_json)
    written = _export(asked) if asked.file is not None else None
    if asked.file is not None and written is None:
        return  # it went down a pipe: whoever reads it there verifies it
    if written is not None:
        asked = replace(asked, log=written.file, cluster=None)
    done = _replay(asked)
    emit(_as_json(asked, done, written) if as_json else _as_text(asked, done, written))
    found = done.report.divergence
    ctx.exit(YES if found is None else UNUSABLE if found.what == "newer" else NO)


def _check(asked: Asked, *, as_json: bool) -> None:
    if asked.from_snapshot is not None and asked.file is not None:
        raise click.UsageError("--export writes the whole log: leave out --from-snapshot.")
    if asked.force and asked.file is None:
        raise click.UsageError("--force goes with --export FILE.")
    if asked.file is not None and asked.until is not None:
        check_spares(asked.file, asked.log, "its beginning")
    if asked.file == "-" and (asked.verify or as_json):
        raise click.UsageError(
            "with --export - nothing but the log goes to stdout: leave out --verify and --json, "
            "or export into a file."
        )


@contextmanager
def _opened(
    asked: Asked, what: str
) -> "Iterator[tuple[OpenLog, Iterator[Recorded | StateDigest]]]":
    from unicron.controlplane.cli.log_source import open_log
    from unicron.controlplane.cli.progress import watched

    with open_log(asked.log, asked.cluster, asked.from_snapshot) as opened:
        yield opened, watched(what, opened.items, opened.fraction)


def _export(asked: Asked) -> "Exported | None":
    from unicron.controlplane.cli.exporting import export, up_to

    assert asked.file is not None
    with _opened(asked, "export") as (opened, items):
        return export(opened, up_to(items, asked.until), asked.file, force=asked.force)


def _replay(asked: Asked) -> Replayed:
    from unicron.controlplane.replay import replay_once
    from unicron.events import Recorded

    read = 0
    told: list[Recorded] = []

    def counted() -> "Iterator[Recorded | StateDigest]":
        nonlocal read
        for item in items:
            if isinstance(item, Recorded):
                read = item.seq
                if asked.until is not None and item.seq <= asked.until:
                    told.append(item)
            yield item

    with _opened(asked, "verify" if asked.verify else "replay") as (opened, items):
        everything = counted()
        report, state = replay_once(
            everything,
            verify=asked.verify,
            until=asked.until,
            fold_version=opened.fold_version,
            snapshot=opened.snapshot,
            chain=opened.chain,
        )
        total = opened.total
        if total is None and report.divergence is None:  # a file is also checked beyond --until
            for _ in everything:
                pass
            total = max(read, report.began)
    upto = tuple(told[: report.last_seq - report.began])
    return Replayed(log=opened, report=report, state=state, log_events=total, told=upto)


def _as_json(asked: Asked, done: Replayed, written: "Exported | None") -> str:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(done.report)
    document = {
        "schema": "unicron.replay/1",
        "ok": done.report.divergence is None,
        "log": done.log.shown,
        "cluster": done.log.cluster,
        "birth": done.log.birth,
        "log_events": done.log_events,
        "until": asked.until,
        **fields,
        "export": None if written is None else {"file": written.file, "bytes": written.size},
        "state": done.state if asked.until is not None else None,
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _as_text(asked: Asked, done: Replayed, written: "Exported | None") -> str:
    from unicron.controlplane.replay.phrases import one_line

    log, report = done.log, done.report
    lines = [] if written is None else [_export_line(written)]
    mark, verdict = _verdict(log, report)
    lines.append(hung(f"{mark}{one_line(verdict)}", 2, width()))
    if report.divergence is not None:
        lines += [_hung_at(2, "", line) for line in _divergence(report.divergence)]
    lines += ["", *(_hung_at(11, name, text) for name, text in _counts(done))]
    if asked.until is not None and not done.report.began:  # else what led to it isn't read
        lines += ["", *_state(done)]
    lines += ["", f"next: {_next(log, report)}"]
    return "\n".join(lines)


def _state(done: Replayed) -> list[str]:
    """The cluster as `unicron status --at` shows it."""
    from unicron.controlplane.cli.status_command import cluster_lines
    from unicron.controlplane.replay import IncidentBook

    view = IncidentBook(done.told).cluster(done.log_events or len(done.told))
    return cluster_lines(view, done.log.cluster)


def _hung_at(indent: int, name: str, text: str) -> str:
    from unicron.controlplane.replay.phrases import one_line

    return hung(f"{name:<{indent}}{one_line(text)}", indent, width())


def _export_line(written: "Exported") -> str:
    from unicron.controlplane.replay.units import count

    mark = click.style("+ exported ", fg="green", bold=True)
    events = count(written.seal.events, "event")
    line = f"{mark}{events} into {written.file} ({number(written.size)} bytes)"
    return hung(line, 2, width())


def _verdict(log: "OpenLog", report: "ReplayReport") -> tuple[str, str]:
    """The first line: a mark for a reader in a hurry, and the rest."""
    if report.divergence is not None:
        mark = click.style("x diverges ", fg="red", bold=True)
        return mark, f"at #{number(report.divergence.seq)}: {report.divergence.message}"
    since = f" from the snapshot of #{number(report.began)}" if report.began else ""
    upto = f"cluster {log.cluster}{since} up to #{number(report.last_seq)}"
    if report.verified is None:
        return "", f"folded {upto}; nothing was compared"
    mark = click.style("+ holds ", fg="green", bold=True)
    again = f"{number(report.redecided)} decisions decided again, all as the log has them"
    if report.other_versions:
        again += f"; {number(report.other_versions)} of other versions only folded"
    return mark, f"for {upto}: {again}"


def _divergence(found: "Divergence") -> list[str]:
    lines = [found.why] if found.why else []
    if found.diff:
        lines += found.diff
    elif found.expected or found.actual:
        lines += [f"by replay: {found.expected or '-'}", f"in the log: {found.actual or '-'}"]
    return lines


def _counts(done: Replayed) -> list[tuple[str, str]]:
    log, r = done.log, done.report
    before = f", {r.unjudged} made before the snapshot" if r.unjudged else ""
    decisions = (
        f"{number(r.inputs)} {'input' if r.inputs == 1 else 'inputs'}, "
        f"{number(r.redecided)} decided again, "
        f"{number(r.other_versions)} of other versions{before}; "
        f"{number(r.foreign)} with other events in between"
    )
    total = "" if done.log_events is None else f" of {number(done.log_events)}"
    lines = [
        ("log", f"{log.shown}, cluster {log.cluster}, born {log.birth}"),
        ("events", f"{number(r.events)}{total}"),
        ("decisions", f"{number(r.decisions)}: {decisions}"),
        ("void", _some(r.void)),
        ("digest", r.digest),
        ("chain", r.chain),
    ]
    if r.began:
        lines.insert(1, ("snapshot", f"#{number(r.began)}; what stands up to it wasn't judged"))
    if r.verified is not None:
        lines.append(("vouched", _vouched(r)))
    if r.duplicates:
        lines.append(("duplicates", _some(r.duplicates)))
    lines += [("gap", f"#{g.seq}: {g.who} lacks its {g.first} to {g.last}") for g in r.gaps[:5]]
    lines += [("unread", f"#{u.seq} {u.tag or 'bytes'}: {u.reason}") for u in r.unread[:5]]
    left_out = max(len(r.gaps) - 5, 0) + max(len(r.unread) - 5, 0)
    if left_out:
        lines.append(("", f"and {left_out} more (--json has all)"))
    return lines


def _vouched(report: "ReplayReport") -> str:
    """How far later decisions say that nothing was changed."""
    from unicron.controlplane.replay.units import count

    compared = f"; {count(report.digests, 'digest')} compared" if report.digests else ""
    if not report.vouched:
        return f"no decision covers what stands before it{compared}"
    return f"up to #{number(report.vouched)} by the decisions after it{compared}"


def _some(sequences: tuple[int, ...]) -> str:
    """``2: #7, #9``; many are cut short."""
    listed = ", ".join(f"#{number(seq)}" for seq in sequences[:8])
    more = ", ..." if len(sequences) > 8 else ""
    return f"{len(sequences)}: {listed}{more}" if sequences else "0"


def _next(log: "OpenLog", report: "ReplayReport") -> str:
    from unicron.controlplane.cli.log_source import log_arguments

    arguments = log_arguments(log)
    if report.divergence is not None:
        return f"unicron replay {arguments} --until {report.last_seq}"
    if report.verified is None:
        return f"unicron replay {arguments} --verify"
    return f"unicron audit {arguments}"
