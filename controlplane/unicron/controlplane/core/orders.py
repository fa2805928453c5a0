"""Orders that nobody has confirmed yet, so that the leader says them again.

Republished decisions are at-most-once; what is listed here is what a shim or an agent must have
heard for the state to move on.
"""

from dataclasses import dataclass

from unicron.controlplane.core.fold_task import awaited
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.unsettled import unsettled_tasks, unsettled_workers
from unicron.events import Sequence


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """`seq`: where the order stands in the log; `kind`, `name`: the end of its subject."""

    seq: Sequence
    kind: str
    name: str


def open_orders(state: ClusterState) -> tuple[OpenOrder, ...]:
    """All unconfirmed orders, oldest first."""
    orders = []
    for task in unsettled_tasks(state):
        if task.phase == "closed" and awaited(state, task):
            orders.append(OpenOrder(task.close, "task", task.spec.task))
        if task.phase == "ordered":
            orders.append(OpenOrder(task.order, "task", task.spec.task))
    for worker in unsettled_workers(state):
        if worker.status == "ordered":
            orders.append(OpenOrder(worker.order, "node", worker.node))
        if worker.status == "stopping":
            if not worker.begun:  # an agent that never heard of the start can't confirm the stop
                orders.append(OpenOrder(worker.order, "node", worker.node))
            orders.append(OpenOrder(worker.stop_order, "node", worker.node))
    return tuple(sorted(orders, key=lambda o: o.seq))
