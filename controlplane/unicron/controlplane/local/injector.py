"""Makes faults happen at an exact place.

A victim that is to be signalled is held at a breakpoint of its progress page until the signal has
been sent from here, so the fault hits where it says; the others are done by the worker itself when
it comes there. A worker that was not launched for fault injection does neither.
"""

import asyncio
import time

import msgspec

from unicron.controlplane.core.tables import ENDED
from unicron.controlplane.local import processes
from unicron.controlplane.local.cluster import ClusterFailed, LocalCluster
from unicron.controlplane.local.faults import KINDS, Fault
from unicron.events import WorkerId
from unicron.worker_shim.breakpoint import Breakpoint
from unicron.worker_shim.page import PageReader

_POLL_S = 0.0005


class Shot(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was fired. `mono_ns`, `wall_ns`: the injector's clocks just before the signal.
    `seq`: last sequence folded then. `victims`: (worker, incarnation)."""

    fault: Fault
    mono_ns: int
    wall_ns: int
    seq: int
    phase: str
    iteration: int
    done: int
    victims: tuple[tuple[str, int], ...]


class Trap:
    """A breakpoint armed on the newest incarnation of a worker."""

    def __init__(self, cluster: LocalCluster, fault: Fault) -> None:
        self._cluster = cluster
        self.fault = fault
        self._path = cluster.page_path(fault.worker)
        self._breakpoint = Breakpoint(self._path)
        kind = KINDS[fault.kind]
        self._breakpoint.arm(
            fault.phase,
            iteration=fault.iteration,
            micro_batch=fault.done,
            generation=fault.generation,
            action=kind.action,
            argument_ms=fault.argument_ms or kind.argument_ms,
        )

    async def sprung(self, limit_s: float = 60.0) -> bool:
        """Wait until the worker stands there; False if it doesn't within the limit."""
        until = time.monotonic() + limit_s
        while self._breakpoint.hit_ns() is None:
            state = self._cluster.state
            task = state.tasks[state.workers[WorkerId(self.fault.worker)].task]
            if time.monotonic() > until or task.phase in ENDED:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def shoot(self) -> Shot:
        """Send the signal to the worker or its node, unless the worker did it itself, and say what
        it hit."""
        reader = PageReader(self._path)
        progress = reader.read()
        reader.close()
        assert progress is not None
        state = self._cluster.state
        hit = [w for w in state.workers.values() if self.fault.target in (w.worker, w.node)]
        mono_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        kind = KINDS[self.fault.kind]
        if kind.whole_node:
            self._cluster.kill_node(self.fault.target)
        elif kind.sends is not None:
            processes.kill(progress.pid, kind.sends)
        else:
            hit_ns = self._breakpoint.hit_ns()
            assert hit_ns is not None
            mono_ns, wall_ns = hit_ns, wall_ns - (mono_ns - hit_ns)
        return Shot(
            fault=self.fault,
            mono_ns=mono_ns,
            wall_ns=wall_ns,
            seq=state.seq,
            phase=progress.phase.label,
            iteration=progress.iteration,
            done=progress.micro_batches_done,
            victims=tuple((w.worker, w.incarnation) for w in hit),
        )

    def close(self) -> None:
        """Let the worker go on if it still lives."""
        self._breakpoint.disarm()
        self._breakpoint.close()


async def fire(cluster: LocalCluster, fault: Fault, limit_s: float = 60.0) -> Shot:
    """Hold the victim at the place, then kill it.

    Raises:
        ClusterFailed: it never came there, so the fault did not fire.
    """
    trap = Trap(cluster, fault)
    try:
        if not await trap.sprung(limit_s):
            raise ClusterFailed(
                f"the fault {fault} did not fire",
                why=f"{fault.worker} never stood there, or the task was over before",
                fix="choose an iteration that comes after the faults before it are repaired",
                code="E-FAULT-MISSED",
            )
        return trap.shoot()
    finally:
        trap.close()
