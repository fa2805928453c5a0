"""Everything: all events of an incident, each with its fields on demand."""

from collections.abc import Iterator
from typing import Any

import msgspec

from unicron.controlplane.replay.page.cells import Cell, Marks, badge, utc
from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.story import IncidentStory, StoryEvent
from unicron.controlplane.replay.units import count, duration


def entries(story: IncidentStory, marks: Marks) -> Iterator[Cell]:
    """In the order of the log."""
    yield el("p", f"{count(len(story.events), 'event')}; each opens.", class_="note")
    yield each("div", (_entry(event, marks) for event in story.events), class_="events")


def _entry(event: StoryEvent, marks: Marks) -> Element:
    void = badge("void: it no longer applied", "warn") if event.void else None
    line = el(
        "summary",
        el("span", duration(event.t_plus_ms), class_="n"),
        el("span", f"#{event.seq:,}", class_="n"),
        el("span", event.kind, class_=f"kind k-{event.kind}"),
        el("span", event.who),
        el("span", event.what, " ", void, class_="w"),
    )
    pairs = [
        ("type", event.type),
        *([("term", f"#{event.term:,}")] if event.term else []),
        *((name, written(value)) for name, value in event.fields.items()),
    ]
    at = (el("dt", "at"), el("dd", *utc(event.at_ns).partition(" "), " UTC"))
    fields = (item for name, text in pairs for item in (el("dt", name), el("dd", text)))
    because = (el("dt", "because"), el("dd", marks.all(event.because))) if event.because else ()
    return el("details", line, el("dl", *because, *at, *fields), id=f"e{event.seq}", part=True)


def written(value: Any) -> str:
    """A field as it stands in JSON; a text without its quotes."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
