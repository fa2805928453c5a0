"""What spoke for an incident, and where it contradicted."""

from collections.abc import Sequence as SequenceOf

from unicron import events as ev
from unicron.controlplane.core.state import IncidentState
from unicron.controlplane.replay.entries import told
from unicron.controlplane.replay.phrases import names, one_line
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.story import Evidence
from unicron.controlplane.replay.tracing import foreboding
from unicron.events import NodeId, Recorded

CAUSE, SYMPTOM, SUSPICION = "cause", "symptom", "suspicion"

_REPORTED = (
    ev.PeerErrorReported
    | ev.ExceptionReported
    | ev.StoreBound
    | ev.NodeSuspected
    | ev.NodeLost
    | ev.TaskStalled
)


def evidence_of(
    reading: Reading, known: IncidentState, mine: SequenceOf[Recorded]
) -> tuple[Evidence, ...]:
    """All that was seen of it, in the order of the log. `mine`: events that belong to it."""
    seen = set(known.evidence)
    for seq in known.evidence:
        seen.update(foreboding(reading.log, seq))
    seen |= {r.seq for r in mine if isinstance(reading.body(r.seq), _REPORTED)}
    start = mine[0].at_ns
    lines = []
    for seq in sorted(seen - reading.twice):
        event = told(reading, reading.log[seq - 1], start)
        lines.append(
            Evidence(
                seq=event.seq,
                t_plus_ms=event.t_plus_ms,
                weight=weight_of(reading.body(seq)),
                who=event.who,
                what=event.what,
            )
        )
    return tuple(lines)


def weight_of(body: ev.AnyEvent | None) -> str:
    """What the event says about a failure: ``cause``, ``symptom`` or ``suspicion``."""
    match body:
        case ev.PeerErrorReported() | ev.TaskStalled(behind=()):
            return SYMPTOM
        case ev.ConnectionClosed() | ev.NodeSuspected() | ev.DeadlinePassed():
            return SUSPICION
        case _:
            return CAUSE


def disagreements_of(
    reading: Reading, known: IncidentState, mine: SequenceOf[Recorded]
) -> tuple[str, ...]:
    """Where what was seen did not fit together, and what was made of it."""
    lines: list[str] = []
    severity = 0
    for recorded in mine:
        seq, body = recorded.seq, reading.body(recorded.seq)
        if seq in reading.void:
            continue
        match body:
            case ev.IncidentOpened(incident=incident) if incident == known.incident:
                severity = body.severity
            case ev.IncidentEscalated(incident=incident) if incident == known.incident:
                lines.append(
                    f"taken for SEV{severity} at first; #{seq} raised it to SEV{body.severity}: "
                    f"{body.reason}"
                )
                severity = body.severity
            case ev.NodeRecovered():
                lines.append(f"{body.node} was suspected and heard again with #{seq}")
            case ev.NodeLost() if seq in reading.notes:
                lines.append(f"when #{seq} gave {body.node} up, {reading.notes[seq]}")
            case ev.StoreBound(node=node):
                lines.append(_store(reading, known, mine, seq, node))
            case _:
                pass
    return tuple(one_line(line) for line in [*_symptoms(reading, known, mine), *lines])


def _store(
    reading: Reading, known: IncidentState, mine: SequenceOf[Recorded], back: int, node: NodeId
) -> str:
    """A store that died, and the generations that could not be formed on it."""
    formed = [
        body.generation
        for r in mine
        if r.seq < back and isinstance(body := reading.body(r.seq), ev.TransitionOrdered)
    ]
    broken = [str(g) for g in formed if known.task and reading.stores.get((known.task, g)) == node]
    text = f"the store of {node} had died and was back with #{back}"
    return f"{text}; generations formed on it before that: {', '.join(broken)}" if broken else text


def _symptoms(reading: Reading, known: IncidentState, mine: SequenceOf[Recorded]) -> list[str]:
    """Who reported a lost peer, though the failure was another's."""
    bodies = [reading.body(r.seq) for r in mine]
    peers = sorted(
        {
            body.worker
            for body in bodies
            if isinstance(body, ev.PeerErrorReported) and body.worker != known.worker
        }
    )
    if not peers or known.severity == 3:
        return []
    whose = known.worker or known.node or "somebody else"
    return [
        f"{names(tuple(peers))} reported a lost peer: a symptom, the failure was that of {whose}"
    ]
