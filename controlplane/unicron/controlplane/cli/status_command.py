"""`unicron status`: how a cluster stands, on one screen, or how one thing in it does."""

from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.output import Cell, duration, emit, hung, number, table, utc, width

if TYPE_CHECKING:
    from unicron.controlplane.cli.opened import Opened
    from unicron.controlplane.replay import ClusterView, IdStatus

_COLOURS = {"healthy": "", "suspected": "yellow", "lost": "red", "isolated": "red"}


@click.command()
@click.argument("what", metavar="[ID]", required=False)
@options.log_options
@options.at_option
@options.json_option
@options.verbose_option
def status(what: str | None, log: str, cluster: str | None, at: int | None, as_json: bool) -> None:
    """How the cluster stands, or how one thing in it does.

    ID is a node, a task, a worker, an incident, the sequence of a plan or of any other event, or
    the beginning of one. With --at: how it stood then. Progress isn't logged, so ITER is as old
    as the last event that tells it. Nothing is verified: see unicron replay.
    """
    from unicron.controlplane.cli.opened import document, open_book

    opened = open_book(log, cluster, at)
    if what is None:
        view = opened.book.cluster(opened.last_seq)
        emit(document("unicron.status/1", opened, view) if as_json else _cluster(opened, view))
    else:
        found = opened.book.status(what)
        emit(document("unicron.status.id/1", opened, found) if as_json else _one(opened, found))


def _cluster(opened: "Opened", view: "ClusterView") -> str:
    from unicron.controlplane.cli.opened import next_lines
    from unicron.controlplane.replay.story import NextCommand

    worst = min(view.incidents, key=lambda i: i.severity, default=None)
    arguments = ("audit",) if worst is None else ("audit", worst.id)
    commands = (NextCommand(arguments=arguments, about="what happened"),)
    return "\n".join([*cluster_lines(view, opened.log.cluster), *next_lines(opened, commands)])


def cluster_lines(view: "ClusterView", name: str) -> list[str]:
    """The cluster on one screen; `name` is what it is called before the log says so."""
    upto = f"#{number(view.at_seq)}"
    if view.at_seq < view.last_seq:
        upto += f" of {number(view.last_seq)}"
    if view.at_seq:
        upto += f", {utc(view.at_ns)} UTC"
    leader = f"{view.leader} leads since #{number(view.term)}" if view.term else "nobody leads"
    if view.followers:
        verb = "follows" if len(view.followers) == 1 else "follow"
        leader += f"; {', '.join(view.followers)} {verb}"
    lag = "" if view.log_lag_ms is None else f"; log lag {duration(view.log_lag_ms)}"
    lines = [
        hung(f"cluster {view.cluster or name} at {upto}: {view.headline}", 2, width()),
        hung(f"{leader}{lag}", 2, width()),
    ]
    if view.configured:
        lines.append(hung(f"configured: {view.configured}", 2, width()))
    for text in (_incidents(view), _tasks(view), _nodes(view), _workers(view)):
        lines += ["", text] if text else []
    return [*lines, "", *_desk(view), *_counts(view)]


def _incidents(view: "ClusterView") -> str:
    rows = [
        (i.id, str(i.severity), f"#{i.opened_seq}", i.task or "-", i.what) for i in view.incidents
    ]
    return table(("INCIDENT", "SEV ", "OPENED ", "TASK", "WHAT"), rows, width()) if rows else ""


def _tasks(view: "ClusterView") -> str:
    rows = [
        (
            t.task,
            t.phase,
            f"{t.devices}/{t.devices_wanted}",
            str(t.generation),
            f"{number(t.iteration)}/{number(t.iterations)}",
            number(t.gflops),
            _step(t.step_us),
            _step(t.assumed_step_us),
            t.incident or t.outcome or "-",
        )
        for t in view.tasks
    ]
    header = ("TASK", "PHASE", "DEVICES ", "GEN ", "ITER ", "GFLOP/s ", "STEP ", "ASSUMED ", "WHY")
    return table(header, rows, width()) if rows else ""


def _step(us: int | None) -> str:
    from unicron.controlplane.core.figures import span

    return "-" if us is None else span(us)


def _nodes(view: "ClusterView") -> str:
    rows = [
        (
            n.node,
            Cell(n.status, _COLOURS.get(n.status, "cyan")),
            f"#{n.since_seq}",
            f"{n.devices} {n.device_kind}",
            str(n.workers),
            n.reason or "-",
        )
        for n in view.nodes
    ]
    header = ("NODE", "STATUS", "SINCE ", "DEVICES ", "WORKERS ", "WHY")
    return table(header, rows, width()) if rows else ""


def _workers(view: "ClusterView") -> str:
    rows = [
        (
            w.worker,
            str(w.life),
            w.status,
            w.task,
            "-" if w.rank is None else str(w.rank),
            f"slow, {w.slow_percent} % of the others' time" if w.slow_percent else "",
        )
        for w in view.workers
    ]
    header = ("WORKER", "LIFE ", "STATUS", "TASK", "RANK ", "")
    return table(header, rows, width()) if rows else ""


def _desk(view: "ClusterView") -> list[str]:
    from unicron.controlplane.core.tables import ENDED

    plan = view.plan
    if plan.wanted_seq is None and plan.request_seq is None:
        return []
    if plan.request_seq:
        asked = f"asked with #{plan.request_seq}"
    elif any(task.phase not in ENDED for task in view.tasks):
        asked = "not asked for yet"
    else:
        return []  # for nobody: it is asked for when there is a task
    since = f" since #{plan.wanted_seq}" if plan.wanted_seq else ""
    return [hung(f"a plan is wanted{since} ({plan.reason}), {asked}", 2, width())]


def _counts(view: "ClusterView") -> list[str]:
    text = (
        f"{view.incidents_over} incidents over; {view.void} void decisions, {view.duplicates} "
        f"repeated facts, {view.gaps} gaps, {view.unknown} entries not understood"
    )
    return [hung(text, 2, width())]


def _one(opened: "Opened", found: "IdStatus") -> str:
    from unicron.controlplane.cli.opened import next_lines
    from unicron.controlplane.cli.story_text import events_table

    lines = [hung(found.headline, 2, width())]
    if found.facts:
        lines += ["", table(("", ""), found.facts, width()).lstrip("\n")]
    if found.kind not in ("event", "plan"):
        more = f", and {number(found.events_left_out)} before" if found.events_left_out else ""
        lines += ["", f"LAST EVENTS{more}", events_table(found.events)]
    elif found.events:
        fields = [(name, _value(value)) for name, value in found.events[0].fields.items()]
        lines += ["", "FIELDS", table(("", ""), fields, width()).lstrip("\n")]
    return "\n".join([*lines, "", *next_lines(opened, found.commands)])


def _value(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
