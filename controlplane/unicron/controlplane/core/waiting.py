"""What a state waits for when decide() has nothing to say: whatever isn't as it should be has a
limit running, or waits for a person or a device.

Each predicate is an invariant of its name; its docstring is the sentence for people.
"""

from collections.abc import Iterator
from typing import Final

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.fold_node import LOST
from unicron.controlplane.core.fold_task import awaited, is_parked
from unicron.controlplane.core.leases import leases
from unicron.controlplane.core.state import ClusterState, TaskState, WorkerState
from unicron.controlplane.core.supply import slot_workers, usable
from unicron.controlplane.core.unsettled import (
    open_incidents,
    unsettled_nodes,
    unsettled_tasks,
    unsettled_workers,
)
from unicron.events import WorkerId


def no_node_is_forgotten(state: ClusterState) -> Iterator[str]:
    """No node waits to be admitted or isolated."""
    for node in unsettled_nodes(state):
        if node.status in ("joining", "returning"):
            yield f"{node.node} is {node.status} and nobody admits it"
        if node.status == "lost" and node.reason.startswith(LOST):
            yield f"{node.node} is lost and nobody isolates it"
        if node.sick and node.status not in ("isolated", "lost"):
            yield f"{node.node} is sick and nobody isolates it"


def no_evidence_waits(state: ClusterState) -> Iterator[str]:
    """No evidence waits for an incident."""
    if state.causes:
        yield f"evidence without an incident: {[(c.at, c.what) for c in state.causes]}"


def no_incident_stays_open(state: ClusterState) -> Iterator[str]:
    """An incident that is open belongs to a task that goes on."""
    for incident in open_incidents(state):
        task = state.tasks.get(incident.task) if incident.task is not None else None
        if not incident.resolved and (task is None or task.phase in tables.ENDED):
            yield f"{incident.incident} has no end"


def no_plan_waits_for_ever(state: ClusterState) -> Iterator[str]:
    """A plan that was requested comes, or a limit passes."""
    plan = state.plan
    if plan.request and not plan.answer and f"solve:{plan.request}" not in deadlines(state):
        yield f"a plan was requested at #{plan.request} and may never come"


def no_task_waits_without_a_limit(state: ClusterState) -> Iterator[str]:
    """Every task trains as the plan says, or waits for something that has a limit, or is parked
    until a device comes."""
    keys = deadlines(state)
    planning = _is_planning(state, keys)
    for task in unsettled_tasks(state):
        if task.phase not in tables.ENDED and (why := _waits_in_vain(state, task, keys, planning)):
            yield f"task {task.spec.task} is {task.phase} and {why}"


def no_device_is_kept_without_a_limit(state: ClusterState) -> Iterator[str]:
    """Who stands on a device that the plan gives to another task is to leave it within a limit, or
    until the next plan."""
    kept = leases(state)
    keys = deadlines(state) if kept else {}
    planning = _is_planning(state, keys)
    for lease in kept:
        worker = lease.holder
        if not (_ends(worker, keys) or (worker.overdue and planning)):
            yield f"{lease.to} waits for {worker.worker}, held by {worker.task} ({worker.status})"


def no_worker_is_left_over(state: ClusterState) -> Iterator[str]:
    """No process of a task that has ended is left, but those that are being stopped and those that
    are beyond reach."""
    left = [
        w
        for w in unsettled_workers(state)
        if w.status not in ("exited", "lost") and state.tasks[w.task].phase in tables.ENDED
    ]
    keys = deadlines(state) if left else {}
    for worker in left:
        apart = state.nodes[worker.node].status == "isolated"  # and so is its device
        if f"stop:{worker.worker}:{worker.incarnation}" not in keys and not apart:
            yield f"{worker.worker} is left over of task {worker.task} ({worker.status})"


def _is_planning(state: ClusterState, keys: dict[str, int]) -> bool:
    plan = state.plan
    coming = bool(plan.request or (plan.wanted and plan.failures < limits.PLAN_FAILURES_MAX))
    return coming or f"replan:{plan.wanted}" in keys


def _waits_in_vain(
    state: ClusterState, task: TaskState, keys: dict[str, int], planning: bool
) -> str:
    name = task.spec.task
    if task.phase == "ordered":
        return "" if f"ready:{name}:{task.generation}" in keys else "has no limit"
    if task.phase == "closed" and awaited(state, task):
        return "" if f"quiesce:{name}:{task.generation}" in keys else "its answers have no limit"
    if task.allocation is None:
        return "" if planning else "nobody plans it"
    if is_parked(state, task):
        return ""
    wanted = slot_workers(task)
    if task.phase in ("idle", "closed"):
        return "" if _some_come(state, task, keys) else "nobody comes"
    if task.broken:
        return "it is broken"
    dead = [m.worker for m in task.members if state.workers[m.worker].status != "member"]
    if dead:
        return f"its members {dead} are dead"
    members = {m.worker for m in task.members}
    if set(task.committed) != members or task.finished or planning:
        return ""  # it trains; whoever hangs in it is for the monitor of progress to find
    if members == {*wanted} or _some_come(state, task, keys):
        return ""
    return f"isn't what the plan says: {wanted}"


def _some_come(state: ClusterState, task: TaskState, keys: dict[str, int]) -> bool:
    return any(_is_coming(state, task.spec.task, w, keys) for w in slot_workers(task))


def _is_coming(state: ClusterState, task: str, name: WorkerId, keys: dict[str, int]) -> bool:
    worker = state.workers.get(name)
    if worker is None or not usable(state, worker.node):
        return False
    if worker.task != task and state.tasks[worker.task].phase not in tables.ENDED:
        return worker.status in tables.ALIVE  # see no_device_is_kept_without_a_limit
    life = f"{worker.worker}:{worker.incarnation}"
    return f"start:{life}" in keys or f"stop:{life}" in keys


def _ends(worker: WorkerState, keys: dict[str, int]) -> bool:
    life = f"{worker.worker}:{worker.incarnation}"
    return f"release:{life}" in keys or f"stop:{life}" in keys


REST_CHECKS: Final = (
    no_node_is_forgotten,
    no_evidence_waits,
    no_incident_stays_open,
    no_plan_waits_for_ever,
    no_task_waits_without_a_limit,
    no_device_is_kept_without_a_limit,
    no_worker_is_left_over,
)
