"""One incident with all that its trace is made of, from a whole log or from its newest part."""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from collections.abc import Set as AbstractSet

import msgspec

from unicron.controlplane.core.state import IncidentState
from unicron.controlplane.replay.belonging import events_of
from unicron.controlplane.replay.folding import Folding
from unicron.controlplane.replay.recovery import recovery_of
from unicron.controlplane.replay.steps import IncidentSteps
from unicron.events import Recorded, Sequence


class CaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """`events`: those that belong to the incident, without repetitions; those in `void` never took
    effect. `until_ns`: when the last entry was stored that was read, which is where an open
    incident's steps end for now."""

    incident: IncidentState
    events: tuple[Recorded, ...]
    steps: IncidentSteps
    void: frozenset[Sequence]
    until_ns: int


def case_of(
    log: SequenceOf[Recorded],
    incident: IncidentState,
    named: SequenceOf[Recorded],
    *,
    void: AbstractSet[Sequence],
    twice: AbstractSet[Sequence],
) -> CaseFile:
    """The case of one incident. `log` is indexed by sequence less one; `named` are the decisions
    that name the incident, `void` and `twice` the sequences of decisions without effect and of
    events that were heard before."""
    mine = tuple(r for r in events_of(log, incident, named) if r.seq not in twice)
    steps = recovery_of(log, incident, mine, void)
    lasted = log[mine[0].seq - 1 : incident.resolved or len(log)]
    return CaseFile(
        incident=incident,
        events=mine,
        steps=steps,
        void=frozenset(r.seq for r in mine if r.seq in void),
        until_ns=max(r.at_ns for r in lasted),
    )


def cases_of(log: SequenceOf[Recorded], wanted: Iterable[str] | None = None) -> Iterator[CaseFile]:
    """Cases of a whole log, oldest first; with `wanted` only those with these ids.

    Raises:
        LogBroken: the entries aren't #1, #2, … without a hole.
        ReplayDivergence: the fold can't take an entry.
    """
    folding = Folding()
    state = folding.run(log)
    void, twice = frozenset(folding.void), frozenset(folding.duplicates)
    named: dict[str, list[Recorded]] = {}
    for recorded in log:
        if recorded.envelope is not None and recorded.envelope.incident is not None:
            named.setdefault(recorded.envelope.incident, []).append(recorded)
    ids = None if wanted is None else frozenset(wanted)
    for incident in sorted(state.incidents.values(), key=lambda i: (i.opened, i.incident)):
        if ids is None or incident.incident in ids:
            names = named.get(incident.incident, [])
            yield case_of(log, incident, names, void=void, twice=twice)
