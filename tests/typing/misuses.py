"""Mistakes that mypy and pyright must both find: one on each line marked as wrong."""

from collections.abc import AsyncIterator

from unicron import controlplane as cp
from unicron.events import NodeId, TaskSpec
from unicron.planner import Planner, problem_from


class NoStop:
    """A scheduler that forgot how to stop anything."""

    async def nodes(self) -> AsyncIterator[cp.NodeChange]:
        yield cp.NodeOffered(node=NodeId("n1"), devices=8)

    async def launch(self, worker: cp.HostedWorker) -> int:
        return 0

    async def approve(self, change: cp.PlannedChange) -> None:
        pass


async def embeds(task: TaskSpec) -> None:
    cp.ControlPlane("c", scheduler=NoStop())  # wrong
    cp.ControlPlane("c", log="memory")  # wrong
    cp.ControlPlane("c", "nats://host")  # wrong
    cp.NodeOffered(node="n1", devices=8)  # wrong
    cp.NodeWithdrawn(node=NodeId("n1"))  # wrong
    async with cp.ControlPlane("c") as plane:
        await plane.submit("gpt")  # wrong
        await plane.cancel(task)  # wrong
        plane.state.seq = 7  # wrong
        for _ in plane.events():  # wrong
            pass


def plans() -> None:
    Planner("guess")  # wrong
    Planner().solve({"nodes": []})  # wrong
    problem_from([1])  # wrong


def replays() -> None:
    cp.Replayer("log.ndjson")  # wrong
    cp.Replay  # wrong  # noqa: B018
