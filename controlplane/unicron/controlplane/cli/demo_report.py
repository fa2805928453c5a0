"""How the demo's result is shown: a timeline a person can read, tables, the verdict; and JSON."""

import json
from typing import Any

import msgspec

from unicron import events as ev
from unicron.controlplane.cli.incident_list import item
from unicron.controlplane.cli.output import duration, hung, table, width
from unicron.controlplane.local.compared import TaskOutcome
from unicron.controlplane.local.demo import DemoResult
from unicron.controlplane.local.faultrows import FaultRow, batches
from unicron.controlplane.local.faults import KINDS
from unicron.controlplane.replay import IncidentBook, IncidentSummary
from unicron.controlplane.replay.headline import cost_words
from unicron.controlplane.replay.story import PASSED_ON, Trade
from unicron.events import Recorded

SCHEMA = "unicron.demo/1"
_LOSSES_SHOWN = 6


_GENERATION = "generation: one membership of the task; who joins or leaves makes the next one"
#: What the columns of the table of costs say.
_LEGEND = (
    ("SEV", "1: a node is lost; 2: a process must be replaced; 3: a connection broke"),
    ("KEPT", "micro-batches of the interrupted iteration that survivors had done"),
    ("REDONE", "micro-batches of it done again, since they died with their worker"),
    ("NOTICED", "from the fault to the first fact about it in the log"),
    ("PLAN", "from there to the order for the survivors"),
    ("RESUME", "from the fault to the first iteration committed by the survivors"),
    ("WHOLE", "from the fault to the end of its incident: repaired, or planned anew"),
)
_TRADES = (
    ("RELEASED", "from the plan to the end of the donor's worker"),
    ("IDLE", "from there to the first iteration that the receiver committed with the device"),
    ("DONOR", "how long the donor's other members stood still to go on without the device"),
    ("RECEIVER", "how long the receiver's members stood still to take it in"),
)
_AT_LEAST = (
    ">",
    "at least: from the first fact on, since only you know when the fault was",
)


def text(result: DemoResult) -> str:
    """The report, first the stories, last the verdict and the next commands."""
    book = IncidentBook(result.events)
    parts = [_story(book, row) for row in result.rows if row.incident is not None]
    parts += [_told(result.rows, book), _costs(result.rows)]
    parts += [_trades(book.trades()), _tasks(result), _losses(result.tasks[0]), _verdict(result)]
    return "\n\n".join(part for part in parts if part)


