"""Control planes as processes of their own on one log, and pretended nodes that give them work."""

import asyncio
import contextlib
import os
import signal
import sys

from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local.spec import demo_task
from unicron.controlplane.replay import Replayer
from unicron.controlplane.runtime.jetstream import JetStreamLog, connect
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.events import (
    AgentStarted,
    Beat,
    Envelope,
    Incarnation,
    LeadershipTaken,
    LogUnreachable,
    NodeAdmitted,
    NodeId,
    Source,
    encode,
    event_id,
    subjects,
)

CLUSTER = "fleet"
TASK = demo_task(iterations=1000, seed=1)
_BEAT_S = 0.2


class Node:
    """Says that its agent has started, and beats. Nothing runs on it: start orders come to
    nothing, and that gives the leader more to decide."""

    def __init__(self, name, log, bus):
        self.name, self._log, self._bus = NodeId(name), log, bus
        self._incarnation = Incarnation(1)

    async def run(self):
        body = AgentStarted(
            node=self.name, address="127.0.0.1", store_port=1, devices=2, device_kind="cpu"
        )
        source = Source(who=f"agent/{self.name}", incarnation=self._incarnation, counter=1)
        envelope = Envelope(id=event_id(source), source=source, written_at_ns=0, body=body)
        subject = subjects.fact(CLUSTER, self.name)
        await self._log.append(subject, encode(envelope), envelope.id, fence=None)
        number = 0
        while True:
            number += 1
            beat = Beat(node=self.name, incarnation=self._incarnation, number=number)
            await self._bus.send_beat(beat)
            await asyncio.sleep(_BEAT_S)


class Fleet:
    """`url`: the log's server or servers, kept by `replicas` of them. Use as ``async with``."""

    def __init__(self, url, folder, *, replicas=1):
        self.url, self.folder, self.replicas = url, folder, replicas
        self.state = ClusterState()
        self.entries = []
        self.processes = {}
        self._tasks = []
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self):
        connection = await connect(self.url, name="test")
        self._open.push_async_callback(connection.close)
        self.log = await self._opened(connection)
        self._open.push_async_callback(self.log.close)
        self._bus = NatsBus(connection, CLUSTER)
        self._tasks.append(asyncio.create_task(self._follow()))
        return self

    async def _opened(self, connection):
        """Servers that have only begun may not know yet who leads them."""
        while True:
            with contextlib.suppress(LogUnreachable):
                return await JetStreamLog.open(connection, CLUSTER, replicas=self.replicas)
            await asyncio.sleep(0.2)

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
        await self._open.aclose()

    async def _follow(self):
        async for recorded in self.log.read(1):
            self.entries.append(recorded)
            self.state = fold(self.state, recorded)

    def node(self, name):
        """A node joins."""
        self._tasks.append(asyncio.create_task(Node(name, self.log, self._bus).run()))

    def address(self, name):
        """Where the process of that name finds the log."""
        return self.url

    async def start(self, name, *arguments):
        """A control plane of that name begins."""
        with (self.folder / f"{name}.err").open("ab") as file:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "unicron.controlplane.runtime.service"),
                *("--cluster", CLUSTER, "--instance", name),
                *("--die-with-parent", str(os.getpid())),
                *arguments,
                env={**os.environ, "UNICRON_NATS": self.address(name)},
                stderr=file,
            )

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    async def end(self, name):
        """SIGTERM, and it ends in order."""
        self.signal(name, signal.SIGTERM)
        assert await self.processes[name].wait() == 0, self.said(name)

    def said(self, name):
        return (self.folder / f"{name}.err").read_text()

    async def until(self, holds, limit_s=40.0):
        """Wait until `holds()`."""
        async with asyncio.timeout(limit_s):
            while not holds():
                for name, process in self.processes.items():
                    code = process.returncode
                    assert code in (None, 0, -signal.SIGKILL), self.said(name)
                await asyncio.sleep(0.01)

    async def leads(self, name):
        """Wait until it has taken leadership, and is the newest that did."""
        await self.until(lambda: self.state.leader == name)

    async def follows(self, name):
        """Wait until it says, after whatever it said before, that another one leads."""
        term = self.state.term
        await self.until(lambda: f"leads since #{term}" in self.said(name))

    def bodies(self, *kinds):
        found = [r.envelope.body for r in self.entries if r.envelope is not None]
        return [body for body in found if isinstance(body, kinds)]

    @property
    def leaderships(self):
        return [body.instance for body in self.bodies(LeadershipTaken)]

    async def works(self, node):
        """Whoever leads now decides: it admits a node."""
        self.node(node)
        await self.until(lambda: node in self.state.nodes and self._is_admitted(node))

    def _is_admitted(self, node):
        return any(body.node == node for body in self.bodies(NodeAdmitted))

    async def check(self):
        """What holds of every log, whoever led: it replays with equal decisions and digests, each
        decision was made by the newest leader on the state that all had, and none twice."""
        last = await self.log.last_seq()
        await self.until(lambda: self.state.seq >= last)
        Replayer(tuple(self.entries[:last])).verify().require()
        assert self.state.gaps == 0
        assert self.state.duplicates == 0
        admitted = [body.node for body in self.bodies(NodeAdmitted)]
        assert len(set(admitted)) == len(admitted)
        ids = [r.id for r in self.entries if r.envelope is not None and r.id]
        assert len(set(ids)) == len(ids)
        return digest(self.state)
