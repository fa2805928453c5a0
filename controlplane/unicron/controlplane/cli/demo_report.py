"""How the demo's result is shown: a timeline a person can read, tables, the verdict; and JSON."""

import json

import msgspec

from unicron.controlplane.cli.output import duration, table, width
from unicron.controlplane.local.demo import DemoResult
from unicron.controlplane.local.measure import FaultRow
from unicron.controlplane.replay.views import IncidentBook

SCHEMA = "unicron.demo/1"
_LOSSES_SHOWN = 6


def text(result: DemoResult) -> str:
    """The report, first the stories, last the verdict and the next commands."""
    book = IncidentBook(result.events)
    parts = [_story(book, row, result) for row in result.rows if row.incident is not None]
    parts += [_faults(result.rows), _losses(result), _verdict(result)]
    return "\n\n".join(part for part in parts if part)


def _story(book: IncidentBook, row: FaultRow, result: DemoResult) -> str:
    assert row.incident is not None
    story = book.story(row.incident)
    fault_ns = _fault_ns(row, result)
    start = story.incident.first_evidence_at_ns if fault_ns is None else fault_ns
    since = "its first evidence" if fault_ns is None else f"SIGKILL to {row.kind} {row.worker}"
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


def _fault_ns(row: FaultRow, result: DemoResult) -> int | None:
    for shot in result.shots:
        if (shot.fault.target, shot.fault.kind) == (row.worker, row.kind):
            return shot.wall_ns
    return None


def _faults(rows: list[FaultRow]) -> str:
    if not rows:
        return "no faults"
    names = ("FAULT", "AT", "SEV ", "KEPT ", "REDONE ", "DETECT ", "PLAN ", "RESUME ", "WHOLE ", "")
    lines = [
        (
            f"{row.kind} {row.worker}",
            f"{_known(row.iteration)}/{row.phase or '?'}",
            _known(row.severity),
            _known(row.kept_microbatches),
            _known(row.redone_microbatches),
            _took(row.detect_ms),
            _took(row.plan_ms),
            _took(row.resume_ms),
            _took(row.restored_ms),
            row.outcome,
        )
        for row in rows
    ]
    return table(names, lines, width())


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def _took(value: float | None) -> str:
    return "?" if value is None else duration(round(value))


def _losses(result: DemoResult) -> str:
    if result.reference is None:
        return ""
    last = result.options.iterations - 1
    step = max(1, last // (_LOSSES_SHOWN - 1))
    rows = []
    for iteration in sorted({*range(0, last, step), last}):
        ours = result.work.losses.get(iteration, ())
        theirs = result.reference.work.losses.get(iteration, ())
        same = "=" if ours == theirs else "x"
        rows.append((str(iteration), _loss(ours), _loss(theirs), same))
    return table(("ITERATION ", "LOSS ", "REFERENCE ", ""), rows, None)


def _loss(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.6f}" for value in values) or "?"


def _verdict(result: DemoResult) -> str:
    lines = [f"{'+' if c.ok else 'x'} {c.name} ({c.detail})" for c in result.checks]
    word = "everything held" if result.ok else "NOT everything held"
    lines.append(f"{word}, {result.took_s:.0f} s in all")
    log = result.options.log_path
    lines.append(f"next: unicron audit --log {log}      unicron replay --log {log} --verify")
    return "\n".join(lines)


def as_json(result: DemoResult) -> str:
    """One line. Unknown numbers are null."""
    task = next(iter(result.state.tasks.values()), None)
    body = {
        "schema": SCHEMA,
        "ok": result.ok,
        "iterations": task.iteration if task is not None else 0,
        "seed": result.options.seed,
        "faults": [msgspec.to_builtins(row) for row in result.rows],
        "bit_identical": result.bit_identical,
        "digest": result.digest,
        "reference_digest": result.reference.state_digest if result.reference else None,
        "forward_passes": result.work.passes,
        "events": len(result.events),
        "log": str(result.options.log_path),
        "losses": [
            _single(result.work.losses.get(i, ())) for i in range(result.options.iterations)
        ],
        "checks": [msgspec.to_builtins(check) for check in result.checks],
        "took_s": round(result.took_s, 1),
    }
    return json.dumps(body)


def _single(values: tuple[float, ...]) -> float | None:
    return values[0] if len(values) == 1 else None
