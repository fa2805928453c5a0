"""What happened when: throughput above, the control plane, each node and each rank below, all on
one axis."""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf

import msgspec

from unicron.controlplane.replay.page.axis import Axis
from unicron.controlplane.replay.page.cells import Cell, anchor, folded, t_plus, table
from unicron.controlplane.replay.page.charts import chart, ruler, strip
from unicron.controlplane.replay.page.downwards import downwards
from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.steps import CLASSIFY, DETECT, NAMES, PLAN, Step
from unicron.controlplane.replay.story import IncidentStory, StoryEvent
from unicron.controlplane.replay.units import duration
from unicron.events import WorkerId, node_of

_MS = 1_000_000
#: Kinds of sources and clients, as they stand before a name.
_WORKER, _AGENT = "worker", "agent"
#: Up to so many ranks have a lane each, even where they are alike.
_ALONE_MAX = 12
#: No more lanes than these.
_LANES_MAX = 60


class Bar(msgspec.Struct, frozen=True):
    """A stretch of a lane. `kind`: a step's name."""

    kind: str
    start_ns: int
    end_ns: int
    title: tuple[str, ...]


class Lane(msgspec.Struct, frozen=True):
    """`marks`: events. `kind`: ``control``, ``node`` or ``rank``."""

    kind: str
    name: str
    bars: tuple[Bar, ...]
    marks: tuple[StoryEvent, ...]


