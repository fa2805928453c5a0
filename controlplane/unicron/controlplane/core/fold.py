"""fold(state, recorded) -> state: the only way the state ever changes.

Rules: events come in stream order without a hole; the fold is total, so no event that can be
read raises (an impossible transition leaves the state alone and is counted as void); a fact is
folded once, whatever the log repeats; a decision that no longer applies is void, and is decided
again from the state as it then is.
"""

import hashlib
from collections.abc import Callable
from typing import assert_never

import msgspec

from unicron.controlplane.core import fold_decision as dec
from unicron.controlplane.core import fold_fleet as fleet
from unicron.controlplane.core import fold_task as tasks
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import put, replace, with_node
from unicron.controlplane.core.state import ClusterState, SourceState
from unicron.controlplane.core.tables import IllegalTransition
from unicron import events as ev
from unicron.events import Envelope, Recorded, Sequence, Source

_encoder = msgspec.json.Encoder(order="deterministic")


def digest(state: ClusterState) -> str:
    """sha256 (hex) of the state's canonical bytes."""
    return hashlib.sha256(_encoder.encode(state)).hexdigest()


class OutOfOrder(Exception):
    """An event that isn't the next of the stream was given to the fold. A bug of the reader."""


def fold(state: ClusterState, recorded: Recorded) -> ClusterState:
    """The state after this entry of the log.

    Raises:
        OutOfOrder: the entry's sequence isn't the state's plus one.
    """
    if recorded.seq != state.seq + 1:
        raise OutOfOrder(f"folded up to {state.seq}, then given {recorded.seq}")
    envelope = recorded.envelope
    if envelope is None:
        decision = ".control." in recorded.subject
        state = replace(
            state,
            seq=recorded.seq,
            unknown=state.unknown + 1,
            unknown_decisions=state.unknown_decisions + (1 if decision else 0),
        )
        return state
    heard = _hear(state, envelope.source)
    if heard is None:
        return replace(state, seq=recorded.seq, duplicates=state.duplicates + 1)
    state = replace(heard, seq=recorded.seq)
    try:
        if isinstance(envelope.body, ev.Decision):
            after = _decision(state, recorded.seq, envelope)
            return after if after is not None else replace(state, void=state.void + 1)
        return _fact(state, recorded.seq, envelope)
    except IllegalTransition:
        return replace(state, void=state.void + 1)


def _hear(state: ClusterState, source: Source) -> ClusterState | None:
    """The state with the source's counter advanced; None for a duplicate or an earlier life."""
    if source.counter == 0:  # the server's own reports aren't numbered
        return state
    known = state.sources.get(source.who)
    gaps = state.gaps
    if known is None or known.incarnation != source.incarnation:
        if known is not None and source.incarnation in known.past:
            return None
        past = (*known.past, known.incarnation) if known is not None else ()
        past = past[-limits.PAST_INCARNATIONS_MAX :]
        gaps += source.counter > 1
    else:
        if source.counter <= known.counter:
            return None
        past = known.past
        gaps += source.counter > known.counter + 1
    new = SourceState(incarnation=source.incarnation, counter=source.counter, past=past)
    return replace(state, sources=put(state.sources, source.who, new), gaps=gaps)


def _fact(state: ClusterState, at: Sequence, envelope: Envelope) -> ClusterState:
    body = envelope.body
    match body:
        case ev.AgentStarted():
            state = fleet.agent_started(state, at, body, envelope.source.incarnation)
        case ev.AgentStopped():
            state = fleet.agent_stopped(state, at, body)
        case ev.StoreBound():
            state = fleet.store_bound(state, at, body)
        case ev.ConnectionOpened() | ev.ConnectionClosed():
            state = fleet.connection(state, body)
        case _:
            state = _worker_fact(state, at, envelope)
    return _mark_fact(state, at, envelope.source)


def _mark_fact(state: ClusterState, at: Sequence, source: Source) -> ClusterState:
    """The newest fact of a node's agent, against which opinions about the node are judged."""
    kind, _, name = source.who.partition("/")
    node = state.nodes.get(name) if kind == "agent" else None
    if node is None or node.incarnation != source.incarnation:
        return state
    return with_node(state, replace(node, last_fact=at))


