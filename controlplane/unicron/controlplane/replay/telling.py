"""Puts the story of one incident together."""

from collections.abc import Sequence as SequenceOf

from unicron import events as ev
from unicron.controlplane.core.state import IncidentState
from unicron.controlplane.replay.choices import choices_of
from unicron.controlplane.replay.entries import told
from unicron.controlplane.replay.evidence import disagreements_of, evidence_of
from unicron.controlplane.replay.headline import headline_of
from unicron.controlplane.replay.passages import curves_of, passages_of
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.recovery import recovery_of
from unicron.controlplane.replay.replayer import ReplayReport
from unicron.controlplane.replay.standing import commands_of, standing_of
from unicron.controlplane.replay.story import GivenOrder, IncidentStory, OrderAnswer, StoryEvent
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.controlplane.replay.trust import trust_of
from unicron.events import Recorded, Sequence

#: What somebody else than the control plane carries out.
_ORDERS = (
    ev.WorkerStartOrdered
    | ev.WorkerStopOrdered
    | ev.GenerationClosed
    | ev.TransitionOrdered
    | ev.PlanRequested
)


def story_of(
    reading: Reading,
    known: IncidentState,
    mine: SequenceOf[Recorded],
    incident: IncidentSummary,
    report: ReplayReport | None,
) -> IncidentStory:
    """`mine`: the events that belong to the incident; `report`: of a verification of the log."""
    start = mine[0].at_ns
    events = tuple(told(reading, recorded, start) for recorded in mine)
    tasks = passages_of(reading, incident)
    plans = choices_of(reading, mine, start)
    return IncidentStory(
        incident=incident,
        headline=headline_of(incident, tasks, plans),
        tasks=tasks,
        steps=recovery_of(reading.log, known, mine, reading.void),
        throughput=curves_of(reading, incident),
        evidence=evidence_of(reading, known, mine),
        disagreements=disagreements_of(reading, known, mine),
        plans=plans,
        orders=_orders(reading, events),
        trust=trust_of(reading, report, incident.first_evidence_seq, incident.last_seq),
        now=standing_of(reading, incident),
        commands=commands_of(reading, incident),
        events=events,
    )


def _orders(reading: Reading, events: SequenceOf[StoryEvent]) -> tuple[GivenOrder, ...]:
    """Orders, each with what was done about it: the facts and answers that it led to."""
    answers: dict[Sequence, list[OrderAnswer]] = {
        e.seq: [] for e in events if isinstance(reading.body(e.seq), _ORDERS)
    }
    for event in events:
        if event.kind == "decided":
            continue
        for cause in event.because:
            if cause in answers:
                answers[cause].append(
                    OrderAnswer(
                        seq=event.seq, t_plus_ms=event.t_plus_ms, who=event.who, what=event.what
                    )
                )
    return tuple(
        GivenOrder(
            seq=e.seq,
            t_plus_ms=e.t_plus_ms,
            type=e.type,
            what=e.what,
            because=e.because,
            void=e.void,
            answers=tuple(answers[e.seq]),
        )
        for e in events
        if e.seq in answers
    )
