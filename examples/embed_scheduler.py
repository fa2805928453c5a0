"""A scheduler with a queue of its own, and Unicron embedded in it: node changes go in through the
queue, workers are launched and stopped on order, and plans that take devices away are approved.

The log is in memory and the workers are pretended, so this runs anywhere, in seconds:

    python examples/embed_scheduler.py
"""

import asyncio
from collections.abc import AsyncIterator

from msgspec import structs

from unicron import controlplane as cp
from unicron import events as ev
from unicron.controlplane.local.spec import demo_task
from unicron.controlplane.testing.crew import PretendedCrew

JOB = demo_task(iterations=60, seed=1)
URGENT = structs.replace(JOB, task=ev.TaskId("urgent"), iterations=10, weight_milli=5000)


class QueueScheduler(cp.Scheduler):
    def __init__(self) -> None:
        self.queue: asyncio.Queue[cp.NodeChange] = asyncio.Queue()
        self.crew = PretendedCrew()

    async def nodes(self) -> AsyncIterator[cp.NodeChange]:
        while True:
            yield await self.queue.get()

    async def launch(self, worker: cp.HostedWorker) -> int:
        return await self.crew.launch(worker)

    async def stop(self, worker: cp.HostedWorker, grace_ms: int) -> None:
        await self.crew.stop(worker, grace_ms)

    async def approve(self, change: cp.PlannedChange) -> None:
        print(f"asked     {change}: approved")


async def tell(plane: cp.ControlPlane) -> None:
    async for event in plane.events():
        match event.envelope.body if event.envelope else None:
            case ev.IncidentOpened(what=what, severity=severity):
                print(f"incident  SEV{severity}: {what}")
            case ev.TransitionOrdered(task=task, data_parallel=dp, generation=generation):
                print(f"ordered   {task} generation {generation} at DP {dp}")
            case ev.TaskCompleted(task=task):
                print(f"completed {task}")


async def main() -> None:
    scheduler, log = QueueScheduler(), cp.MemoryLog(cp.MemoryStream("lab"))
    async with cp.ControlPlane("lab", log=log, scheduler=scheduler) as plane:
        telling = asyncio.create_task(tell(plane))
        for node in ("n1", "n2"):
            scheduler.queue.put_nowait(cp.NodeOffered(node=ev.NodeId(node), devices=2))
        await plane.until(lambda s: len(s.nodes) == 2)
        await plane.submit(JOB)
        await plane.until(lambda s: len(s.tasks["gpt"].committed) == 4)
        scheduler.crew.kill("n2/1")
        await plane.until(lambda s: any(i.resolved for i in s.incidents.values()))
        await plane.submit(URGENT)
        await plane.until(lambda s: all(t.phase == "completed" for t in s.tasks.values()))
        report = cp.Replayer(await plane.history()).verify()
    await telling
    print(f"replayed  {report.events} events, {report.redecided} decided again: {report.verified}")


if __name__ == "__main__":
    asyncio.run(main())
