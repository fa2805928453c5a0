"""Several engines on one log in memory, each of which can be stopped by itself."""

import contextlib

import anyio

from tests.runtime.cluster import LIMIT_S, QuickPlanner
from unicron import events as ev
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.memory import MemoryBus, MemoryLog, MemoryStream
from unicron.events import codec, subjects

LEASE_MS = 300


class Frozen(MemoryLog):
    """Of a process that is stopped or cut off: nothing comes or goes until it is `open`."""

    def __init__(self, stream):
        super().__init__(stream)
        self.open = anyio.Event()
        self.open.set()

    def freeze(self):
        self.open = anyio.Event()

    async def append(self, *arguments, **more):
        await self.open.wait()
        return await super().append(*arguments, **more)

    def read(self, from_seq):
        whole, log = super().read(from_seq), self
        pull = type(whole).__anext__

        class Tail(type(whole)):
            async def __anext__(tail):
                entry = await pull(tail)
                await log.open.wait()
                return entry

        whole.__class__ = Tail
        return whole

    def lease(self):
        whole, log = super().lease(), self

        class Lease(type(whole)):
            async def look(lease):
                await log.open.wait()
                return await super().look()

            async def put(lease, holder, after):
                await log.open.wait()
                return await super().put(holder, after)

        whole.__class__ = Lease
        return whole


class Pair:
    """Engines a and b; `logs` by name. a leads. `planning`: what some of them are given."""

    def __init__(self, lease_ms=LEASE_MS, planning=None):
        self.planning = planning or {}
        self.stream = MemoryStream("c", lease_ms=lease_ms)
        self.bus = MemoryBus()
        self.logs = {}
        self.engines = {}
        self.scopes = {}
        self.facts = 0

    @contextlib.asynccontextmanager
    async def running(self, *names):
        async with anyio.create_task_group() as group:
            for name in names:
                await self.begin(group, name)
            yield group
            group.cancel_scope.cancel()

    async def begin(self, group, name, on_event=None):
        """It begins, and leads or follows."""
        log = self.logs[name] = self.log()
        engine = Engine(
            log,
            self.bus,
            instance=name,
            solver=QuickPlanner(),
            on_event=on_event,
            strict=True,
            **self.given(name),
        )
        scope = self.scopes[name] = anyio.CancelScope()
        self.engines[name] = engine

        async def run():
            with scope:
                await engine.run()

        group.start_soon(run)
        await self.until(lambda: self.has_begun(name))

    def log(self):
        return Frozen(self.stream)

    def given(self, name):
        """What else its engine is given."""
        return {"planning": self.planning.get(name)}

    def has_begun(self, name):
        return self.engines[name].leading or self.engines[name].follows

    async def until(self, holds):
        with anyio.fail_after(LIMIT_S):
            while not holds():
                await anyio.sleep(0.005)

    async def leads(self, name):
        await self.until(lambda: self.engines[name].leading)

    @property
    def leaderships(self):
        """Names and terms, as the log has them."""
        return [
            (r.envelope.body.instance, r.seq)
            for r in self.stream.entries
            if r.envelope is not None and isinstance(r.envelope.body, ev.LeadershipTaken)
        ]

    async def agree(self):
        """All have folded all of it, hold the same state, and so does whoever replays it."""
        last = len(self.stream.entries)
        await self.until(lambda: all(e.state.seq >= last for e in self.engines.values()))
        state = ClusterState()
        for recorded in self.stream.entries[:last]:
            state = fold(state, recorded)
        assert {digest(e.state) for e in self.engines.values() if e.state.seq == last} == {
            digest(state)
        }
        assert state.gaps == 0
        return state

    @property
    def orders(self):
        """Start orders in the log."""
        return [
            r
            for r in self.stream.entries
            if r.envelope is not None and isinstance(r.envelope.body, ev.WorkerStartOrdered)
        ]

    def agent_says(self, body):
        """The next fact of the agent of n1."""
        self.facts += 1
        source = ev.Source(who="agent/n1", incarnation=ev.Incarnation(1), counter=self.facts)
        envelope = ev.Envelope(id=ev.event_id(source), source=source, written_at_ns=0, body=body)
        fact = subjects.fact("c", ev.NodeId("n1"))
        self.stream.write_raw(fact, codec.encode(envelope))

    def write(self, who, body, term=0):
        """As another process would, past all rules but the log's."""
        source = ev.Source(who=who, incarnation=ev.Incarnation(1), counter=1)
        envelope = ev.Envelope(
            id=ev.event_id(source), source=source, written_at_ns=0, body=body, term=ev.Term(term)
        )
        self.stream.write_raw(subjects.control("c", "cluster", "c"), codec.encode(envelope))
