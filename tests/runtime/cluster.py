"""The real engine on a log in memory, with pretended agents and shims that answer at once."""

import anyio

from tests.core.story import Story
from unicron import events as ev
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.memory import MemoryBus, MemoryLog, MemoryStream
from unicron.controlplane.runtime.ports import Solved
from unicron.events import codec
from unicron.planner.dynamic import dynamic_plan

LIMIT_S = 20.0


class QuickPlanner:
    """Solver that answers at once."""

    async def warm(self):
        pass

    async def solve(self, problem):
        return Solved(dynamic_plan(problem))


class Cluster(Story):
    """Agents and shims as in a story; what is decided, the engine decides."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.bus = MemoryBus()
        self.engine: Engine | None = None
        self.counters: dict[tuple[str, int], int] = {}
        self.held: list[tuple[str, str]] = []

    @property
    def state(self) -> ClusterState:
        return self.engine.state if self.engine is not None else ClusterState()

    @property
    def log(self) -> list[ev.Recorded]:
        return self.stream.entries

    def _append(self, who, incarnation, body, term=0, **kw):
        key = (who, incarnation)
        self.counters[key] = self.counters.get(key, 0) + 1
        source = ev.Source(who=who, incarnation=incarnation, counter=self.counters[key])
        envelope = ev.Envelope(
            id=ev.event_id(source), source=source, written_at_ns=0, body=body, term=term, **kw
        )
        self.stream.write_raw(f"unicron.{self.stream.cluster}.fact.n", codec.encode(envelope))

    def start(self, instance: str, observer=None) -> Engine:
        """An instance of the control plane; run() it."""
        self.engine = Engine(
            MemoryLog(self.stream),
            self.bus,
            instance=instance,
            solver=QuickPlanner(),
            on_event=observer.see if observer else None,
        )
        return self.engine

    async def answer(self) -> None:
        """Carry out what is decided from here on, until cancelled."""
        tail = MemoryLog(self.stream).read(len(self.stream.entries) + 1)
        async for recorded in tail:
            await self.until(lambda s, seq=recorded.seq: s.seq >= seq)
            body = recorded.envelope.body
            if isinstance(body, ev.Decision) and not isinstance(body, ev.PlanRequested):
                self.react(body)

    async def beat(self, spool: int = 0) -> None:
        """Heartbeats of all nodes, until cancelled."""
        number = 0
        while True:
            number += 1
            for node in list(self.state.nodes.values()):
                self.bus.beat(
                    ev.Beat(
                        node=node.node, incarnation=node.incarnation, number=number, spool=spool
                    )
                )
            await anyio.sleep(0.1)

    async def until(self, holds) -> ClusterState:
        with anyio.fail_after(LIMIT_S):
            while not holds(self.state):
                await anyio.sleep(0.005)
        return self.state

    async def train(self) -> None:
        """Two nodes join and the task trains on both."""
        await self.until(lambda s: self.engine.leading)
        for name in ("n1", "n2"):
            self.join(name)
        await self.until(lambda s: len(s.nodes) == 2)
        from tests.core.story import SPEC

        await self.engine.submit(SPEC, by="test")
        await self.until(lambda s: "gpt" in s.tasks and len(s.tasks["gpt"].committed) == 4)

    async def hit(self, worker: str) -> None:
        """Kill a worker and wait until the incident is over."""
        before = sum(bool(i.resolved) for i in self.state.incidents.values())
        self.exit(worker)
        await self.until(
            lambda s: sum(bool(i.resolved) for i in s.incidents.values()) == before + 1
        )
