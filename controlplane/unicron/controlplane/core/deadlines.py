"""Waits and their limits, as data: what the state waits for now, and how long at most.

The engine starts a limit when its key first appears, on its own monotonic clock, and appends
DeadlinePassed when it expires; whether that still matters is the fold's business. A new leader
starts all of them anew.
"""

from unicron.controlplane.core import limits
from unicron.controlplane.core.fold_node import cut_off
from unicron.controlplane.core.fold_task import awaited
from unicron.controlplane.core.leases import is_awaited, leases
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.unsettled import unsettled_nodes, unsettled_tasks, unsettled_workers


def deadlines(state: ClusterState) -> dict[str, int]:
    """Key of each open wait -> its limit in milliseconds."""
    waits: dict[str, int] = {}
    for node in unsettled_nodes(state):
        if node.status == "suspected" and not node.confirmed:
            waits[f"confirm:{node.node}:{node.since}"] = limits.CONFIRM_MS
        if node.status in ("healthy", "suspected"):
            key = cut_off(state, node)
            if key and key != node.cut:
                waits[f"closed:{node.node}:{key}"] = limits.CLOSED_MS
    for worker in unsettled_workers(state):
        if worker.status in ("ordered", "started"):
            waits[f"start:{worker.worker}:{worker.incarnation}"] = limits.START_MS
        if worker.status == "stopping" and not worker.overdue:
            waits[f"stop:{worker.worker}:{worker.incarnation}"] = limits.STOP_MS
    for lease in leases(state):
        if is_awaited(lease):
            waits[f"release:{lease.holder.worker}:{lease.holder.incarnation}"] = limits.RELEASE_MS
    for task in unsettled_tasks(state):
        name = f"{task.spec.task}:{task.generation}"
        if task.overdue:
            continue
        if task.phase == "closed" and awaited(state, task):
            waits[f"quiesce:{name}"] = limits.QUIESCE_MS
        if task.phase == "ordered":
            waits[f"ready:{name}"] = limits.SWITCH_MS if task.planned else limits.READY_MS
    if state.plan.request and not state.plan.answer:
        waits[f"solve:{state.plan.request}"] = limits.SOLVE_MS
    if state.plan.wanted and state.plan.failures >= limits.PLAN_FAILURES_MAX:
        waits[f"replan:{state.plan.wanted}"] = limits.REPLAN_MS
    return waits
