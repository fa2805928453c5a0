"""One entry of a log as a reader sees it: when, who, what, because of what, and its fields."""

from typing import Any

import msgspec

from unicron.controlplane.replay.phrases import kind, one_line, phrase
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.story import StoryEvent
from unicron.events import Recorded, Sequence, Source, UndecodableEvent, UnknownEvent, subjects

_MS = 1_000_000


def told(reading: Reading, recorded: Recorded, start_ns: int) -> StoryEvent:
    """The entry in words; `t_plus_ms` counts from `start_ns`."""
    common: dict[str, Any] = {
        "seq": recorded.seq,
        "at_ns": recorded.at_ns,
        "t_plus_ms": (recorded.at_ns - start_ns) // _MS,
    }
    envelope = recorded.envelope
    if envelope is None:
        return _unread(recorded, common)
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(envelope.body))
    fields.pop("type", None)
    note = reading.notes.get(recorded.seq, "")
    return StoryEvent(
        **common,
        kind=kind(envelope.body),
        who=who(envelope.source),
        type=type_of(recorded),
        what=phrase(envelope.body) + (f" ({note})" if note else ""),
        cause=envelope.cause,
        because=reading.links[recorded.seq - 1],
        void=recorded.seq in reading.void,
        term=Sequence(envelope.term),
        fields=fields,
    )


def _unread(recorded: Recorded, common: dict[str, Any]) -> StoryEvent:
    entry = recorded.entry
    source = getattr(entry, "source", None)
    if isinstance(entry, UnknownEvent):
        what = f"an event of type {entry.tag}, which this version doesn't know"
    else:
        reason = entry.reason if isinstance(entry, UndecodableEvent) else ""
        what = f"an entry that can't be read: {reason}"
    decision = subjects.tree_of(recorded.subject) == "control"
    return StoryEvent(
        **common,
        kind="decided" if decision else "observed",
        who=who(source) if isinstance(source, Source) else "?",
        type=type_of(recorded),
        what=one_line(what),
        cause=(),
        because=(),
        void=False,
        term=Sequence(0),
        fields={"data": recorded.data.decode("utf-8", "backslashreplace")},
    )


def type_of(recorded: Recorded) -> str:
    """Its tag; ``unreadable`` if it has none."""
    if recorded.envelope is not None:
        return str(recorded.envelope.body.__struct_config__.tag)
    entry = recorded.entry
    return one_line(entry.tag) if isinstance(entry, UnknownEvent) else "unreadable"


def who(source: Source) -> str:
    """``agent/n1``; a server of the log, whose name is 56 letters, by its first eight."""
    kind_, _, name = one_line(source.who).partition("/")
    return f"{kind_}/{name[:8] if kind_ == 'server' else name}" if name else kind_
