"""What may carry work, as the state says it."""

from typing import Final

from unicron.controlplane.core import limits
from unicron.controlplane.core.state import ClusterState, NodeState, TaskState, WorkerState
from unicron.events import NodeId, WorkerId, worker_id

WORKING: Final = ("healthy", "suspected")


def usable(state: ClusterState, node: str) -> bool:
    """May the node carry work?"""
    found = state.nodes.get(node)
    return found is not None and found.status in WORKING


def devices(node: NodeState) -> tuple[int, ...]:
    """Its devices that may be planned with."""
    return tuple(d for d in range(_offered(node)) if d not in node.given_up)


def kind_on(node: NodeState) -> str:
    """The kind of its devices; of an agent that doesn't say, the slowest."""
    return node.device_kind or "cpu"


def _offered(node: NodeState) -> int:
    return min(node.devices, limits.NODE_DEVICES_MAX)


def fits(state: ClusterState, node: NodeId, device: int) -> bool:
    """May this device carry a worker?"""
    found = state.nodes.get(node)
    return (
        found is not None
        and found.status in WORKING
        and 0 <= device < _offered(found)
        and device not in found.given_up
    )


def slot_workers(task: TaskState) -> tuple[WorkerId, ...]:
    """Names of the workers that the task's allocation wants, in rank order."""
    if task.allocation is None:
        return ()
    return tuple(worker_id(node, device) for node, device in task.allocation.slots)


def wants(task: TaskState, worker: WorkerState) -> bool:
    """Is the worker's device one of the task's allocation?"""
    return task.allocation is not None and (worker.node, worker.device) in task.allocation.slots


def fitting(state: ClusterState, task: TaskState) -> tuple[WorkerId, ...]:
    """Those of them whose device may carry a worker."""
    slots = task.allocation.slots if task.allocation is not None else ()
    return tuple(worker_id(node, device) for node, device in slots if fits(state, node, device))


def is_lame(state: ClusterState, task: TaskState) -> bool:
    """Its allocation names a device that can't be used."""
    slots = task.allocation.slots if task.allocation is not None else ()
    return not all(fits(state, node, device) for node, device in slots)
