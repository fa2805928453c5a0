"""What a program does with the public API, and the types it gets: mypy and pyright must agree."""

from collections.abc import AsyncIterator
from typing import assert_type

from unicron.controlplane import (
    ClusterState,
    ControlPlane,
    EventStream,
    HostedWorker,
    Leadership,
    MemoryLog,
    MemoryStream,
    NodeChange,
    NodeOffered,
    PlannedChange,
    Replayer,
    ReplayReport,
    Scheduler,
    TaskChange,
)
from unicron.events import (
    AnyEvent,
    Envelope,
    NodeId,
    Recorded,
    Sequence,
    TaskSpec,
    WorkerId,
    WorkerStartOrdered,
)
from unicron.planner import (
    Plan,
    Planner,
    PlanProblem,
    Slot,
    Violation,
    check,
    explain,
    problem_from,
    read_problem,
)


class Duck:
    """A scheduler by its shape alone."""

    async def nodes(self) -> AsyncIterator[NodeChange]:
        yield NodeOffered(node=NodeId("n1"), devices=8)

    async def launch(self, worker: HostedWorker) -> int:
        assert_type(worker.name, WorkerId)
        assert_type(worker.order, WorkerStartOrdered)
        worker.exited(code=1)
        return 0

    async def stop(self, worker: HostedWorker, grace_ms: int) -> None:
        worker.exited(signal=9)

    async def approve(self, change: PlannedChange) -> None:
        assert_type(change.planned, tuple[TaskChange, ...])
        for task in change.tasks:
            assert_type(task.after, tuple[Slot, ...])


class Derived(Scheduler):
    """A scheduler that approves of everything."""

    async def nodes(self) -> AsyncIterator[NodeChange]:
        yield NodeOffered(node=NodeId("n1"), devices=8)

    async def launch(self, worker: HostedWorker) -> int:
        return 0

    async def stop(self, worker: HostedWorker, grace_ms: int) -> None:
        worker.exited()


async def embeds(task: TaskSpec) -> None:
    log = MemoryLog(MemoryStream("c"))
    async with ControlPlane("c", log=log, scheduler=Duck()) as plane:
        assert_type(plane, ControlPlane)
        assert_type(await plane.submit(task), Sequence)
        assert_type(await plane.give_back("n1", reason="repaired"), Sequence)
        assert_type(plane.state, ClusterState)
        assert_type(plane.leadership, Leadership)
        assert_type(plane.events(after=0), EventStream)
        async for event in plane.events():
            assert_type(event, Recorded)
            assert_type(event.envelope, Envelope | None)
            if event.envelope is not None:
                assert_type(event.envelope.body, AnyEvent)
        assert_type(await plane.until(lambda s: "n1" in s.nodes, limit_s=5), ClusterState)
        assert_type(await plane.history(), tuple[Recorded, ...])
    async with ControlPlane("c", nats="nats://user:secret@host", scheduler=Derived()):
        pass


def replays(events: tuple[Recorded, ...]) -> None:
    replayer = Replayer(events)
    assert_type(replayer.verify(), ReplayReport)
    assert_type(replayer.state_at(3), ClusterState)
    assert_type(replayer.verify().verified, bool | None)


def plans() -> None:
    problem = problem_from({"nodes": [], "tasks": []})
    assert_type(problem, PlanProblem)
    assert_type(read_problem("problem.toml"), PlanProblem)
    planner = Planner("dp")
    plan = planner.solve(problem)
    assert_type(plan, Plan)
    assert_type(planner.check(problem, plan), tuple[Violation, ...])
    assert_type(check(problem, plan), tuple[Violation, ...])
    assert_type(explain(problem, plan), tuple[str, ...])