def _story(book: IncidentBook, row: FaultRow) -> str:
    assert row.incident is not None
    story = book.story(row.incident)
    start = row.at_ns if row.at_ns is not None else story.incident.first_evidence_at_ns
    since = row.what if row.injected else "its first evidence"
    lines = [
        (
            duration((event.at_ns - start) // 1_000_000),
            f"#{event.seq}",
            "nats-server" if event.who.startswith("server/") else event.who,
            event.what,
        )
        for event in story.events
    ]
    head = f"{row.incident} SEV{story.incident.severity}, T+ since {since}"
    return head + "\n" + table(("T+ ", "SEQ ", "WHO", "WHAT"), lines, width())


def _told(rows: list[FaultRow], book: IncidentBook) -> str:
    """What each fault was, what was seen and decided, what became of it and what it cost."""
    incidents = {str(incident.id): incident for incident in book.incidents()}
    lines = []
    for row in rows:
        told = [
            ("was", _was(row)),
            ("seen", row.seen or "nothing: it lives and answers"),
            ("decided", _decided(row)),
            ("ended", row.outcome or "not yet"),
        ]
        if row.incident is not None:
            told.append(("cost", _cost(incidents[row.incident])))
        name = _name(row)
        lines += [(name if i == 0 else "", *line) for i, line in enumerate(told)]
    if not lines:
        return ""
    return table(("FAULT", "", ""), lines, width()) + "\n" + hung(_GENERATION, 0, width())


def _cost(incident: IncidentSummary) -> str:
    """As unicron audit tells it."""
    if not incident.lost_flop:
        return "no training"
    return f"{cost_words(incident)}; stood still for {duration(incident.stall_ms)}"


def _name(row: FaultRow) -> str:
    """The fault, and which task's row it is where one hits several."""
    several = KINDS[row.kind].whole_node if row.kind in KINDS else False
    return f"{row.kind} {row.worker}" + (f" ({row.task})" if several and row.task else "")


def _was(row: FaultRow) -> str:
    if not row.injected:
        return f"not done by the demo; it hit {_at(row, 'iteration ')}"
    if row.done_microbatches is None:
        return f"{row.what}, at {_at(row, 'iteration ')}"
    return (
        f"{row.what} in iteration {row.iteration} "
        f"({row.phase}, {batches(row.done_microbatches)} done)"
    )


def _decided(row: FaultRow) -> str:
    if row.severity is None:
        return "nothing"
    return "; ".join((f"{row.incident}, SEV{row.severity}", *row.decided))


def _at(row: FaultRow, before: str = "") -> str:
    if row.iteration is None:
        return "?"
    return f"{before}{row.iteration}" + (f"/{row.phase}" if row.phase else "")


def _costs(rows: list[FaultRow]) -> str:
    if not rows:
        return "no faults"
    names = (
        "FAULT",
        "AT",
        "SEV ",
        "KEPT ",
        "REDONE ",
        "NOTICED ",
        "PLAN ",
        "RESUME ",
        "WHOLE ",
        "",
    )
    lines = [
        (
            _name(row),
            _at(row),
            _known(row.severity),
            _known(row.kept_microbatches),
            _known(row.redone_microbatches),
            _took(row.noticed_ms) if row.injected else "?",
            _took(row.plan_ms),
            _took(row.resume_ms, at_least=not row.injected),
            _took(row.restored_ms, at_least=not row.injected),
            "",
        )
        for row in rows
    ]
    legend = [*_LEGEND, *([] if all(row.injected for row in rows) else [_AT_LEAST])]
    size = max(len(name) for name, _ in legend) + 2
    told = [hung(f"{name:<{size}}{about}", size, width()) for name, about in legend]
    return "\n".join([table(names, lines, width()), "", *told])


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


def _took(value: float | None, *, at_least: bool = False) -> str:
    if value is None:
        return "-"
    return ("> " if at_least else "") + duration(round(value))


def _trades(trades: tuple[Trade, ...]) -> str:
    """Devices that passed from one task to another, and what that cost."""
    rows = [
        (
            trade.device,
            trade.donor,
            trade.receiver,
            duration(trade.wait_ms),
            duration(trade.idle_ms),
            duration(trade.donor_stall_ms),
            duration(trade.receiver_stall_ms),
            "" if trade.state == PASSED_ON else trade.state,
        )
        for trade in trades
    ]
    if not rows:
        return ""
    header = ("DEVICE", "FROM", "TO", "RELEASED ", "IDLE ", "DONOR ", "RECEIVER ", "")
    size = max(len(name) for name, _ in _TRADES) + 2
    told = [hung(f"{name:<{size}}{about}", size, width()) for name, about in _TRADES]
    return "\n".join([table(header, rows, width()), "", *told])


def _tasks(result: DemoResult) -> str:
    """Both tasks through it all, and what they ended with."""
    rows = [
        (
            task.spec.task,
            f"{task.spec.weight_milli / 1000:g}",
            str(result.state.tasks[task.spec.task].iteration),
            " ".join(map(str, sizes_of(task.spec.task, result.events))),
            (task.digest or "?")[:12],
            (task.reference.state_digest if task.reference else "?")[:12]
            + (" =" if task.bit_identical else " x"),
        )
        for task in result.tasks
    ]
    header = ("TASK", "WEIGHT ", "ITERATIONS ", "DEVICES", "FINAL STATE", "UNDISTURBED")
    told = "DEVICES: of one generation after the other"
    return table(header, rows, width(), last_min=len(header[-1])) + "\n" + hung(told, 0, width())


def sizes_of(task: str, events: list[Recorded]) -> list[int]:
    """Members of each generation of the task that came to stand, in order."""
    ordered: dict[int, int] = {}
    sizes = []
    for recorded in events:
        match recorded.envelope.body if recorded.envelope is not None else None:
            case ev.TransitionOrdered() as body if body.task == task:
                ordered[body.generation] = len(body.members)
            case ev.TransitionCompleted() as body if body.task == task:
                sizes.append(ordered[body.generation])
            case _:
                pass
    return sizes


def _losses(task: TaskOutcome) -> str:
    if task.reference is None:
        return ""
    last = task.spec.iterations - 1
    step = max(1, last // (_LOSSES_SHOWN - 1))
    rows = []
    for iteration in sorted({*range(0, last, step), last}):
        ours = task.work.losses.get(iteration, ())
        theirs = task.reference.work.losses.get(iteration, ())
        same = "=" if ours == theirs else "x"
        rows.append((str(iteration), _loss(ours), _loss(theirs), same))
    return table((f"{task.spec.task}: ITERATION ", "LOSS ", "UNDISTURBED ", ""), rows, None)


def _loss(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.6f}" for value in values) or "?"


def _verdict(result: DemoResult) -> str:
    marked = [f"{'+' if c.ok else 'x'} {c.name} ({c.detail})" for c in result.checks]
    lines = [hung(line, 2, width()) for line in marked]
    word = "everything held" if result.ok else "NOT everything held"
    lines.append(f"{word}, {result.took_s:.0f} s in all")
    log = result.options.log_path
    lines.append(f"next: unicron audit --log {log}")
    lines.append(f"      unicron replay --log {log} --verify")
    return "\n".join(lines)


def as_json(result: DemoResult) -> str:
    """One line. Unknown numbers are null."""
    heavy = result.tasks[0]
    body = {
        "schema": SCHEMA,
        "ok": result.ok,
        "iterations": result.state.tasks[heavy.spec.task].iteration,
        "seed": result.options.seed,
        "faults": [msgspec.to_builtins(row) for row in result.rows],
        "incidents": [item(i) for i in IncidentBook(result.events).incidents()],
        "bit_identical": result.bit_identical,
        "digest": heavy.digest,
        "reference_digest": heavy.reference.state_digest if heavy.reference else None,
        "forward_passes": heavy.work.passes,
        "tasks": [_task(result, task) for task in result.tasks],
        "trades": [msgspec.to_builtins(t) for t in IncidentBook(result.events).trades()],
        "events": len(result.events),
        "log": str(result.options.log_path),
        "losses": [_single(heavy.work.losses.get(i, ())) for i in range(result.options.iterations)],
        "checks": [msgspec.to_builtins(check) for check in result.checks],
        "took_s": round(result.took_s, 1),
    }
    return json.dumps(body)


def _task(result: DemoResult, task: TaskOutcome) -> dict[str, Any]:
    return {
        "task": task.spec.task,
        "weight_milli": task.spec.weight_milli,
        "iterations": result.state.tasks[task.spec.task].iteration,
        "devices": sizes_of(task.spec.task, result.events),
        "bit_identical": task.bit_identical,
        "digest": task.digest,
        "reference_digest": task.reference.state_digest if task.reference else None,
        "forward_passes": task.work.passes,
    }


def _single(values: tuple[float, ...]) -> float | None:
    return values[0] if len(values) == 1 else None
