"""Fold of leadership, incidents and plans."""

from unicron.controlplane.core import tables
from unicron.controlplane.core.change import (
    put,
    replace,
    with_node,
    with_task,
    with_worker,
)
from unicron.controlplane.core.fold_node import to_node
from unicron.controlplane.core.state import Cause, ClusterState, IncidentState
from unicron.events import (
    IncidentEscalated,
    IncidentOpened,
    IncidentResolved,
    LeadershipTaken,
    PlanDecided,
    PlanDropped,
    PlanRequested,
    PlanSolved,
    Sequence,
    Term,
)


def leadership(state: ClusterState, at: Sequence, body: LeadershipTaken) -> ClusterState:
    """A new term. Suspicions of the old leader are forgotten: unknown is not lost."""
    for node in state.nodes.values():
        if node.status == "suspected":
            state = with_node(state, to_node(node, "healthy", at))
    return replace(state, term=Term(at), leader=body.instance, cluster=body.cluster)


# --- incidents --------------------------------------------------------------------------------


def opened(state: ClusterState, at: Sequence, body: IncidentOpened) -> ClusterState | None:
    """The incident takes in all evidence of its task that it covers."""
    if body.incident in state.incidents:
        return None
    task = state.tasks.get(body.task) if body.task is not None else None
    if task is not None and task.incident is not None:
        return None
    mine = [c for c in state.causes if _covers(body.severity, body.task, body.node, c)]
    incident = IncidentState(
        incident=body.incident,
        opened=at,
        severity=body.severity,
        task=body.task,
        node=body.node,
        worker=body.worker,
        what=body.what,
        evidence=tuple(c.at for c in mine),
    )
    state = replace(
        state,
        incidents=put(state.incidents, body.incident, incident),
        causes=tuple(c for c in state.causes if c not in mine),
    )
    if task is not None:
        state = with_task(state, replace(task, incident=body.incident))
    return state


def _covers(severity: int, task: str | None, node: str | None, cause: Cause) -> bool:
    same = cause.task == task and (task is not None or cause.node == node)
    return same and severity <= cause.severity


def escalated(state: ClusterState, at: Sequence, body: IncidentEscalated) -> ClusterState | None:
    """The incident became more severe, with the evidence that made it so."""
    incident = state.incidents.get(body.incident)
    if incident is None or incident.resolved or body.severity >= incident.severity:
        return None
    mine = [c for c in state.causes if _covers(body.severity, incident.task, body.node, c)]
    symptom = incident.severity == 3
    incident = replace(
        incident,
        severity=body.severity,
        node=body.node if body.node is not None else incident.node,
        # What a peer reported was a symptom; now the cause is known, and it isn't that peer.
        worker=body.worker if body.worker is not None or symptom else incident.worker,
        what=body.reason if symptom else f"{incident.what}; {body.reason}",
        evidence=(*incident.evidence, *(c.at for c in mine)),
    )
    return replace(
        state,
        incidents=put(state.incidents, body.incident, incident),
        causes=tuple(c for c in state.causes if c not in mine),
    )


def resolved(
    state: ClusterState, at: Sequence, body: IncidentResolved, decided_at: Sequence
) -> ClusterState | None:
    """The incident is over. Void if more evidence came to it since that was decided."""
    incident = state.incidents.get(body.incident)
    if incident is None or incident.resolved:
        return None
    if max(incident.evidence, default=0) > decided_at:
        return None
    incident = replace(incident, resolved=at, outcome=body.outcome)
    state = replace(state, incidents=put(state.incidents, body.incident, incident))
    task = state.tasks.get(incident.task) if incident.task is not None else None
    if task is not None and task.incident == body.incident:
        state = with_task(state, replace(task, incident=None))
    return state


# --- plans ------------------------------------------------------------------------------------


def plan_requested(state: ClusterState, at: Sequence, body: PlanRequested) -> ClusterState | None:
    """The solver works on the state at this sequence."""
    if state.plan.request or not state.plan.wanted:
        return None
    return replace(state, plan=replace(state.plan, request=at, answer=Sequence(0), error=""))


def plan_solved(state: ClusterState, at: Sequence, body: PlanSolved) -> ClusterState | None:
    """The answer waits to be decided on; one to a request that is gone is void."""
    if not state.plan.request or body.request != state.plan.request or state.plan.answer:
        return None
    return replace(
        state,
        plan=replace(
            state.plan,
            answer=at,
            answered=body.allocations,
            source=body.source,
            value=body.value,
            waf_milli=body.waf_milli,
            explanation=body.explanation,
            error=body.error,
        ),
    )


def plan_decided(state: ClusterState, at: Sequence, body: PlanDecided) -> ClusterState | None:
    """The allocation is in force for the tasks it names. A local one leaves the desk as it is."""
    for allocation in body.allocations:
        task = state.tasks.get(allocation.task)
        if task is not None and task.phase not in tables.ENDED:
            state = with_task(state, replace(task, allocation=allocation, planned_at=at))
    if body.source == "local":
        return state
    for worker in state.workers.values():
        if worker.overdue and worker.status != "stopping":  # see fold_worker.unreleased
            state = with_worker(state, replace(worker, overdue=False))
    return _clear_desk(state, body.computed_at, failures=0)


def plan_dropped(state: ClusterState, at: Sequence, body: PlanDropped) -> ClusterState | None:
    """The answer goes; what called for it still stands, a bounded number of times."""
    if body.request != state.plan.request:
        return None
    superseded = state.plan.wanted > state.plan.request
    failures = state.plan.failures + (0 if superseded else 1)
    return _clear_desk(state, 0, failures)


def _clear_desk(state: ClusterState, computed_at: int, failures: int) -> ClusterState:
    """No request is open; whatever came after `computed_at` still calls for a plan."""
    plan = state.plan
    still = plan.wanted if plan.wanted > computed_at else Sequence(0)
    return replace(
        state,
        plan=replace(
            plan,
            wanted=still,
            request=Sequence(0),
            answer=Sequence(0),
            answered=(),
            explanation=(),
            error="",
            failures=failures,
        ),
    )
