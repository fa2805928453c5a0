"""The base of all events and what events are made of.

Rules that hold for every event type (see docs/events.md): frozen; named in the past tense; a
wire tag with a version; integers with their unit in the name; no floats, no sets; new fields
get defaults; a field never changes its meaning, a new tag is made instead.
"""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    """Base of everything that can stand in the log. `frozen=True` is repeated on subclasses."""


class Fact(Event, frozen=True, kw_only=True):
    """What an agent or a shim observed or did. Numbered per source."""


class Decision(Event, frozen=True, kw_only=True):
    """What the control plane decided. Written by the leader only, under the fence."""


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A value inside an event."""
