"""One entry of the log as it was read: where it stands, its raw bytes, and what they say."""

from typing import TypeAlias

import msgspec

from unicron.events.envelope import Envelope, Source
from unicron.events.ids import Sequence


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A well-formed envelope around an event type this version doesn't know.

    It is kept and raised as an alarm, never dropped. Under the control subjects it is a decision:
    an instance that met one must not lead.
    """

    id: str
    tag: str
    source: Source | None = None


class UndecodableEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes that are no envelope, or an event with a wrong field. `reason` names the place."""

    id: str
    reason: str


#: What the bytes of one entry turned out to be.
Entry: TypeAlias = Envelope | UnknownEvent | UndecodableEvent


class Recorded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of a log; a live stream and a history file give equal values.

    `data` are the raw bytes, which chain and digests are computed from. `at_ns`: when the stream
    stored it, nanoseconds since 1970 on the server's clock; for people only.
    """

    seq: Sequence
    subject: str
    data: bytes
    at_ns: int
    entry: Entry

    @property
    def envelope(self) -> Envelope | None:
        """The envelope, or None if the entry is unknown or undecodable."""
        return self.entry if isinstance(self.entry, Envelope) else None

    @property
    def id(self) -> str:
        """Message id of the entry; derived from its bytes when they hold none."""
        return self.entry.id
