"""Where the seconds went: step by step, and rank by rank."""

from collections.abc import Iterator

from unicron.controlplane.replay.page.cells import Cell, Marks, badge, folded, table
from unicron.controlplane.replay.page.tree import el
from unicron.controlplane.replay.phrases import names
from unicron.controlplane.replay.steps import RankStep, Step
from unicron.controlplane.replay.story import IncidentStory
from unicron.controlplane.replay.units import count, duration

_MS = 1_000_000


def seconds(story: IncidentStory, marks: Marks) -> Iterator[Cell | None]:
    """A row for each step with a bar as long as it took; below, each rank's part."""
    start = story.incident.first_evidence_at_ns
    longest = max((s.duration_ns or 0 for s in story.steps.steps), default=0) or 1
    rows = [_step(step, start, longest, marks) for step in story.steps.steps]
    yield table(("T+ ", "TOOK ", "", "STEP", "FROM ", "TO ", "WHO AND WHAT"), rows)
    parts = [_part(step, part, start, marks) for step in story.steps.steps for part in step.ranks]
    if parts:
        header = (
            *("STEP", "WORKER", "RANK ", "T+ ", "TOOK ", "UNTIL ", "HOW", "ITERATION "),
            *("KEPT ", "OWED ", "STATE FROM", "BYTES ", "UNBLOCK ", "REGROUP ", "TRANSFER "),
        )
        yield folded(f"Rank by rank: {count(len(parts), 'part')}", table(header, parts))


def _step(step: Step, start: int, longest: int, marks: Marks) -> tuple[Cell, ...]:
    took = None if step.duration_ns is None else step.duration_ns // _MS
    share = 100 * (step.duration_ns or 0) / longest
    workers = names(tuple(dict.fromkeys(part.worker for part in step.ranks)))
    generation = f"generation {step.generation}" if step.generation is not None else ""
    words = ", ".join(filter(None, (generation, workers)))
    state = badge(step.state, "warn") if step.state != "done" else None
    return (
        duration((step.start_ns - start) // _MS),
        duration(took),
        el("span", class_=f"bar s-{step.name}", style=f"width:{share:.1f}%"),
        step.name,
        marks.of(step.first_seq),
        marks.of(step.last_seq),
        el("span", words, " ", state),
    )


def _part(step: Step, part: RankStep, start: int, marks: Marks) -> tuple[Cell, ...]:
    took = None if part.end_ns is None else (part.end_ns - part.start_ns) // _MS
    source = {None: "-", -1: "initial"}.get(part.state_from, f"rank {part.state_from}")
    return (
        step.name,
        f"{part.worker} (life {part.incarnation})",
        _number(part.rank),
        duration((part.start_ns - start) // _MS),
        duration(took),
        marks.of(part.seq),
        part.how or "-",
        _number(part.iteration),
        _number(part.kept),
        _number(part.owed),
        source,
        _number(part.received_bytes or None),
        *(duration(ms or None) for ms in (part.unblock_ms, part.regroup_ms, part.transfer_ms)),
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