def axis_of(story: IncidentStory) -> Axis:
    """Of everything that the timeline shows."""
    times = [story.incident.began_at_ns, *(e.at_ns for e in story.events)]
    for step in story.steps.steps:
        times += [step.start_ns, *([step.end_ns] if step.end_ns is not None else [])]
    for curve in story.throughput:
        times += [p.at_ns for p in curve.points[1:]]
        times.append(curve.to_ns)
    first, last = min(times), max(times)
    return Axis([*times, first - max((last - first) // 40, _MS)])


def timeline(story: IncidentStory) -> tuple[Cell | None, ...]:
    """The lanes, the same downwards for narrow screens, and the numbers of the throughput."""
    axis, zero = axis_of(story), story.incident.first_evidence_at_ns
    rows = [_row(curve.task, chart(axis, curve), "tall") for curve in story.throughput]
    rows.append(_row("T+", ruler(axis, zero), "ruler"))
    alike = list(_grouped(axis, list(_lanes(story, axis))))
    for lane, others in alike[:_LANES_MAX]:
        name = lane.name if not others else f"{lane.name} and {others} alike"
        rows.append(_row(name, strip(axis, lane.bars, lane.marks), lane.kind))
    left = len(alike) - _LANES_MAX
    more = f"{left} more lanes are left out; the steps below tell of all ranks." if left > 0 else ""
    return (
        each("div", rows, class_="lanes across"),
        downwards(story, axis),
        el("p", more, class_="note") if more else None,
        _legend(story),
        folded("The throughput in numbers, by the cost model", _numbers(story)),
    )


def _row(name: str, drawn: Element, kind: str) -> Element:
    return el("div", el("span", name), drawn, class_=f"lane {kind}", part=True)


def _legend(story: IncidentStory) -> Element:
    used = {step.name for step in story.steps.steps}
    keys = [el("span", el("i", class_=f"key s-{name}"), name) for name in NAMES if name in used]
    keys += [el("span", el("i", class_=f"key k-{kind}"), kind) for kind in _kinds(story.events)]
    return each("p", keys, class_="legend")


def _kinds(events: SequenceOf[StoryEvent]) -> list[str]:
    seen = {e.kind for e in events}
    return [kind for kind in ("observed", "decided", "done") if kind in seen]


def _numbers(story: IncidentStory) -> Element | None:
    rows = [
        (
            curve.task,
            duration(p.t_plus_ms),
            el("a", f"#{p.seq:,}", href=anchor(p.seq))
            if any(e.seq == p.seq for e in story.events)
            else f"#{p.seq:,}",
            f"{p.gflops:,}",
            str(p.devices),
            str(p.generation) if p.devices else "-",
        )
        for curve in story.throughput
        for p in curve.points
    ]
    return table(("TASK", "FROM T+ ", "SEQ ", "GFLOP/S ", "DEVICES ", "GEN "), rows)


# --- Lanes ---------------------------------------------------------------------------------------


def _lanes(story: IncidentStory, axis: Axis) -> Iterator[Lane]:
    """The control plane's, then each node's with those of its ranks."""
    zero = story.incident.first_evidence_at_ns
    marks: dict[str, list[StoryEvent]] = {}
    for event in story.events:
        for name in _places(event):
            marks.setdefault(name, []).append(event)
    ours = [s for s in story.steps.steps if s.name in (DETECT, CLASSIFY, PLAN)]
    yield Lane("control", "control plane", tuple(_bars(ours, axis, zero)), tuple(marks.get("", ())))
    parts = _parts(story.steps.steps, axis, zero)
    workers = sorted({*parts, *(name for name in marks if "/" in name)})
    nodes = {node_of(WorkerId(w)) for w in workers} | {n for n in marks if n and "/" not in n}
    for node in sorted(nodes):
        yield Lane("node", node, (), tuple(marks.get(node, ())))
        for worker in workers:
            if node_of(WorkerId(worker)) == node:
                bars, rank = parts.get(worker, ([], None))
                name = worker if rank is None else f"{worker} · rank {rank}"
                yield Lane("rank", name, tuple(bars), tuple(marks.get(worker, ())))


def _places(event: StoryEvent) -> Iterator[str]:
    """Where it is shown: with the node or worker that it came from or is about; "": with the
    control plane, as all decisions are and what is about neither."""
    kind, _, name = event.who.partition("/")
    client = event.fields.get("client")
    if kind in (_WORKER, _AGENT):
        yield name
    elif event.kind != "decided" and isinstance(client, str):
        kind, _, rest = client.partition("/")
        name = rest.rpartition("/")[0]
        yield name if kind in (_WORKER, _AGENT) else ""
    else:
        about = event.fields.get("worker") or event.fields.get("node")
        if event.kind == "decided" or not isinstance(about, str):
            yield ""
        if isinstance(about, str) and about:
            yield about


def _bars(steps: Iterable[Step], axis: Axis, zero: int) -> Iterator[Bar]:
    for step in steps:
        end = axis.end_ns if step.end_ns is None else step.end_ns
        when = t_plus((step.start_ns - zero) // _MS)
        title = (step.name, ", ", _took(step.start_ns, step.end_ns), " from ", when)
        yield Bar(step.name, step.start_ns, end, title)


def _parts(steps: Iterable[Step], axis: Axis, zero: int) -> dict[str, tuple[list[Bar], int | None]]:
    """Each worker's parts of the steps, and the rank it had last."""
    found: dict[str, tuple[list[Bar], int | None]] = {}
    for step in steps:
        for part in step.ranks:
            bars, rank = found.get(part.worker, ([], None))
            # A part that nothing ended lasts as long as the step: until what cut it.
            ends = [t for t in (part.end_ns, step.end_ns, axis.end_ns) if t is not None]
            took = _took(part.start_ns, part.end_ns)
            when = t_plus((part.start_ns - zero) // _MS)
            title = (part.worker, ": ", step.name, ", ", took, " from ", when, ", ", part.how)
            bars.append(Bar(step.name, part.start_ns, ends[0], title if part.how else title[:-2]))
            found[part.worker] = (bars, rank if part.rank is None else part.rank)
    return found


def _took(start_ns: int, end_ns: int | None) -> str:
    return "not ended" if end_ns is None else duration((end_ns - start_ns) // _MS)


def _grouped(axis: Axis, lanes: list[Lane]) -> Iterator[tuple[Lane, int]]:
    """Where there are many ranks, those that did the same at the same time share a lane: the
    first of them, and how many others there are."""
    ranks = [lane for lane in lanes if lane.kind == "rank"]
    if len(ranks) <= _ALONE_MAX:
        yield from ((lane, 0) for lane in lanes)
        return
    looks: dict[object, list[Lane]] = {}
    for lane in ranks:
        looks.setdefault(_look(axis, lane), []).append(lane)
    first = {id(group[0]): len(group) - 1 for group in looks.values()}
    for lane in lanes:
        if id(lane) in first:
            yield lane, first[id(lane)]
        elif lane.kind == "control" or (lane.kind == "node" and lane.marks):
            yield lane, 0


def _look(axis: Axis, lane: Lane) -> object:
    """Equal for lanes that would look alike."""

    def near(at_ns: int) -> int:
        return round(axis.at(at_ns) / 3)

    return (
        tuple((bar.kind, near(bar.start_ns), near(bar.end_ns)) for bar in lane.bars),
        tuple((mark.type, near(mark.at_ns)) for mark in lane.marks),
    )
