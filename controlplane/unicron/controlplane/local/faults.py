"""Faults, named as text, and the injector that makes them happen at an exact place.

    worker:n2/1@8/forward/2     SIGKILL to worker n2/1 in iteration 8, in its forward pass, when
                                it has done 2 micro-batches of it
    node:n2@18/backward/1       the whole of node n2, when its first worker stands there
    stop:n1/1@12/forward/1      SIGSTOP to it: it hangs, and lives
    exception:n1/1@12/backward  it raises out of its training step
    nan:n1/1@12                 the loss of its micro-batch becomes NaN
    spin:n1/1@12                it runs in circles in Python code
    reset:n1/1@12/reduction     its connections to the other members are reset, and all live
    slow:n1/1@12                from there on it takes 300 ms longer for each micro-batch
    hog:n1/1@12                 it holds the interpreter for 5 s in a declared section

A victim that is to be signalled is held at a breakpoint of its progress page until the signal has
been sent from here, so the fault hits where it says; the others are done by the worker itself when
it comes there. A worker that was not launched for fault injection does neither.
"""

import asyncio
import re
import signal
import time

import msgspec

from unicron.controlplane.core.tables import ENDED
from unicron.controlplane.local import processes
from unicron.controlplane.local.cluster import ClusterFailed, LocalCluster
from unicron.events import ConfigError
from unicron.worker_shim.breakpoint import Breakpoint
from unicron.worker_shim.page import Action, PageReader, Phase

_FAULT = re.compile(
    r"(?P<kind>[a-z]+):(?P<target>[\w-]+(/\d+)?)@(?P<iteration>\d+)"
    r"(/(?P<phase>[a-z]+)(/(?P<done>\d+))?)?"
)
_POLL_S = 0.0005

#: What a worker does to itself, by the fault's kind, and the argument in ms.
_ACTIONS = {
    "exception": (Action.RAISE, 0),
    "nan": (Action.NAN, 0),
    "spin": (Action.SPIN, 0),
    "reset": (Action.RESET, 0),
    "slow": (Action.SLOW, 300),
    "hog": (Action.HOG, 5000),
}
#: What is sent to it from outside.
_SIGNALS = {"worker": signal.SIGKILL, "stop": signal.SIGSTOP}
KINDS = ("worker", "node", "stop", *_ACTIONS)
#: Faults that open no incident: the worker lives and answers.
HARMLESS = ("slow", "hog")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault to come. `done`: micro-batches its victim has finished, -1 for any."""

    kind: str
    target: str
    iteration: int
    phase: Phase = Phase.FORWARD
    done: int = -1
    generation: int = -1
    argument_ms: int = 0

    @property
    def worker(self) -> str:
        """The worker whose place decides when it hits."""
        return f"{self.target}/0" if self.kind == "node" else self.target


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
    if found is None or found["kind"] not in KINDS or (found["phase"] or "forward") not in phases:
        raise ConfigError(
            f"{text!r} is no fault",
            why="a fault reads KIND:TARGET@ITERATION[/PHASE[/DONE]], such as "
            f"worker:n2/1@8/forward/2; kinds: {', '.join(KINDS)}; phases: {', '.join(phases)}",
            fix="see unicron demo --help",
            code="E-FAULT",
        )
    is_worker = "/" in found["target"]
    if is_worker == (found["kind"] == "node"):
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
        action, argument_ms = _ACTIONS.get(fault.kind, (Action.HOLD, 0))
        self._breakpoint.arm(
            fault.phase,
            iteration=fault.iteration,
            micro_batch=fault.done,
            generation=fault.generation,
            action=action,
            argument_ms=fault.argument_ms or argument_ms,
        )

    async def sprung(self, limit_s: float = 60.0) -> bool:
        """Wait until the worker stands there; False if it doesn't within the limit."""
        until = time.monotonic() + limit_s
        while self._breakpoint.hit_ns() is None:
            tasks = self._cluster.state.tasks.values()
            if time.monotonic() > until or any(t.phase in ENDED for t in tasks):
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
        if self.fault.kind in _SIGNALS:
            processes.kill(progress.pid, _SIGNALS[self.fault.kind])
        elif self.fault.kind == "node":
            self._cluster.kill_node(self.fault.target)
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
                f"the fault {fault.kind}:{fault.target}@{fault.iteration}/{fault.phase.label} "
                "did not fire",
                why=f"{fault.worker} never stood there, or the task was over before",
                fix="choose an iteration that comes after the faults before it are repaired",
                code="E-FAULT-MISSED",
            )
        return trap.shoot()
    finally:
        trap.close()
