"""Faults, named as text, and the injector that makes them happen at an exact place.

    worker:n2/1@8/forward/2     SIGKILL to worker n2/1 in iteration 8, in its forward pass, when
                                it has done 2 micro-batches of it
    node:n2@18/backward/1       the whole of node n2, when its first worker stands there

The worker is held at a breakpoint of its progress page until the signal has been sent from here,
so the fault hits where it says. A worker that was not launched for fault injection has none.
"""

import asyncio
import re
import time

import msgspec

from unicron.controlplane.local import processes
from unicron.controlplane.local.cluster import ClusterFailed, LocalCluster
from unicron.events import ConfigError
from unicron.worker_shim.breakpoint import Breakpoint
from unicron.worker_shim.page import PageReader, Phase

_FAULT = re.compile(
    r"(?P<kind>worker|node):(?P<target>[\w-]+(/\d+)?)@(?P<iteration>\d+)"
    r"(/(?P<phase>[a-z]+)(/(?P<done>\d+))?)?"
)
_POLL_S = 0.0005


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault to come. `done`: micro-batches its victim has finished, -1 for any."""

    kind: str
    target: str
    iteration: int
    phase: Phase = Phase.FORWARD
    done: int = -1
    generation: int = -1

    @property
    def worker(self) -> str:
        """The worker whose place decides when it hits."""
        return self.target if self.kind == "worker" else f"{self.target}/0"


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


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Faults separated by commas; ``none`` or nothing for none. Raises ConfigError."""
    if text.strip() in ("", "none"):
        return ()
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(text: str) -> Fault:
    found = _FAULT.fullmatch(text)
    phases = [p.label for p in Phase]
    if found is None or (found["phase"] or "forward") not in phases:
        raise ConfigError(
            f"{text!r} is no fault",
            why="a fault reads KIND:TARGET@ITERATION[/PHASE[/DONE]], such as "
            f"worker:n2/1@8/forward/2; phases: {', '.join(phases)}",
            fix="see unicron demo --help",
            code="E-FAULT",
        )
    is_worker = "/" in found["target"]
    if is_worker != (found["kind"] == "worker"):
        raise ConfigError(
            f"{text!r}: a worker is named node/device (n2/1), a node by its name (n2)",
            fix="see unicron demo --help",
            code="E-FAULT",
        )
    return Fault(
        kind=found["kind"],
        target=found["target"],
        iteration=int(found["iteration"]),
        phase=Phase[(found["phase"] or "forward").upper()],
        done=int(found["done"]) if found["done"] else -1,
    )


class Trap:
    """A breakpoint armed on the newest incarnation of a worker."""

    def __init__(self, cluster: LocalCluster, fault: Fault) -> None:
        self._cluster = cluster
        self.fault = fault
        self._path = cluster.page_path(fault.worker)
        self._breakpoint = Breakpoint(self._path)
        self._breakpoint.arm(
            fault.phase,
            iteration=fault.iteration,
            micro_batch=fault.done,
            generation=fault.generation,
        )

    async def sprung(self, limit_s: float = 60.0) -> bool:
        """Wait until the worker stands there; False if it doesn't within the limit."""
        until = time.monotonic() + limit_s
        while self._breakpoint.hit_ns() is None:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def shoot(self) -> Shot:
        """Send the signal to the worker or its node, and say what it hit."""
        reader = PageReader(self._path)
        progress = reader.read()
        reader.close()
        assert progress is not None
        state = self._cluster.state
        hit = [w for w in state.workers.values() if self.fault.target in (w.worker, w.node)]
        mono_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        if self.fault.kind == "worker":
            processes.kill(progress.pid)
        else:
            self._cluster.kill_node(self.fault.target)
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
                f"the fault {fault.kind}:{fault.target}@{fault.iteration}/{fault.phase.label} "
                "did not fire",
                why=f"{fault.worker} never stood there within {limit_s:.0f} s",
                fix="choose an iteration that comes after the faults before it are repaired",
                code="E-FAULT-MISSED",
            )
        return trap.shoot()
    finally:
        trap.close()
