"""Strips of SVG, as wide as there is room: what lies at which percent of it."""

from collections.abc import Container, Iterator
from collections.abc import Sequence as SequenceOf
from typing import Protocol

from unicron.controlplane.replay.page.axis import Axis
from unicron.controlplane.replay.page.cells import anchor, t_plus
from unicron.controlplane.replay.page.tree import Element, el
from unicron.controlplane.replay.story import StoryEvent, ThroughputCurve
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.controlplane.replay.units import count, duration

_MS = 1_000_000
_TALL = 52
_LOW = 22
#: What is narrower is drawn so wide, percent.
_BAR_MIN = 0.25
#: With this much room a stretch has its first letter, with more its name.
_LETTER_MIN = 2.0
_WORD_MIN = 10.0


class Stretch(Protocol):
    """Something that lasted."""

    @property
    def kind(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def title(self) -> tuple[str, ...]: ...


def chart(axis: Axis, curve: ThroughputCurve) -> Element:
    """A task's throughput, zero at the bottom; the highest there is fills the height."""
    top = max((p.gflops for p in curve.points), default=0) or 1
    ends = [*(p.at_ns for p in curve.points[1:]), max(curve.to_ns, axis.end_ns)]
    bars = []
    for point, end in zip(curve.points, ends, strict=True):
        left, right = axis.at(point.at_ns), axis.at(end)
        high = round((_TALL - 4) * point.gflops / top)
        pace = f"{point.gflops:,} GFLOP/s on {count(point.devices, 'device')}"
        words = (pace, " from ", t_plus(point.t_plus_ms))
        if right > left:
            bars.append(
                _rect("pace", left, right - left, _TALL - max(high, 1), max(high, 1), *words)
            )
    return _svg(_TALL, *_cuts(axis, _TALL), *bars, label=f"throughput of {curve.task}")


def strip(axis: Axis, bars: SequenceOf[Stretch], marks: SequenceOf[StoryEvent]) -> Element:
    """A lane: stretches, and a mark for each event, which leads to it."""
    drawn = []
    for bar in bars:
        left = axis.at(bar.start_ns)
        width = max(axis.at(bar.end_ns) - left, _BAR_MIN)
        drawn.append(_rect(f"s-{bar.kind}", left, width, 3, _LOW - 6, *bar.title))
        if width >= _LETTER_MIN:
            drawn.append(
                _letter(left + width / 2, bar.kind if width >= _WORD_MIN else bar.kind[:1])
            )
    return _svg(_LOW, *_cuts(axis, _LOW), *drawn, *(_mark(axis, m) for m in marks))


def lasted(
    axis: Axis, incidents: SequenceOf[tuple[int, IncidentSummary]], told: Container[int]
) -> Element:
    """Incidents, each with its place in the list: how long each was; leads to those in `told`."""
    drawn = []
    for place, i in incidents:
        left = axis.at(i.began_at_ns)
        width = max(axis.at(i.last_at_ns) - left, _BAR_MIN)
        bar = _rect(f"sev{i.severity}", left, width, 3, _LOW - 6, f"{i.id}: {i.what}")
        drawn.append(el("a", bar, href=f"#i{place}", part=True) if place in told else bar)
    return _svg(_LOW, *_cuts(axis, _LOW), *drawn)


def ruler(axis: Axis, zero_ns: int) -> Element:
    """Labelled ticks; what is cut short says how long it is."""
    texts = []
    for tick in axis.ticks(zero_ns):
        x = axis.at(tick)
        if x < 96:
            texts.append(_text(x, duration((tick - zero_ns) // _MS), "start" if x < 4 else ""))
    for start, end in axis.cuts():
        middle = (axis.at(start) + axis.at(end)) / 2
        texts.append(_text(middle, f"… {duration((end - start) // _MS)} …", "cutword"))
    return _svg(_LOW, *_cuts(axis, _LOW), *texts)


def _text(x: float, words: str, kind: str) -> Element:
    return el("text", words, x=_percent(x), y="15", class_=f"tick {kind}".strip(), part=True)


def _letter(middle: float, name: str) -> Element:
    """Names a stretch for those who can't tell its colour."""
    return el("text", name, x=_percent(middle), y="15", class_="letter", part=True)


def _mark(axis: Axis, event: StoryEvent) -> Element:
    # In pieces, of which most stand in the list of events as well: packed once.
    words = (t_plus(event.t_plus_ms), " ", f"#{event.seq:,}", " ", event.who, ": ", event.what)
    x = _percent(axis.at(event.at_ns))
    dot = el(
        "circle", el("title", *words), cx=x, cy=str(_LOW // 2), r="3.5", class_=f"k-{event.kind}"
    )
    return el("a", dot, href=anchor(event.seq), part=True)


def _cuts(axis: Axis, height: int) -> Iterator[Element]:
    for start, end in axis.cuts():
        left, right = axis.at(start), axis.at(end)
        title = f"cut short: {duration((end - start) // _MS)}"
        yield _rect("cut", left, right - left, 0, height, title)


def _rect(kind: str, x: float, width: float, y: int, height: int, *title: str) -> Element:
    return el(
        "rect",
        el("title", *title),
        x=_percent(x),
        width=_percent(width),
        y=str(y),
        height=str(height),
        class_=kind,
        part=True,
    )


def _svg(height: int, *content: Element, label: str | None = None) -> Element:
    return el("svg", *content, width="100%", height=str(height), role="img", aria_label=label)


def _percent(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0") + "%"
