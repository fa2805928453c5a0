"""What a run waits for, as predicates of the folded state. They look at all tasks."""

from collections.abc import Callable, Mapping

from unicron.controlplane.core import tables
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local.cluster import ClusterFailed
from unicron.controlplane.local.injector import Shot
from unicron.events import TaskId


def trains(sizes: Mapping[TaskId, int]) -> Callable[[ClusterState], bool]:
    """Each of these tasks trains on so many devices."""

    def holds(state: ClusterState) -> bool:
        found = {t.spec.task: len(t.members) for t in state.tasks.values() if t.phase == "running"}
        return all(found.get(name) == size for name, size in sizes.items())

    return holds


def ended(state: ClusterState) -> bool:
    """There were tasks, and all have ended."""
    return bool(state.tasks) and all(t.phase in tables.ENDED for t in state.tasks.values())


def stopped(state: ClusterState) -> bool:
    """No worker is left."""
    return all(w.status in ("exited", "lost", "failed") for w in state.workers.values())


def whole(state: ClusterState) -> bool:
    """No incident is open, and each task's running generation has proved itself or it has ended."""
    if any(not i.resolved for i in state.incidents.values()):
        return ended(state)
    return all(
        t.phase in tables.ENDED
        or (t.phase == "running" and set(t.committed) == {m.worker for m in t.members})
        for t in state.tasks.values()
    )


def noticed(state: ClusterState, shot: Shot) -> bool:
    """An incident took in evidence after the shot. Raises ClusterFailed if all is over."""
    if ended(state):
        raise ClusterFailed("the task ended before the fault was noticed", code="E-FAULT-MISSED")
    return any(any(e > shot.seq for e in i.evidence) for i in state.incidents.values())