def _worker_fact(state: ClusterState, at: Sequence, envelope: Envelope) -> ClusterState:
    body = envelope.body
    assert not isinstance(body, ev.Decision)
    worker = fleet.known(state, getattr(body, "worker"), getattr(body, "incarnation"))
    if worker is None:
        return state
    match body:
        case ev.WorkerStarted():
            return fleet.started(state, body, worker)
        case ev.WorkerStartFailed():
            return fleet.start_failed(state, at, body, worker)
        case ev.WorkerPrepared():
            return fleet.prepared(state, at, body, worker)
        case ev.WorkerExited():
            return fleet.exited(state, at, body, worker)
        case ev.PeerErrorReported():
            return fleet.peer_error(state, at, body, worker)
        case ev.ExceptionReported():
            return fleet.exception(state, at, body, worker)
        case ev.MemberQuiesced():
            return tasks.quiesced(state, at, body, worker)
        case ev.MemberReady():
            return tasks.ready(state, at, body, worker)
        case ev.MemberCommitted():
            return tasks.committed(state, body, worker)
        case ev.MemberFinished():
            return tasks.finished(state, body, worker)
        case _:
            raise AssertionError(f"{type(body).__name__} is no fact about a worker")


def _decision(state: ClusterState, at: Sequence, envelope: Envelope) -> ClusterState | None:
    body = envelope.body
    if isinstance(body, ev.LeadershipTaken):
        return dec.leadership(state, at, body)
    if envelope.term != state.term:
        return None  # written under another leadership
    if isinstance(body, ev.WorkerStartOrdered | ev.WorkerStopOrdered | ev.DeadlinePassed):
        return _order(state, at, body)
    assert isinstance(body, ev.Decision)
    handler = _HANDLERS.get(type(body))
    return handler(state, at, body) if handler is not None else state


def _order(
    state: ClusterState,
    at: Sequence,
    body: ev.WorkerStartOrdered | ev.WorkerStopOrdered | ev.DeadlinePassed,
) -> ClusterState | None:
    match body:
        case ev.WorkerStartOrdered():
            old = state.workers.get(body.worker)
            newer = old is None or body.incarnation > old.incarnation
            return fleet.start_ordered(state, at, body) if newer else None
        case ev.WorkerStopOrdered():
            worker = fleet.known(state, body.worker, body.incarnation)
            return fleet.stop_ordered(state, at, body) if worker is not None else None
        case ev.DeadlinePassed():
            return fleet.deadline(state, at, body.key)
        case _:
            assert_never(body)


def _node_lost(state: ClusterState, at: Sequence, body: ev.NodeLost) -> ClusterState | None:
    node = state.nodes.get(body.node)
    if node is None or node.incarnation != body.incarnation:
        return None
    return fleet.node_lost(state, at, body)


#: Decision type -> fold step. A test holds this table, `_order` and the union equal.
_HANDLERS: dict[type, Callable[..., ClusterState | None]] = {
    ev.TaskSubmitted: tasks.submitted,
    ev.TaskCompleted: tasks.completed,
    ev.TaskFailed: tasks.failed,
    ev.GenerationClosed: tasks.generation_closed,
    ev.TransitionOrdered: tasks.transition_ordered,
    ev.TransitionCompleted: tasks.transition_completed,
    ev.NodeSuspected: dec.suspected,
    ev.NodeRecovered: dec.recovered,
    ev.NodeLost: _node_lost,
    ev.NodeIsolated: dec.isolated,
    ev.NodeAdmitted: dec.admitted,
    ev.NodeReturned: dec.returned,
    ev.IncidentOpened: dec.opened,
    ev.IncidentEscalated: dec.escalated,
    ev.IncidentResolved: dec.resolved,
    ev.PlanRequested: dec.plan_requested,
    ev.PlanSolved: dec.plan_solved,
    ev.PlanDecided: dec.plan_decided,
    ev.PlanDropped: dec.plan_dropped,
}
