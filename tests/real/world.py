"""What the tests with real processes share: the small task, its cluster, and what must hold."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local import processes
from unicron.controlplane.local.cluster import LocalCluster
from unicron.controlplane.local.faults import Fault
from unicron.controlplane.local.injector import Shot, Trap
from unicron.controlplane.local.measure import checks, read_works
from unicron.controlplane.local.reference import Reference
from unicron.controlplane.local.spec import demo_task
from unicron.controlplane.replay.replayer import Replayer
from unicron.events import GPTSpec, TaskSpec
from unicron.worker_shim.page import Phase

ITERATIONS = 16
_MODEL = GPTSpec(
    num_layers=2,
    hidden_size=64,
    num_attention_heads=4,
    seq_length=48,
    vocab_size=256,
    micro_batch_size=1,
    dropout_ppm=100_000,
)


def small_task(iterations: int) -> TaskSpec:
    """Twelve micro-batches of a small GPT with dropout."""
    return demo_task(iterations, seed=7, model=_MODEL)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Empty, and gone afterwards; its path is short, since sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="unicron-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class World:
    """A running LocalCluster named "t" with nodes n1 and n2."""

    def __init__(self, folder: Path, template: str) -> None:
        self.spec = small_task(ITERATIONS)
        self.cluster = LocalCluster(folder, "t", self.spec, template=template)
        self.shots: list[Shot] = []
        self._before = set(processes.descendants(os.getpid()))

    async def start(self) -> None:
        """Both nodes are up and the task trains at DP 4."""
        await self.cluster.start()
        await self.cluster.start_control(when_nodes=2)
        for node in ("n1", "n2"):
            await self.cluster.start_agent(node)
        await self.cluster.until("DP 4", lambda s: self.members(s) == 4)

    async def stop(self) -> None:
        """End it, whatever state it is in."""
        await self.cluster.stop()
        left = set(processes.descendants(os.getpid())) - self._before
        processes.end_all(left)

    def members(self, state: ClusterState) -> int:
        """How many members the running generation has; 0 while none runs."""
        task = state.tasks.get(self.spec.task)
        return len(task.members) if task is not None and task.phase == "running" else 0

    def trap(
        self,
        worker: str,
        phase: Phase,
        *,
        iteration: int = -1,
        done: int = -1,
        generation: int = -1,
    ) -> Trap:
        """Arm a breakpoint on a worker that lives."""
        return Trap(
            self.cluster,
            Fault(
                kind="worker",
                target=worker,
                iteration=iteration,
                phase=phase,
                done=done,
                generation=generation,
            ),
        )

    async def spring(self, trap: Trap) -> Shot:
        """Wait until the victim stands there, and kill it. Fails if it never does."""
        try:
            assert await trap.sprung(40.0), f"{trap.fault} did not fire"
            shot = trap.shoot()
        finally:
            trap.close()
        self.shots.append(shot)
        await self.cluster.until("the kill is noticed", lambda s: _evidence(s, shot), 20.0)
        return shot

    async def finish(self, reference: Reference) -> ClusterState:
        """Wait for the task's end; all that must hold of any run holds, and the state and all
        losses are the reference's, bit for bit."""
        cluster = self.cluster
        state = await cluster.until("the task ends", self._ended, 90.0)
        await cluster.until(
            "incidents end", lambda s: all(i.resolved for i in s.incidents.values())
        )
        state = cluster.state
        work = read_works(cluster.journals(), cluster.events)[self.spec.task]
        for check in checks(self.spec, state, cluster.events, work):
            assert check.ok, f"{check.name}: {check.detail}"
        digests = set(state.tasks[self.spec.task].finished.values())
        assert digests == {reference.state_digest}
        assert work.losses == reference.work.losses
        Replayer(cluster.events).verify().require()
        return state

    def _ended(self, state: ClusterState) -> bool:
        task = state.tasks[self.spec.task]
        assert task.phase != "failed", task.outcome
        return task.phase == "completed"

    async def settle(self, seconds: float) -> None:
        """Let it train."""
        await asyncio.sleep(seconds)


def _evidence(state: ClusterState, shot: Shot) -> bool:
    return any(any(e > shot.seq for e in i.evidence) for i in state.incidents.values())
