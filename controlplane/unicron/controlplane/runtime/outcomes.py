"""The three ends that an append can come to; there is no fourth, and no exception for them."""

from typing import TypeAlias

import msgspec

from unicron.events import Sequence


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The event stands in the log at `seq`.

    `duplicate`: it (its id) stood there already, from an earlier try. The log's copy counts then,
    whatever we meant to write: read it with EventLog.get(seq).
    """

    seq: Sequence
    duplicate: bool = False


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """The fence held: the event isn't in the log and won't be, because another stands after the
    expected sequence. `last_seq`: the last sequence of the control tree now."""

    last_seq: Sequence


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody can say whether the event was stored. Resolve it with EventLog.resolve(), or append
    it again under the same id. `reason` is for people."""

    reason: str


Outcome: TypeAlias = Accepted | Conflict | Unknown
