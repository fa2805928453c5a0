"""Engines on a log in memory that keep snapshots."""

import logging

from tests.core.story import SPEC
from tests.runtime.pair import Pair
from unicron import events as ev
from unicron.controlplane.core.decide import decide
from unicron.controlplane.runtime.memory import MemoryLog, MemorySnapshots
from unicron.controlplane.runtime.snapshots import SnapshotKeeper


class Reads(MemoryLog):
    """Notes where reading begins."""

    def __init__(self, stream):
        super().__init__(stream)
        self.begins = []

    def read(self, from_seq):
        self.begins.append(from_seq)
        return super().read(from_seq)


class Kept(Pair):
    """Instances that keep snapshots in one place; `said` by whom they began from one."""

    def __init__(self, every=1, stores=None):
        super().__init__(lease_ms=60_000)  # nobody is silent here, however slow the machine
        self.stores = stores or [MemorySnapshots(keep=3)]
        self.every = every
        self.said = []

    @property
    def kept(self):
        return self.stores[0].kept

    def log(self):
        return Reads(self.stream)

    def given(self, name):
        keeper = SnapshotKeeper(self.stores, every=self.every, tell=self.said.append)
        return {"snapshots": keeper}

    def has_begun(self, name):
        """It leads, or follows another one and isn't just about to lead."""
        engine, holder = self.engines[name], self.stream.hold.holder.partition("/")[0]
        return engine.leading or (engine.follows and holder not in ("", name))

    async def agree(self):
        """Once there is nothing more to decide."""

        def rests():
            state = next(iter(self.engines.values())).state
            last = len(self.stream.entries)
            return state.seq == last and decide(state) is None and not state.plan.request

        await self.until(rests)
        return await super().agree()

    async def night(self, count=30):
        """Something happens under the leadership of a, which ends in order."""
        async with self.running("a"):
            for _ in range(count):
                self.agent_says(ev.AgentStopped(node=ev.NodeId("n1"), reason="asked"))
            await self.engines["a"].submit(SPEC, by="test")
            await self.agree()
        self.engines.clear()
        return len(self.stream.entries)


def warnings(caplog):
    about = [r for r in caplog.records if r.name.endswith(".snapshots")]
    return [r.getMessage() for r in about if r.levelno >= logging.WARNING]
