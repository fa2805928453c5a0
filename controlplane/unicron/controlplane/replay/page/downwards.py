"""What happened when, for narrow screens: time goes downwards, a row for each event, and beside it
the throughput and the steps that were going on."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from itertools import groupby, pairwise
from typing import Final

from unicron.controlplane.replay.page.axis import Axis
from unicron.controlplane.replay.page.cells import anchor, t_plus
from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.steps import CLASSIFY, DETECT, PLAN, Step
from unicron.controlplane.replay.story import IncidentStory, StoryEvent, ThroughputCurve
from unicron.controlplane.replay.units import count

#: Of the time that the whole takes, a row has room below it in this many pixels.
_ROOM: Final = 260
_ROOM_MAX: Final = 48
_OURS: Final = (DETECT, CLASSIFY, PLAN)


def downwards(story: IncidentStory, axis: Axis) -> Element:
    """The rows, below a line that says what stands beside them."""
    own = story.incident.task
    curve = next((c for c in story.throughput if c.task == own), None)
    lanes = ["the control plane's steps", "the ranks' steps"]
    if curve is not None:
        lanes.insert(0, f"the throughput of {curve.task}")
    said = el("p", f"Downwards; from the left: {', '.join(lanes)}.", class_="note")
    return el("div", said, each("div", _rows(story, axis, curve)), class_="down")


def _rows(story: IncidentStory, axis: Axis, curve: ThroughputCurve | None) -> Iterator[Element]:
    groups = [list(group) for _, group in groupby(story.events, lambda e: (e.type, e.void))]
    starts = [group[0].at_ns for group in groups]
    steps = story.steps.steps
    ours = [s for s in steps if s.name in _OURS]
    theirs = [s for s in steps if s.name not in _OURS]
    first, last = (starts[0], starts[-1]) if starts else (axis.end_ns, axis.end_ns)
    yield from _paces(curve, 0, first - 1)
    for group, (start, end) in zip(groups, pairwise([*starts, axis.end_ns]), strict=True):
        room = min(round(_ROOM * (axis.at(end) - axis.at(start)) / 100), _ROOM_MAX)
        middle = (start + end) // 2
        yield el(
            "div",
            el("span", _pace(curve, start)),
            el("span", class_=_going_on(ours, middle)),
            el("span", class_=_going_on(theirs, middle)),
            _told(group, room),
            part=True,
        )
    yield from _paces(curve, last + 1, axis.end_ns)


def _paces(curve: ThroughputCurve | None, start: int, end: int) -> Iterator[Element]:
    """A row for each throughput from `start` to `end`, before the first event and after the last
    one."""
    points = curve.points if curve is not None else ()
    for point in points:
        if start <= point.at_ns <= end:
            pace = f"{point.gflops:,} GFLOP/s on {count(point.devices, 'device')}"
            yield el(
                "div",
                el("span", _pace(curve, point.at_ns)),
                el("span", class_="idle"),
                el("span", class_="idle"),
                el("div", el("span", t_plus(point.t_plus_ms)), el("p", pace)),
                part=True,
            )


def _pace(curve: ThroughputCurve | None, at_ns: int) -> Element | None:
    """How wide the bar of the throughput is."""
    if curve is None:
        return None
    top = max((p.gflops for p in curve.points), default=0) or 1
    now = next((p.gflops for p in reversed(curve.points) if p.at_ns <= at_ns), 0)
    return el("i", class_="pacebar", style=f"width:{100 * now / top:.0f}%")


def _going_on(steps: SequenceOf[Step], at_ns: int) -> str:
    """The class that colours a lane."""
    for step in steps:
        if step.start_ns <= at_ns and (step.end_ns is None or at_ns < step.end_ns):
            return f"s-{step.name}"
    return "idle"


def _told(group: SequenceOf[StoryEvent], room: int) -> Element:
    """The first of events of one type in a row, and how many more there are."""
    first, more = group[0], len(group) - 1
    return el(
        "div",
        el("a", t_plus(first.t_plus_ms), href=anchor(first.seq)),
        el("span", first.kind, class_=f"kind k-{first.kind}"),
        el("span", first.who, class_="who"),
        el("p", first.what, f" … and {more} alike" if more else None),
        style=f"padding-bottom:{room}px" if room > 4 else None,
    )
