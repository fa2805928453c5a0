"""fold(state, recorded) -> state: the only way the state ever changes.

Rules: events come in stream order without a hole; the fold is total, so no event that can be
read raises (an impossible transition leaves the state alone and is counted as void); a fact is
folded once, whatever the log repeats; a decision that no longer applies is void, and is decided
again from the state as it then is.
"""

from collections.abc import Callable
from typing import TypeAlias

from unicron import events as ev
from unicron.controlplane.core import configuration, fold_limit, limits
from unicron.controlplane.core import fold_decision as dec
from unicron.controlplane.core import fold_node as nodes
from unicron.controlplane.core import fold_opinion as opinion
from unicron.controlplane.core import fold_task as tasks
from unicron.controlplane.core import fold_worker as workers
from unicron.controlplane.core.change import put, replace, with_node
from unicron.controlplane.core.state import ClusterState, SourceState
from unicron.controlplane.core.tables import IllegalTransition
from unicron.events import Envelope, Recorded, Sequence, Source, subjects

WorkerFact: TypeAlias = (
    ev.WorkerStarted
    | ev.WorkerStartFailed
    | ev.WorkerPrepared
    | ev.WorkerExited
    | ev.PeerErrorReported
    | ev.ExceptionReported
    | ev.MemberQuiesced
    | ev.MemberReady
    | ev.MemberCommitted
    | ev.MemberFinished
)


class OutOfOrder(Exception):
    """An event that isn't the next of the stream was given to the fold. A bug of the reader."""


def fold(state: ClusterState, recorded: Recorded) -> ClusterState:
    """The state after this entry of the log.

    Raises:
        OutOfOrder: the entry's sequence isn't the state's plus one.
    """
    if recorded.seq != state.seq + 1:
        raise OutOfOrder(f"folded up to {state.seq}, then given {recorded.seq}")
    envelope = recorded.entry
    control = subjects.tree_of(recorded.subject) == "control"
    if not isinstance(envelope, Envelope):
        return _unread(state, recorded, control=control)
    body = envelope.body
    if isinstance(body, ev.Decision) != control:
        # A node may write under its own subject only: there, nothing is a decision.
        return replace(state, seq=recorded.seq, void=state.void + 1)
    heard = _hear(state, recorded.seq, envelope.source)
    if heard is None:
        return replace(state, seq=recorded.seq, duplicates=state.duplicates + 1)
    state = heard
    try:
        if not isinstance(body, ev.Decision):
            return _fact(state, recorded.seq, envelope.source, body)
        after = _decision(state, recorded.seq, envelope)
        return after if after is not None else replace(state, void=state.void + 1)
    except IllegalTransition:
        return replace(state, void=state.void + 1)


def _unread(state: ClusterState, recorded: Recorded, *, control: bool) -> ClusterState:
    """What can't be read changes nothing. An event of a type that only a newer version knows has
    its place among those of its source all the same: what follows it is no gap."""
    heard: ClusterState | None = state
    entry = recorded.entry
    source = entry.source if isinstance(entry, ev.UnknownEvent) else None
    if source is not None and source.who.startswith("control/") == control:
        heard = _hear(state, recorded.seq, source)
    if heard is None:
        return replace(state, seq=recorded.seq, duplicates=state.duplicates + 1)
    return replace(
        heard,
        seq=recorded.seq,
        unknown=state.unknown + 1,
        unknown_decisions=state.unknown_decisions + (1 if control else 0),
    )


def _hear(state: ClusterState, at: Sequence, source: Source) -> ClusterState | None:
    """The state `at` this entry with the source's counter advanced; None for a duplicate or an
    earlier life."""
    if source.counter == 0:  # the server's own reports aren't numbered
        return replace(state, seq=at)
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
    return replace(state, seq=at, sources=put(state.sources, source.who, new), gaps=gaps)


