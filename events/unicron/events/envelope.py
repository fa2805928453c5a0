"""The envelope around every event we write: who, why, when, and the event itself."""

import msgspec

from unicron.events.ids import Incarnation, IncidentId, Sequence, Term
from unicron.events.union import AnyEvent


class Source(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who wrote the event.

    `who` is ``agent/<node>``, ``worker/<worker>``, ``control/<instance>`` or ``operator/<name>``.
    `counter` counts the events of one (who, incarnation) from 1 without a gap, so the fold needs
    one integer per source to drop duplicates and to notice a missing event.
    """

    who: str
    incarnation: Incarnation
    counter: int


class Basis(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a decision was decided on; present on decisions, absent on facts.

    `decided_at`: the last sequence folded. `chain`: running hash (hex) of all raw events up to
    it. `state_digest`: sha256 (hex) of the state there. `logic_version`: which decide() it was.
    """

    decided_at: Sequence
    chain: str
    state_digest: str
    logic_version: int


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of the log. Its sequence is the stream's and isn't written inside.

    `id` is also the server's message id: a retry carries the same one. `cause` names the
    sequences that led to this event. `written_at_ns` is the writer's wall clock, for people
    only: nothing is ever computed from it. `term` is 0 on facts.
    """

    id: str
    source: Source
    written_at_ns: int
    body: AnyEvent
    term: Term = Term(0)
    cause: tuple[Sequence, ...] = ()
    incident: IncidentId | None = None
    traceparent: str | None = None
    basis: Basis | None = None


def event_id(source: Source) -> str:
    """Message id of the event with this source: ``who:incarnation:counter``."""
    return f"{source.who}:{source.incarnation}:{source.counter}"
