"""The one layer between a log and whoever shows it: incidents in short, and their stories."""

from collections.abc import Sequence as SequenceOf

from unicron import events as ev
from unicron.controlplane.core.state import ClusterState, IncidentState
from unicron.controlplane.replay.belonging import events_of
from unicron.controlplane.replay.folding import Folding
from unicron.controlplane.replay.incidents import Incident, IncidentStory, Marks, StoryEvent
from unicron.controlplane.replay.phrases import kind, one_line, phrase
from unicron.controlplane.replay.recovery import recovery_of
from unicron.controlplane.replay.steps import IncidentSteps
from unicron.events import Generation, Recorded, Sequence, Source, TransitionOrdered

_MS = 1_000_000


class IncidentBook:
    """All incidents of a log, oldest first. `state` is the one after the last entry.

    Raises:
        LogBroken: the entries aren't #1, #2, … without a hole.
        ReplayDivergence: the fold can't take an entry.
    """

    def __init__(self, log: SequenceOf[Recorded]) -> None:
        self._log = log
        folding = Folding()
        self.state: ClusterState = folding.run(log)
        self._void = frozenset(folding.void)
        self._twice = frozenset(folding.duplicates)
        self._named: dict[str, list[Recorded]] = {}
        for recorded in log:
            if recorded.envelope is not None and recorded.envelope.incident is not None:
                self._named.setdefault(recorded.envelope.incident, []).append(recorded)
        in_order = sorted(self.state.incidents.values(), key=lambda i: (i.opened, i.incident))
        self._incidents = {i.incident: i for i in in_order}

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all incidents, oldest first."""
        return tuple(self._incidents)

    def incidents(self) -> tuple[Incident, ...]:
        """All incidents in short, oldest first."""
        return tuple(self.story(incident).incident for incident in self.ids)

    def story(self, incident: str) -> IncidentStory:
        """One incident, event by event. KeyError if there is none with this id."""
        known = self._incidents[ev.IncidentId(incident)]
        mine = self._mine(known)
        start = mine[0].at_ns
        return IncidentStory(
            incident=_in_short(known, mine, self._log),
            events=tuple(_told(r, start, void=r.seq in self._void) for r in mine),
        )

    def steps(self, incident: str) -> IncidentSteps:
        """What its recovery took, step by step. KeyError if there is none with this id."""
        known = self._incidents[ev.IncidentId(incident)]
        return recovery_of(self._log, known, self._mine(known), self._void)

    def _mine(self, known: IncidentState) -> tuple[Recorded, ...]:
        """The events that belong to it, without repetitions."""
        named = self._named.get(known.incident, [])
        return tuple(r for r in events_of(self._log, known, named) if r.seq not in self._twice)


def _told(recorded: Recorded, start_ns: int, *, void: bool) -> StoryEvent:
    envelope = recorded.envelope
    assert envelope is not None, "what can't be read belongs to no incident"
    return StoryEvent(
        seq=recorded.seq,
        at_ns=recorded.at_ns,
        t_plus_ms=(recorded.at_ns - start_ns) // _MS,
        kind=kind(envelope.body),
        who=_who(envelope.source),
        type=str(envelope.body.__struct_config__.tag),
        what=phrase(envelope.body),
        cause=envelope.cause,
        void=void,
    )


def _who(source: Source) -> str:
    """``agent/n1``; a server of the log, whose name is 56 letters, by its first eight."""
    kind_, _, name = one_line(source.who).partition("/")
    return f"{kind_}/{name[:8] if kind_ == 'server' else name}" if name else kind_


def _in_short(
    known: IncidentState, mine: tuple[Recorded, ...], log: SequenceOf[Recorded]
) -> Incident:
    first = mine[0]

    def since(seq: int | None) -> int | None:
        return (log[seq - 1].at_ns - first.at_ns) // _MS if seq else None

    resolved = known.resolved or None
    return Incident(
        id=known.incident,
        severity=known.severity,
        what=one_line(known.what),
        outcome=one_line(known.outcome),
        is_open=resolved is None,
        task=known.task,
        node=known.node,
        worker=known.worker,
        first_evidence_seq=first.seq,
        first_evidence_at_ns=first.at_ns,
        opened_seq=known.opened,
        resolved_seq=resolved,
        duration_ms=since(resolved),
        marks=Marks(
            detect_ms=since(known.opened),
            close_ms=since(_first(mine, ev.GenerationClosed)),
            order_ms=since((going := _training_again(mine))[0]),
            ready_ms=since(going[1]),
            commit_ms=since(going[2]),
            resolve_ms=since(resolved),
        ),
    )


def _first(mine: tuple[Recorded, ...], event: type[ev.Event]) -> Sequence | None:
    return next((r.seq for r in mine if r.envelope and isinstance(r.envelope.body, event)), None)


def _training_again(
    mine: tuple[Recorded, ...],
) -> tuple[Sequence | None, Sequence | None, Sequence | None]:
    """Order, last ready member and first commit of the first generation that committed; while
    none has, those of the newest generation as far as it got."""
    orders: dict[Generation, tuple[Sequence, TransitionOrdered]] = {}
    ready: dict[Generation, dict[str, Sequence]] = {}
    commits: dict[Generation, Sequence] = {}
    for recorded in mine:
        match recorded.envelope.body if recorded.envelope else None:
            case ev.TransitionOrdered() as body:
                orders[body.generation] = (recorded.seq, body)
            case ev.MemberReady(generation=generation, worker=worker):
                ready.setdefault(generation, {}).setdefault(worker, recorded.seq)
            case ev.MemberCommitted(generation=generation):
                commits.setdefault(generation, recorded.seq)
            case _:
                pass
    if not orders:
        return None, None, None
    generation = min((g for g in commits if g in orders), default=max(orders))
    seq, order = orders[generation]
    stood = ready.get(generation, {})
    complete = all(m.worker in stood for m in order.members)
    last = max(stood.values()) if complete and stood else None
    return seq, last, commits.get(generation)
