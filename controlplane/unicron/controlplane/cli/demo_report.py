"""How the demo's result is shown: a timeline a person can read, tables, the verdict; and JSON."""

import json

import msgspec

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
    start = _start_ns(row, result) or story.incident.first_evidence_at_ns
    origin = "the fault" if _start_ns(row, result) else "the first evidence"
    lines = [f"{row.incident} SEV{story.incident.severity}, time since {origin}", ""]
    lines.append(f"{'T+':>9}  {'SEQ':>5}  {'WHO':<12} WHAT")
    for event in story.events:
        late = (event.at_ns - start) / 1e6
        lines.append(f"{late:7.0f} ms  {'#' + str(event.seq):>5}  {event.who:<12} {event.what}")
    return "\n".join(lines)


def _start_ns(row: FaultRow, result: DemoResult) -> int | None:
    for shot in result.shots:
        if shot.fault.target == row.worker and shot.fault.kind == row.kind:
            return shot.wall_ns
    return None


def _faults(rows: list[FaultRow]) -> str:
    if not rows:
        return "no faults"
    head = ("FAULT", "AT", "SEV", "KEPT", "REDONE", "DETECT ms", "PLAN ms", "RESUME ms", "WHOLE ms")
    table: list[tuple[str, ...]] = [head]
    for row in rows:
        where = f"{row.iteration if row.iteration is not None else '?'}/{row.phase or '?'}"
        table.append(
            (
                f"{row.kind} {row.worker}",
                where,
                _cell(row.severity),
                _cell(row.kept_microbatches),
                _cell(row.redone_microbatches),
                _cell(row.detect_ms),
                _cell(row.plan_ms),
                _cell(row.resume_ms),
                _cell(row.restored_ms),
            )
        )
    return _table(table, left=2)


def _cell(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.0f}"


def _table(rows: list[tuple[str, ...]], left: int) -> str:
    """Columns with two spaces between; the first `left` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _losses(result: DemoResult) -> str:
    if result.reference is None:
        return ""
    last = result.options.iterations - 1
    step = max(1, last // (_LOSSES_SHOWN - 1))
    rows: list[tuple[str, ...]] = [("ITERATION", "LOSS", "REFERENCE", "")]
    for iteration in sorted({*range(0, last, step), last}):
        ours = result.work.losses.get(iteration, ())
        theirs = result.reference.work.losses.get(iteration, ())
        rows.append((str(iteration), _loss(ours), _loss(theirs), "=" if ours == theirs else "x"))
    return _table(rows, left=0)


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
