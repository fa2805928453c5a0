"""A host for embedded control planes: nodes on call, pretended workers, a planner at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from unicron import controlplane as cp
from unicron import events as ev
from unicron.controlplane.local.spec import demo_task
from unicron.controlplane.runtime.ports import Solved
from unicron.controlplane.testing.crew import PretendedCrew
from unicron.controlplane.testing.pace import PaceOptions
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.problem import PlanProblem

TASK = demo_task(iterations=20, seed=1)


class Dynamic:
    """Solver without a process."""

    async def warm(self) -> None:
        pass

    async def solve(self, problem: PlanProblem) -> Solved:
        return Solved(dynamic_plan(problem))


class Host(cp.Scheduler):
    """Offers what it is told to; remembers what it is asked."""

    def __init__(self, *nodes: str, micro_batch_ms: int = 1) -> None:
        self.changes: asyncio.Queue[cp.NodeChange | Exception] = asyncio.Queue()
        self.crew = PretendedCrew(
            PaceOptions(micro_batch_ms=micro_batch_ms, fork_ms=1, build_ms=5, regroup_ms=2)
        )
        self.launched: list[str] = []
        self.stopped: list[tuple[str, int]] = []
        self.asked: list[cp.PlannedChange] = []
        self.fails_to_launch = 0
        for node in nodes:
            self.offer(node)

    def offer(self, node: str, devices: int = 2) -> None:
        self.changes.put_nowait(cp.NodeOffered(node=ev.NodeId(node), devices=devices))

    def withdraw(self, node: str, *, lost: bool = False) -> None:
        gone = cp.NodeWithdrawn(node=ev.NodeId(node), reason="wanted back", lost=lost)
        self.changes.put_nowait(gone)

    async def nodes(self) -> AsyncIterator[cp.NodeChange]:
        while True:
            change = await self.changes.get()
            if isinstance(change, Exception):
                raise change
            yield change

    async def launch(self, worker: cp.HostedWorker) -> int:
        self.launched.append(worker.name)
        if self.fails_to_launch:
            self.fails_to_launch -= 1
            raise OSError("no such device")
        return await self.crew.launch(worker)

    async def stop(self, worker: cp.HostedWorker, grace_ms: int) -> None:
        self.stopped.append((worker.name, grace_ms))
        await self.crew.stop(worker, grace_ms)

    async def approve(self, change: cp.PlannedChange) -> None:
        self.asked.append(change)


class World:
    """A stream in memory and control planes on it."""

    def __init__(self) -> None:
        self.stream = cp.MemoryStream("c")

    def plane(self, scheduler: cp.Scheduler | None = None, **options: object) -> cp.ControlPlane:
        given = {"log": cp.MemoryLog(self.stream), "solver": Dynamic(), **options}
        return cp.ControlPlane("c", scheduler=scheduler, **given)

    def bodies(self, *kinds: type) -> list[ev.AnyEvent]:
        """What stands in the log, of these kinds."""
        found = [r.envelope.body for r in self.stream.entries if r.envelope is not None]
        return [body for body in found if isinstance(body, kinds)]

    def take_over(self) -> None:
        """Another instance leads."""
        source = ev.Source(who="control/b", incarnation=ev.Incarnation(1), counter=1)
        body = ev.LeadershipTaken(
            cluster="c", instance="b", logic_version=1, fold_version=1, version=""
        )
        envelope = ev.Envelope(id=ev.event_id(source), source=source, written_at_ns=0, body=body)
        subject = ev.subjects.control("c", "cluster", "c")
        self.stream.write_raw(subject, ev.encode(envelope))


@contextlib.contextmanager
def nothing_left(stream: cp.MemoryStream):
    """No task of the loop and no reader of the stream outlives the block."""
    before = asyncio.all_tasks()
    yield
    left = {t for t in asyncio.all_tasks() - before if t is not asyncio.current_task()}
    assert not left
    assert not stream._watchers
