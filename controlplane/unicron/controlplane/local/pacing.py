"""Holds the lighter task back, so that it leaves the cores to the heavier one and both end at the
same time.

Two tasks on two cores would share them half and half, however small one of them is. So the lighter
one sleeps before each micro-batch, as it would wait for its data: the longer, the further it is
ahead. Its workers do that at breakpoints of their progress pages (fault injection).
"""

import asyncio

from unicron.controlplane.core import tables
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.local.cluster import LocalCluster
from unicron.events import TaskSpec
from unicron.worker_shim.breakpoint import Breakpoint
from unicron.worker_shim.page import Action, PageReader, Phase

#: Before a micro-batch: when it isn't ahead, for each iteration it is ahead, and at most.
_LEAST_MS, _MORE_MS, _MOST_MS = 10, 80, 600
#: A difference that isn't worth telling the workers.
_SAME_MS = 15
_EVERY_S = 0.1


class Pacing:
    """Run it beside the two tasks of `cluster`; it ends with the heavier one."""

    def __init__(self, cluster: LocalCluster, light: TaskSpec, heavy: TaskSpec) -> None:
        self._cluster = cluster
        self._light = light
        self._heavy = heavy
        self._told: dict[tuple[str, int], int] = {}

    async def run(self) -> None:
        """Until the heavier task has ended: then the lighter one is let go."""
        while not _ended(self._cluster.state, self._heavy):
            wait_ms = _LEAST_MS + int(_MORE_MS * max(0.0, self._ahead()))
            self._hold_back(min(wait_ms, _MOST_MS), _SAME_MS)
            await asyncio.sleep(_EVERY_S)
        self._hold_back(0, 1)

    def _ahead(self) -> float:
        """Iterations of the lighter task, beyond the share that the heavier one has done."""
        share = committed(self._cluster, self._heavy) / self._heavy.iterations
        return committed(self._cluster, self._light) - share * self._light.iterations

    def _hold_back(self, wait_ms: int, same_ms: int) -> None:
        for worker in self._cluster.state.workers.values():
            life = (worker.worker, worker.incarnation)
            if worker.task != self._light.task or worker.status not in ("prepared", "member"):
                continue
            if abs(self._told.get(life, -same_ms) - wait_ms) < same_ms:
                continue
            self._told[life] = wait_ms
            try:
                asking = Breakpoint(self._cluster.page_path(*life), timeout_s=0.0)
            except TimeoutError:
                continue  # its agent has ended it and removed its page
            with asking:
                asking.arm(Phase.FORWARD, action=Action.SLOW, argument_ms=wait_ms)


def committed(cluster: LocalCluster, spec: TaskSpec) -> int:
    """Iterations of the task committed by any of its workers, from their pages."""
    newest = 0
    for worker in cluster.state.workers.values():
        if worker.task != spec.task:
            continue
        reader = PageReader(cluster.page_path(worker.worker, worker.incarnation))
        progress = reader.read()
        reader.close()
        if progress is not None:
            newest = max(newest, progress.iteration)
    return newest


def _ended(state: ClusterState, spec: TaskSpec) -> bool:
    task: TaskState | None = state.tasks.get(spec.task)
    return task is not None and task.phase in tables.ENDED
