"""Small steps on the immutable state that every fold module shares."""

from itertools import compress, islice
from operator import is_not
from typing import Final, TypeVar

import msgspec

from unicron.controlplane.core import tables
from unicron.controlplane.core.state import (
    Cause,
    ClusterState,
    NodeState,
    TaskState,
    WorkerState,
)
from unicron.events import NodeId, Sequence, TaskId, WorkerId

V = TypeVar("V")
#: Maps up to this size are compared entry by entry.
_FEW: Final = 64
replace = msgspec.structs.replace


def put(mapping: dict[str, V], key: str, value: V) -> dict[str, V]:
    """A copy of `mapping` with `key` set."""
    changed = mapping.copy()  # copies the table as it is, where {**mapping} builds a new one
    changed[key] = value
    return changed


def drop(mapping: dict[str, V], key: str) -> dict[str, V]:
    """A copy of `mapping` without `key`."""
    return {k: v for k, v in mapping.items() if k != key}


def changed_keys(before: dict[str, V], after: dict[str, V]) -> list[str]:
    """Keys whose value is another object, and those that only one of the two maps has."""
    if before is after:
        return []
    size = len(before)
    if size > _FEW and list(before) == list(islice(after, size)):  # as put() leaves it
        found = list(compress(after, map(is_not, after.values(), before.values())))
        return [*found, *islice(after, size, None)]
    found = [key for key, value in after.items() if before.get(key) is not value]
    return found + [key for key in before if key not in after]


def with_node(state: ClusterState, node: NodeState) -> ClusterState:
    """The state with this node in it."""
    return replace(state, nodes=put(state.nodes, node.node, node))


def with_worker(state: ClusterState, worker: WorkerState) -> ClusterState:
    """The state with this worker in it."""
    return replace(state, workers=put(state.workers, worker.worker, worker))


def with_task(state: ClusterState, task: TaskState) -> ClusterState:
    """The state with this task in it."""
    return replace(state, tasks=put(state.tasks, task.spec.task, task))


def to_phase(task: TaskState, phase: str, at: Sequence) -> TaskState:
    """The task in another phase. Raises IllegalTransition."""
    return replace(task, phase=tables.step(tables.TASK, task.phase, phase), since=at, overdue=False)


def to_status(worker: WorkerState, status: str) -> WorkerState:
    """The worker in another status. Raises IllegalTransition."""
    return replace(worker, status=tables.step(tables.WORKER, worker.status, status), overdue=False)


def want_plan(state: ClusterState, at: Sequence, reason: str) -> ClusterState:
    """Note that something happened which calls for a plan of the whole cluster."""
    return replace(state, plan=replace(state.plan, wanted=at, reason=reason, failures=0))


def sicken(state: ClusterState, name: NodeId, what: str) -> ClusterState:
    """A SEV1 that is the node's fault: it must be isolated, whichever incident it belongs to."""
    node = state.nodes.get(name)
    if node is None or node.sick:
        return state
    return with_node(state, replace(node, sick=what))


def add_cause(state: ClusterState, cause: Cause) -> ClusterState:
    """Evidence joins the open incident of its task if that is at least as severe; else it waits
    for a decision."""
    task = state.tasks.get(cause.task) if cause.task is not None else None
    if task is not None and task.incident is not None:
        incident = state.incidents[task.incident]
        if incident.severity <= cause.severity:
            joined = replace(incident, evidence=(*incident.evidence, cause.at))
            return replace(state, incidents=put(state.incidents, incident.incident, joined))
    return replace(state, causes=(*state.causes, cause))


def break_generation(
    state: ClusterState, task_id: TaskId, worker: WorkerId, at: Sequence, why: str
) -> ClusterState:
    """Note that `worker` broke the task's generation, if it is one that stands or is being
    formed with that worker in it."""
    task = state.tasks[task_id]
    if task.phase not in ("running", "ordered"):
        return state
    involved = {m.worker for m in task.members} | {m.worker for m in task.target}
    if worker not in involved:
        return state
    return with_task(
        state,
        replace(task, broken=(*task.broken, at), broken_by=task.broken_by or why),
    )
