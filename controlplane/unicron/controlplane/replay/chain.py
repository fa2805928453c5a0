"""Why something is as it is: the chain of causes back to the first evidence."""

import msgspec

from unicron.controlplane.replay.story import NextCommand, StoryEvent
from unicron.events import IncidentId, Sequence


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the chain. `depth`: steps away from what was asked about, 0 for itself. Its
    `event.because` names the links it follows from; `root`: nothing in the log led to it."""

    depth: int
    root: bool
    event: StoryEvent


class OtherQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Something else about the same id that one may ask about."""

    seq: Sequence
    what: str


class CauseChain(msgspec.Struct, frozen=True, kw_only=True):
    """`asked`: as it was asked. `seq`: the event that it comes down to. `answer`: in a sentence or
    two. `links`: newest first, beginning with `seq`; `left_out`: further causes that aren't told.
    `t_plus_ms` of the events counts from the oldest link."""

    asked: str
    kind: str
    seq: Sequence
    incident: IncidentId | None
    answer: tuple[str, ...]
    links: tuple[ChainLink, ...]
    left_out: int
    others: tuple[OtherQuestion, ...]
    commands: tuple[NextCommand, ...]
