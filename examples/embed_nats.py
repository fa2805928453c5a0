"""Unicron embedded over a real NATS server of its own: the log outlives the control plane.

The first control plane trains a task to its end and is left; the second one, on the same folder,
knows all about it. The workers are pretended; with `scheduler=None` real agents would connect to
`plane.agents_url`. Needs the extra `controlplane`:

    python examples/embed_nats.py
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from unicron import controlplane as cp
from unicron import events as ev
from unicron.controlplane.local.spec import demo_task
from unicron.controlplane.testing.crew import PretendedCrew


class TwoNodes(cp.Scheduler):
    """Offers two nodes and takes one back when told to."""

    def __init__(self) -> None:
        self.enough = asyncio.Event()
        self.crew = PretendedCrew()

    async def nodes(self) -> AsyncIterator[cp.NodeChange]:
        yield cp.NodeOffered(node=ev.NodeId("n1"), devices=2)
        yield cp.NodeOffered(node=ev.NodeId("n2"), devices=2)
        await self.enough.wait()
        yield cp.NodeWithdrawn(node=ev.NodeId("n2"), reason="others need it")

    async def launch(self, worker: cp.HostedWorker) -> int:
        return await self.crew.launch(worker)

    async def stop(self, worker: cp.HostedWorker, grace_ms: int) -> None:
        await self.crew.stop(worker, grace_ms)


async def train(folder: Path) -> None:
    scheduler = TwoNodes()
    async with cp.ControlPlane("lab", data=folder, scheduler=scheduler) as plane:
        print(f"leading   in term {plane.leadership.term}")
        await plane.until(lambda s: len(s.nodes) == 2)
        await plane.submit(demo_task(iterations=40, seed=1))
        await plane.until(lambda s: len(s.tasks["gpt"].committed) == 4)
        print("trains    on 4 devices")
        scheduler.enough.set()
        await plane.until(lambda s: len(s.tasks["gpt"].members) == 2)
        print("trains    on 2 devices")
        state = await plane.until(lambda s: s.tasks["gpt"].phase == "completed")
        print(f"completed gpt in generation {state.tasks['gpt'].generation}")


async def look_back(folder: Path) -> None:
    async with cp.ControlPlane("lab", data=folder, instance="second") as plane:
        print(f"again     gpt is {plane.state.tasks['gpt'].phase}, {plane.leadership.leader} leads")
        report = cp.Replayer(await plane.history()).verify()
    print(f"replayed  {report.events} events, holds: {report.verified}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await train(Path(folder))
        await look_back(Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
