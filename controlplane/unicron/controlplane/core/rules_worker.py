"""Rules about worker processes: start those the allocation wants, stop those nobody wants."""

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.fold_node import LOST
from unicron.controlplane.core.fold_task import in_transition
from unicron.controlplane.core.leases import can_go
from unicron.controlplane.core.state import ClusterState, TaskState, WorkerState
from unicron.controlplane.core.supply import fits, slot_workers, usable, wants
from unicron.controlplane.core.unsettled import owners_of, unsettled_tasks, unsettled_workers
from unicron.controlplane.core.verdict import Verdict
from unicron.events import (
    Incarnation,
    NodeId,
    Sequence,
    WorkerStartOrdered,
    WorkerStopOrdered,
    worker_id,
)


def start(state: ClusterState) -> Verdict | None:
    """A slot of an allocation whose device is free and whose worker isn't there: start it."""
    for task in sorted(unsettled_tasks(state), key=lambda t: t.submitted):
        if task.phase in tables.ENDED or task.allocation is None or task.finished:
            continue
        for node, device in task.allocation.slots:
            old = state.workers.get(worker_id(node, device))
            if (old is not None and _occupied(old)) or not fits(state, node, device):
                continue
            return _start(state, task, node, device, old)
    return None


def _occupied(worker: WorkerState) -> bool:
    """Its process is there, or is not known to be gone yet."""
    return worker.status not in ("exited", "lost")


def _start(
    state: ClusterState, task: TaskState, node: NodeId, device: int, old: WorkerState | None
) -> Verdict:
    passed_on = old is not None and old.task != task.spec.task and bool(old.stop_order)
    if old is not None and passed_on:
        reason = f"{old.task} has released it"
    elif old is not None and old.task == task.spec.task and old.failures:
        reason = "restart on the same device"
    else:
        reason = "the plan gives it to the task"
    body = WorkerStartOrdered(
        task=task.spec.task,
        worker=worker_id(node, device),
        incarnation=Incarnation(old.incarnation + 1 if old is not None else 1),
        node=node,
        device=device,
        spec=task.spec,
        reason=reason,
        agent=state.nodes[node].incarnation,
    )
    released = (old.stop_order,) if old is not None and passed_on else ()
    return Verdict(body=body, cause=(task.planned_at, *released), incident=task.incident)


def renew(state: ClusterState) -> Verdict | None:
    """Orders of an earlier term that their agent hasn't confirmed are given again: an agent that
    has heard of this term refuses older ones. Repeating an order does nothing twice."""
    waiting = [w for w in unsettled_workers(state) if w.status in ("ordered", "stopping")]
    for worker in sorted(waiting, key=lambda w: w.worker):
        task = state.tasks[worker.task]
        if not worker.begun and worker.order < state.term:
            body = WorkerStartOrdered(
                task=worker.task,
                worker=worker.worker,
                incarnation=worker.incarnation,
                node=worker.node,
                device=worker.device,
                spec=task.spec,
                reason="nobody confirmed it under the leader before",
                agent=state.nodes[worker.node].incarnation,
            )
            return Verdict(body=body, cause=(worker.order,), incident=task.incident)
        if worker.status == "stopping" and not worker.overdue and worker.stop_order < state.term:
            reason = "nobody confirmed it under the leader before"
            return stop_order(task, worker, reason, limits.STOP_GRACE_MS, cause=worker.stop_order)
    return None


def stop(state: ClusterState) -> Verdict | None:
    """A process that no allocation wants, that is stuck, or whose task has ended."""
    for worker in sorted(unsettled_workers(state), key=lambda w: w.worker):
        if worker.status not in ("ordered", "started", "prepared", "member", "failed"):
            continue
        if not usable(state, worker.node) and not _reachable(state, worker):
            continue
        verdict = _stop(state, worker)
        if verdict is not None:
            return verdict
    return None


def _reachable(state: ClusterState, worker: WorkerState) -> bool:
    node = state.nodes.get(worker.node)
    return node is not None and node.status == "isolated" and not node.reason.startswith(LOST)


def _stop(state: ClusterState, worker: WorkerState) -> Verdict | None:
    task = state.tasks[worker.task]
    well_placed = wants(task, worker) and usable(state, worker.node)
    grace = 0
    if task.phase in tables.ENDED:
        reason, grace = f"the task {task.phase}", limits.STOP_GRACE_MS
    elif worker.status == "failed":
        reason = "it failed and must go"
    elif well_placed or (_involved(task, worker) and not _in_the_way(state, task, worker)):
        return None
    elif not wants(task, worker):
        slot = (worker.node, worker.device)
        to = owners_of(state, [slot]).get(slot)
        reason = f"the plan gives it to {to}" if to else "the plan no longer gives it to the task"
        grace = limits.STOP_GRACE_MS
    else:
        reason = f"{worker.node} is isolated"
    return stop_order(task, worker, reason, grace, cause=task.since)


def stop_order(
    task: TaskState, worker: WorkerState, reason: str, grace_ms: int, *, cause: Sequence
) -> Verdict:
    """The order to end this life of the worker."""
    body = WorkerStopOrdered(
        task=worker.task,
        worker=worker.worker,
        incarnation=worker.incarnation,
        node=worker.node,
        grace_ms=grace_ms,
        reason=reason,
    )
    return Verdict(body=body, cause=(cause,), incident=task.incident)


def _in_the_way(state: ClusterState, task: TaskState, worker: WorkerState) -> bool:
    """Its task stands still, the plan gives its device to another one, and whom the plan gives the
    task can do without it: nobody, or somebody who holds its state."""
    if task.phase != "closed" or in_transition(state, task):
        return False
    if slot_workers(task) and not can_go(state, task, worker):
        return False
    slot = (worker.node, worker.device)
    return owners_of(state, [slot]).get(slot, worker.task) != worker.task


def _involved(task: TaskState, worker: WorkerState) -> bool:
    """It stands in the running generation or is wanted by the next one."""
    name = worker.worker
    return any(m.worker == name for m in task.members) or any(m.worker == name for m in task.target)
