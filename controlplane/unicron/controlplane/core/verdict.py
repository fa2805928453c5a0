"""What a rule of decide() answers."""

from dataclasses import dataclass

from unicron.events import AnyDecision, IncidentId, Sequence

#: Version of decide(): grows when the same state gives another decision. Written into every
#: decision; `verify` re-decides only for the version it implements.
LOGIC_VERSION = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The next decision, the sequences that led to it, and the incident it belongs to."""

    body: AnyDecision
    cause: tuple[Sequence, ...] = ()
    incident: IncidentId | None = None
