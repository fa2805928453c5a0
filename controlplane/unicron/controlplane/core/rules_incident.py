"""Rules about failures: confirm a node's loss, open, escalate, isolate, admit, resolve."""

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.connections import closed, closed_with_most, is_open
from unicron.controlplane.core.fold_node import LOST, cut_off
from unicron.controlplane.core.fold_task import is_parked
from unicron.controlplane.core.state import Cause, ClusterState, IncidentState, NodeState, TaskState
from unicron.controlplane.core.supply import WORKING, slot_workers
from unicron.controlplane.core.unsettled import (
    count_present,
    open_incidents,
    unsettled_nodes,
    workers_of,
    workers_on,
)
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.core.words import devices
from unicron.events import (
    IncidentEscalated,
    IncidentId,
    IncidentOpened,
    IncidentResolved,
    NodeAdmitted,
    NodeIsolated,
    NodeLost,
    Sequence,
)


def confirm_loss(state: ClusterState) -> Verdict | None:
    """A node is lost when two paths agree: the connections of its agent and of all its workers
    closed and stayed so, or it is suspected for its silence and either its agent's connection
    closed too or nothing spoke for it until the limit. If most nodes fall silent at once, it's us:
    act on none; and connections that closed together with most agents' never count without
    silence.
    """
    present = [n for n in unsettled_nodes(state) if n.status in WORKING]
    doubtful = [n for n in present if _agent_closed(state, n) or n.status == "suspected"]
    if not doubtful or 2 * len(doubtful) > count_present(state):
        return None
    for node in sorted(doubtful, key=lambda n: n.node):
        found = _second_path(state, node)
        if found is not None:
            evidence, cause = found
            body = NodeLost(node=node.node, incarnation=node.incarnation, evidence=evidence)
            return Verdict(body=body, cause=cause, incident=_incident_of(state, node))
    return None


def _second_path(state: ClusterState, node: NodeState) -> tuple[str, tuple[Sequence, ...]] | None:
    """In words, and the events that say so."""
    cut = cut_off(state, node)
    if cut and node.cut == cut and not closed_with_most(state, node):
        return "connections of its agent and all its workers closed", (node.cut_at,)
    if node.status != "suspected":
        return None
    if node.confirmed:
        return f"{node.reason}, and nothing spoke for it", (node.since,)
    workers = workers_on(state, node.node)
    heard = any(is_open(state, "worker", w.worker, w.incarnation) for w in workers)
    if _agent_closed(state, node) and not heard:
        return f"{node.reason}, and its connections closed", (node.since,)
    return None


def _agent_closed(state: ClusterState, node: NodeState) -> bool:
    return closed(state, "agent", node.node, node.incarnation)


def _incident_of(state: ClusterState, node: NodeState) -> IncidentId | None:
    """The open incident that the node's failure is part of, if there is one."""
    incidents = open_incidents(state)
    for incident in incidents:
        if incident.node == node.node:
            return incident.incident
    for incident in incidents:
        task = incident.task
        if task is not None and any(w.node == node.node for w in workers_of(state, task)):
            return incident.incident
    return None


def open_or_escalate(state: ClusterState) -> Verdict | None:
    """The oldest evidence that no incident covers: open one, or make the task's more severe."""
    if not state.causes:
        return None
    cause = state.causes[0]
    task = state.tasks.get(cause.task) if cause.task is not None else None
    if task is not None and task.incident is not None:
        return _escalate(state.incidents[task.incident], cause)
    worst = min(c.severity for c in state.causes if c.task == cause.task)
    chosen = next(c for c in state.causes if c.task == cause.task and c.severity == worst)
    incident = IncidentId(f"inc-{cause.at}" if task is None else f"inc-{cause.at}-{cause.task}")
    body = IncidentOpened(
        incident=incident,
        severity=chosen.severity,
        what=chosen.what,
        task=cause.task,
        node=chosen.node,
        worker=chosen.worker,
    )
    return Verdict(body=body, cause=(cause.at,), incident=incident)


def _escalate(incident: IncidentState, cause: Cause) -> Verdict:
    body = IncidentEscalated(
        incident=incident.incident,
        severity=cause.severity,
        reason=cause.what,
        node=cause.node,
        worker=cause.worker,
    )
    return Verdict(body=body, cause=(cause.at,), incident=incident.incident)


def isolate(state: ClusterState) -> Verdict | None:
    """SEV1: the node takes no part until it returns, whichever incident its failure belongs to."""
    for node in sorted(unsettled_nodes(state), key=lambda n: n.node):
        incident = _incident_of(state, node)
        if node.status == "lost" and node.reason.startswith(LOST):
            reason, cause = node.reason, [node.since]  # whatever its incident heard after it
        elif node.sick and node.status not in ("isolated", "lost"):
            evidence = state.incidents[incident].evidence if incident is not None else ()
            reason, cause = f"sick: {node.sick}", list(evidence[-1:]) or [node.since]
        else:
            continue
        body = NodeIsolated(node=node.node, reason=reason)
        return Verdict(body=body, cause=tuple(cause), incident=incident)
    return None


def admit(state: ClusterState) -> Verdict | None:
    """A node that joined or came back may be planned with."""
    for node in sorted(unsettled_nodes(state), key=lambda n: n.node):
        if node.status in ("joining", "returning") and not node.sick:
            body = NodeAdmitted(node=node.node, incarnation=node.incarnation)
            return Verdict(body=body, cause=(node.since,))
    return None


def resolve(state: ClusterState) -> Verdict | None:
    """An incident is over when its task trains again with all devices it is meant to have, or
    when the task has ended; one without a task when nothing more is to be done about it."""
    for incident in open_incidents(state):
        task = state.tasks.get(incident.task) if incident.task is not None else None
        if task is None:
            outcome = f"{incident.node or 'nothing'} was not in use by any task"
        else:
            outcome = _outcome(state, task)
        if outcome:
            body = IncidentResolved(incident=incident.incident, outcome=outcome)
            since = task.since if task is not None else incident.opened
            return Verdict(body=body, cause=(since,), incident=incident.incident)
    return None


def _outcome(state: ClusterState, task: TaskState) -> str:
    if task.phase in tables.ENDED:
        return f"the task {task.phase}: {task.outcome}"
    planning = state.plan.wanted and state.plan.failures < limits.PLAN_FAILURES_MAX
    if state.plan.request or planning or any(c.task == task.spec.task for c in state.causes):
        return ""
    if is_parked(state, task):
        return "parked: goes on when a node joins that can carry it"
    members = {m.worker for m in task.members}
    if task.phase != "running" or task.broken or set(task.committed) != members:
        return ""
    if members != {*slot_workers(task)}:
        return ""
    return f"trains on {devices(len(members))}, generation {task.generation}"