def _fact(state: ClusterState, at: Sequence, source: Source, body: ev.AnyFact) -> ClusterState:
    about_worker = WORKER_FACTS.get(type(body))  # type: ignore[arg-type]
    if about_worker is not None:  # most are
        # Only what is said about a worker's present incarnation counts.
        worker = workers.known(state, body.worker, body.incarnation)  # type: ignore[union-attr]
        if worker is not None:
            state = about_worker(state, at, body, worker)
        return _mark_fact(state, at, source)
    match body:
        case ev.AgentStarted():
            state = nodes.agent_started(state, at, body, source.incarnation)
        case ev.AgentStopped():
            state = nodes.agent_stopped(state, at, body)
        case ev.StoreBound():
            state = nodes.store_bound(state, at, body)
        case ev.ConnectionOpened() | ev.ConnectionClosed():
            state = nodes.connection(state, body)
        case _:
            pass  # FactsDropped: nobody knows what they would have done; for people
    return _mark_fact(state, at, source)


def _mark_fact(state: ClusterState, at: Sequence, source: Source) -> ClusterState:
    """The newest fact of a node's agent, against which opinions about the node are judged."""
    if not source.who.startswith("agent/"):
        return state
    node = state.nodes.get(source.who[len("agent/") :])
    if node is None or node.incarnation != source.incarnation:
        return state
    return with_node(state, replace(node, last_fact=at))


def _decision(state: ClusterState, at: Sequence, envelope: Envelope) -> ClusterState | None:
    body = envelope.body
    if isinstance(body, ev.LeadershipTaken):
        return dec.leadership(state, at, body)
    if not state.term or envelope.term != state.term:
        return None  # written under no leadership, or another one
    if isinstance(body, ev.IncidentResolved):
        basis = envelope.basis
        return dec.resolved(state, at, body, basis.decided_at if basis is not None else at)
    handler = HANDLERS.get(type(body))
    return handler(state, at, body) if handler is not None else state


#: Fact about a worker -> fold step.
WORKER_FACTS: dict[type[WorkerFact], Callable[..., ClusterState]] = {
    ev.WorkerStarted: workers.started,
    ev.WorkerStartFailed: workers.start_failed,
    ev.WorkerPrepared: workers.prepared,
    ev.WorkerExited: workers.exited,
    ev.PeerErrorReported: workers.peer_error,
    ev.ExceptionReported: workers.exception,
    ev.MemberQuiesced: tasks.quiesced,
    ev.MemberReady: tasks.ready,
    ev.MemberCommitted: tasks.committed,
    ev.MemberFinished: tasks.finished,
}

#: Decision type -> fold step; None from it means void. Besides these: LeadershipTaken and
#: IncidentResolved (above), AlarmRaised (for people only). A test holds all of them and the union
#: equal.
HANDLERS: dict[type, Callable[..., ClusterState | None]] = {
    ev.TaskSubmitted: tasks.submitted,
    ev.TaskCompleted: tasks.completed,
    ev.TaskFailed: tasks.failed,
    ev.TaskStalled: opinion.stalled,
    ev.TaskMeasured: opinion.measured,
    ev.WorkerSlow: opinion.slow,
    ev.GenerationClosed: tasks.generation_closed,
    ev.TransitionOrdered: tasks.transition_ordered,
    ev.TransitionCompleted: tasks.transition_completed,
    ev.WorkerStartOrdered: workers.start_ordered,
    ev.WorkerStopOrdered: workers.stop_ordered,
    ev.DeadlinePassed: fold_limit.passed,
    ev.ClusterConfigured: configuration.configured,
    ev.NodeSuspected: nodes.suspected,
    ev.NodeRecovered: nodes.recovered,
    ev.NodeLost: nodes.lost,
    ev.NodeIsolated: nodes.isolated,
    ev.NodeAdmitted: nodes.admitted,
    ev.NodeReturned: nodes.returned,
    ev.IncidentOpened: dec.opened,
    ev.IncidentEscalated: dec.escalated,
    ev.PlanRequested: dec.plan_requested,
    ev.PlanSolved: dec.plan_solved,
    ev.PlanDecided: dec.plan_decided,
    ev.PlanDropped: dec.plan_dropped,
}
