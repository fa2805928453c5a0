"""Guarantee: who began from a snapshot is no different from who folded the whole log."""

import asyncio
import contextlib

import pytest

from tests.real.fleet import CLUSTER, TASK, Node
from tests.runtime.cluster import QuickPlanner
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.replay import Replayer
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.jetstream import connect
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.controlplane.runtime.opening import open_log

pytestmark = pytest.mark.real

LIMIT_S = 30.0


class Instances:
    """On one server, each with a folder of its own for snapshots."""

    def __init__(self, url, folder):
        self.url, self.folder = url, folder
        self.engines, self.said, self._tasks = {}, {}, {}

    async def begin(self, name, *, snapshots=True):
        """It leads or follows."""
        connection = await connect(self.url, name=f"control/{name}")
        said = self.said[name] = []
        log, keeper = await open_log(
            connection, CLUSTER, snapshots=self.folder / name, tell=said.append
        )
        engine = self.engines[name] = Engine(
            log,
            NatsBus(connection, CLUSTER),
            instance=name,
            solver=QuickPlanner(),
            snapshots=keeper if snapshots else None,
        )

        async def run():
            try:
                await engine.run()
            finally:
                await log.close()
                await connection.close()

        self._tasks[name] = asyncio.create_task(run())
        await self.until(lambda: engine.leading or engine.follows)
        return engine

    async def end(self, name):
        """In order."""
        del self.engines[name]
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def until(self, holds):
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                for task in self._tasks.values():
                    assert not task.done(), task.exception()
                await asyncio.sleep(0.01)

    async def agreed(self, log):
        """All hold the same state, and a replay that decides everything again does, too."""

        def rests():
            states = [engine.state for engine in self.engines.values()]
            return len({state.seq for state in states}) == 1 and decide(states[0]) is None

        await self.until(rests)
        states = [engine.state for engine in self.engines.values()]
        seq = states[0].seq
        tail = log.read(1)
        replayer = Replayer([await anext(tail) for _ in range(seq)])
        assert replayer.verify().verified
        assert {digest(state) for state in states} == {digest(replayer.state_at(seq))}


async def test_a_leader_from_a_snapshot_and_a_follower_that_folded_everything_agree(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as server:
        all_ = Instances(server.url, tmp_path)
        first = await all_.begin("a")
        connection = await connect(server.url, name="test")
        log, _ = await open_log(connection, CLUSTER, snapshots=None)
        node = asyncio.create_task(Node("n1", log, NatsBus(connection, CLUSTER)).run())
        await first.submit(TASK, by="test")
        await all_.until(lambda: first.state.workers)
        await all_.end("a")

        again = await all_.begin("a")
        assert again.leading
        assert len(all_.said["a"]) == 1
        assert "(disk)" in all_.said["a"][0]
        second = await all_.begin("b", snapshots=False)
        assert (second.follows, all_.said["b"]) == (True, [])
        await all_.agreed(log)
        another = asyncio.create_task(Node("n2", log, NatsBus(connection, CLUSTER)).run())
        await all_.until(lambda: "n2" in again.state.nodes)
        await all_.agreed(log)

        await all_.end("b")
        second = await all_.begin("b")  # its folder is empty, and the log too short for the bucket
        assert all_.said["b"] == []
        await all_.end("a")
        await all_.until(lambda: second.leading)
        third = await all_.begin("a")
        assert third.follows
        await all_.agreed(log)
        for task in (node, another):
            task.cancel()
        await all_.end("a")
        await all_.end("b")
        await connection.close()
