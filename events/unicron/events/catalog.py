"""The catalogue of event types, read from the types themselves.

``python -m unicron.events.catalog > docs/events.md`` writes the page; a test keeps it current.
"""

import sys
import types
from functools import cache
from typing import Any, Union, get_args, get_origin

import msgspec

from unicron.events import upcast
from unicron.events.base import Event, Fact, Part
from unicron.events.beat import Beat, WorkerBeat
from unicron.events.envelope import Basis, Envelope, Source
from unicron.events.union import AnyEvent


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field: its type as a person writes it, its default as JSON or "" if it has none."""

    name: str
    type: str
    default: str


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """One event type. `kind` is ``fact`` or ``decision``; `topic` the module that defines it."""

    name: str
    tag: str
    kind: str
    topic: str
    doc: str
    fields: tuple[Field, ...]


@cache
def catalogue() -> tuple[EventType, ...]:
    """All event types, grouped by topic, in the order of the union."""
    members: tuple[type[Event], ...] = get_args(AnyEvent)
    topics = list(dict.fromkeys(member.__module__ for member in members))
    return tuple(_describe(m) for topic in topics for m in members if m.__module__ == topic)


def _describe(event: type[Event]) -> EventType:
    return EventType(
        name=event.__name__,
        tag=str(event.__struct_config__.tag),
        kind="fact" if issubclass(event, Fact) else "decision",
        topic=event.__module__.rpartition(".")[2],
        doc=_doc(event),
        fields=_fields(event),
    )


def _doc(documented: object) -> str:
    """The docstring with each paragraph on one line."""
    paragraphs = (documented.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _fields(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    return tuple(
        Field(
            name=field.encode_name,
            type=_type_name(field.type),
            default="" if field.required else msgspec.json.encode(field.default).decode(),
        )
        for field in msgspec.structs.fields(struct)
    )


def _type_name(annotation: Any) -> str:
    """``TaskId | null``, ``[Allocation, …]``, ``int``: how the type looks to a reader of JSON."""
    if annotation is types.NoneType:
        return "null"
    if annotation is Ellipsis:
        return "…"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType}:
        if annotation == AnyEvent:
            return "event"
        return " | ".join(_type_name(argument) for argument in arguments)
    if origin is tuple:
        return f"[{', '.join(_type_name(argument) for argument in arguments)}]"
    return str(annotation.__name__)


def parts() -> tuple[type[Part], ...]:
    """The values that stand inside events, in the order in which they first appear."""
    found: dict[type[Part], None] = {}

    def visit(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, Part):
            for field in msgspec.structs.fields(annotation):
                visit(field.type)
            found[annotation] = None
        for argument in get_args(annotation):
            visit(argument)

    for event in get_args(AnyEvent):
        for field in msgspec.structs.fields(event):
            visit(field.type)
    return tuple(found)


_INTRODUCTION = """\
# Events

Everything that can stand in the log. This page is written by `python -m unicron.events.catalog`;
change the types in `events/unicron/events/`, not the page.

On the wire an event is one JSON object in canonical form (nothing is left out): the envelope, with
the event as its `body`; `body.type` is the tag. The sequence isn't inside: it is the stream's. A
**fact** reports what was observed or done, its writer is an agent or a shim; a
**decision** is the control plane's, written by the leader only.

Rules for changing event types:

- A field never changes its meaning and is never removed. A new field gets a default; readers of an
  older version ignore it.
- Anything else is a new tag (`node.lost.v2`), with a pure function from the retired one
  (`unicron.events.upcast`). Nothing of the kind is ever taken back: logs are folded years later.
- An unknown tag is kept and raises an alarm; whoever met an unknown decision doesn't lead.
- Integers carry their unit (`_ms`, `_ns`, `_bytes`, `_ppm`); there are no floats, no sets, no maps.

How to add, change or retire one, step by step: `events/README.md`.
"""


def render_markdown() -> str:
    """The page docs/events.md."""
    events = catalogue()
    lines = [_INTRODUCTION, "## All types", "", "| type | tag | kind |", "|---|---|---|"]
    lines += [f"| [{e.name}](#{e.name.lower()}) | `{e.tag}` | {e.kind} |" for e in events]
    lines += ["", "## Retired tags", "", *_retired(), "", "## Envelope", ""]
    for struct in (Envelope, Source, Basis):
        lines += _section(struct.__name__, _doc(struct), _fields(struct))
    topic = ""
    for event in events:
        if event.topic != topic:
            topic = event.topic
            lines += [f"## {topic.capitalize()}", "", _doc(sys.modules[_module(topic)]), ""]
        about = f"`{event.tag}`, {event.kind}. {event.doc}"
        lines += _section(event.name, about, event.fields)
    lines += ["## Values inside events", ""]
    for part in parts():
        lines += _section(part.__name__, _doc(part), _fields(part))
    lines += ["## Beside the log", "", _doc(sys.modules[Beat.__module__]), ""]
    for beside in (Beat, WorkerBeat):
        lines += _section(beside.__name__, _doc(beside), _fields(beside))
    return "\n".join(lines).rstrip() + "\n"


def _retired() -> list[str]:
    tags = [f"- `{tag}`: {upcast.CURRENT.about(tag)}" for tag in upcast.CURRENT.tags]
    return ["Read for ever; each is brought up to date when it is read.", "", *tags]


def _module(topic: str) -> str:
    return f"{__package__}.{topic}"


def _section(name: str, about: str, fields: tuple[Field, ...]) -> list[str]:
    lines = [f"### {name}", "", about, "", "| field | type | default |", "|---|---|---|"]
    for field in fields:
        type_name = field.type.replace("|", "\\|")
        default = f"`{field.default}`" if field.default else ""
        lines.append(f"| `{field.name}` | {type_name} | {default} |")
    return [*lines, ""]


if __name__ == "__main__":
    sys.stdout.write(render_markdown())
