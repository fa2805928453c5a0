"""Entries of the log that this version can't read: an alarm for each kind, never a crash.

A fact of a type that only a newer version knows changes nothing here and is told once. A decision
of such a type may have changed anything: who met one knows no longer what was decided, and must
not lead.
"""

import logging

from unicron.controlplane.core.snapshot import UnreadSoFar
from unicron.events import (
    AlarmRaised,
    Envelope,
    LogError,
    Recorded,
    Sequence,
    UnknownEvent,
    subjects,
)

log = logging.getLogger(__name__)

#: Of a type or subject, in what is said of it: others choose how long they are.
_SHOWN = 100
#: Told of one log: each is a decision of its own.
_KINDS = 100


class NewerLog(LogError):
    """The log holds decisions of a newer version."""

    default_code = "E-LOG-NEWER"


class Unread:
    """What one instance couldn't read so far."""

    def __init__(self) -> None:
        self._decision: tuple[Sequence, str] | None = None  # the first one of an unknown type
        self._first: dict[str, str] = {}  # kind of entry -> what is to be said of its first
        self._said: dict[str, None] = {}

    def taken(self, recorded: Recorded) -> None:
        """An entry was folded."""
        entry = recorded.entry
        if isinstance(entry, Envelope):
            if isinstance(entry.body, AlarmRaised):
                self._said[entry.body.message] = None
            return
        tree = subjects.tree_of(recorded.subject)
        if tree == "advisory":
            return  # the server reports many things that we don't ask for
        kind, what = f"bytes under {recorded.subject}"[:_SHOWN], "is no event"
        if isinstance(entry, UnknownEvent):
            kind = entry.tag[:_SHOWN]
            what = f"has the type {kind}, which this version doesn't know"
            if tree == "control":
                self._decision = self._decision or (recorded.seq, kind)
        if kind not in self._first and len(self._first) < _KINDS:
            last = ". No further kinds are told" if len(self._first) == _KINDS - 1 else ""
            self._first[kind] = f"#{recorded.seq} {what}: it changes nothing{last}"

    def so_far(self) -> UnreadSoFar:
        """What this has come to, for resume()."""
        said = tuple(message for message in self._first.values() if message in self._said)
        return UnreadSoFar(first=dict(self._first), said=said, decision=self._decision)

    def resume(self, known: UnreadSoFar) -> None:
        """Go on from there."""
        self._first = dict(known.first)
        self._said = dict.fromkeys(known.said)
        self._decision = known.decision

    def check(self) -> None:
        """NewerLog if a decision of a newer version stands in the log."""
        if self._decision is None:
            return
        seq, tag = self._decision
        raise NewerLog(
            f"#{seq} of the log is a decision of the type {tag}, which this version doesn't know",
            why="a newer version led this cluster; what it decided can't be folded here",
            fix="run the version that led, or a newer one",
        )

    def due(self) -> AlarmRaised | None:
        """The alarm to write next: one for each kind in a log, whoever leads."""
        for message in self._first.values():
            if message not in self._said:
                log.warning("%s", message)
                return AlarmRaised(code="E-EVENT-UNREAD", message=message)
        return None
