"""Bursts of facts: thousands at once from many agents, each through the agents' own publisher and
spool, on a real nats-server that syncs every append. Meanwhile nodes are lost (their connections
end), and that is in the log while most facts still wait.

Some agents hold a connection and have nothing to say; then all of them speak at once.
"""

import asyncio
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import (
    ClusterId,
    ConnectionClosed,
    Incarnation,
    NodeId,
    Recorded,
    Sequence,
    StoreBound,
    subjects,
)
from unicron.worker_shim.identity import Identity, agent_identity
from unicron.worker_shim.publisher import FactPublisher
from unicron.worker_shim.spool import SUFFIX, SpoolFile
from unicron.worker_shim.transport import Transport

CLUSTER = ClusterId("bench")

#: name -> (what it is, goal or None)
METRICS: dict[str, tuple[str, float | None]] = {
    "fact_ms_p50": ("a fact published to acknowledged, nothing else going on, p50", None),
    "fact_ms_p99": ("the same, p99", None),
    "connect_s": ("all agents connected", None),
    "burst_facts_per_s": ("facts of the burst stored per second", None),
    "loss_to_log_in_burst_ms": ("loss of a node to its fact in the log, in the burst", 1000),
    "loss_to_log_in_burst_ms_max": ("the same, the slowest", None),
    "fact_cpu_us": ("processor time to take a fact, µs: number, encode, spool", None),
    "waiting_at_loss": ("facts that waited when the first node was lost", None),
    "all_speak_facts_per_s": ("facts stored per second when all agents speak at once", None),
    "all_speak_loss_to_log_ms": ("loss of a node to its fact in the log meanwhile", 1000),
    "all_speak_loss_to_log_ms_max": ("the same, the slowest", None),
    "all_speak_in_flight": ("facts on their way to the log when the first was lost", None),
}
_SINGLES = 200
_LOSSES = 6
_LOSS_EVERY_S = 0.3
_LIMIT_S = 300.0
_BATCH = 50


class Sizes(Protocol):
    """How large the bursts are."""

    agents: int
    connected: int
    facts: int


class Light(asyncio.Protocol):
    """The connection of an agent that has little to say, with the agents' own publisher. By hand:
    two thousand of nats-py's clients would keep a core busy, and be the bottleneck."""

    def __init__(self, url: str, node: str) -> None:
        where = urlsplit(url)
        self.identity = agent_identity(CLUSTER, NodeId(node), Incarnation(1))
        self.name = self.identity.client
        self.facts = FactPublisher(self.identity, self._attempt)
        self.in_flight = False
        said = {
            "verbose": False,
            "headers": True,
            "name": self.name,
            "user": where.username,
            "pass": where.password,
        }
        self._inbox = f"_INBOX.{node}"
        subscriptions = (subjects.order(CLUSTER, "node", node), self._inbox)
        self._hello = b"".join(
            [
                f"CONNECT {json.dumps(said)}\r\n".encode(),
                *(f"SUB {what} {n}\r\n".encode() for n, what in enumerate(subscriptions, 1)),
                b"PING\r\n",
            ]
        )
        self._end = b""
        self._answer: asyncio.Future[str] | None = None
        self.ready = asyncio.Event()
        self.transport: asyncio.Transport | None = None

    async def _attempt(self, message_id: str, data: bytes) -> Sequence | str:
        """One in flight; the answer is the log's."""
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        head = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n".encode()
        subject = subjects.fact(CLUSTER, self.identity.node)
        sizes = f"{len(head)} {len(head) + len(data)}"
        line = f"HPUB {subject} {self._inbox} {sizes}\r\n".encode()
        self.transport.write(line + head + data + b"\r\n")
        self.in_flight = True
        ack = json.loads(await self._answer)
        self.in_flight = False
        return str(ack["error"]) if "error" in ack else Sequence(ack["seq"])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        *lines, self._end = (self._end + data).split(b"\r\n")
        for line in lines:
            if line == b"PING":
                self.transport.write(b"PONG\r\n")
            elif line == b"PONG":
                self.ready.set()
            elif line.startswith(b"{") and self._answer is not None:
                self._answer.set_result(line.decode())

    def lose(self) -> int:
        """It ends, without a word; the wall time in ns."""
        assert self.transport is not None
        self.transport.abort()
        return time.time_ns()


class Crowd:
    """`loud` agents that have much to say, with the agents' own transport, and `light` ones."""

    def __init__(self, url: str, folder: Path, loud: int, light: int) -> None:
        self._url = url
        self._running: list[asyncio.Task[None]] = []
        self.light = [Light(url, f"i{number}") for number in range(light)]
        self.loud: list[Transport] = []
        for number in range(loud):
            identity = agent_identity(CLUSTER, NodeId(f"n{number}"), Incarnation(time.time_ns()))
            spool = SpoolFile(str(folder / f"n{number}{SUFFIX}"), identity.owner)
            self.loud.append(Transport(identity, url, lambda *_: None, spool=spool))

    async def connect(self) -> float:
        """Seconds until all are connected; some at a time, as the server's backlog wants it."""
        start, loop = time.monotonic(), asyncio.get_running_loop()
        host, _, port = urlsplit(self._url).netloc.rpartition("@")[2].partition(":")
        for first in range(0, len(self.light), _BATCH):
            batch = self.light[first : first + _BATCH]
            made = (
                loop.create_connection(lambda one=one: one, host, int(port))  # type: ignore[misc]
                for one in batch
            )
            await asyncio.gather(*made)
            await asyncio.gather(*(one.ready.wait() for one in batch))
        for first in range(0, len(self.loud), _BATCH):
            agents = self.loud[first : first + _BATCH]
            self._running += [asyncio.create_task(agent.run()) for agent in agents]
            while not all(agent.is_connected for agent in agents):
                await asyncio.sleep(0.005)
        return time.monotonic() - start

    def victims(self, count: int) -> list[Light]:
        """Agents to lose, which have nothing to say."""
        taken, self.light = self.light[-count:], self.light[:-count]
        return taken

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for agent in self.loud:
            agent.facts.close()
        for one in self.light:
            if one.transport is not None:
                one.transport.abort()


async def singles(agent: Transport) -> dict[str, float]:
    """One fact at a time."""
    took: list[float] = []
    for number in range(_SINGLES):
        start = time.perf_counter()
        agent.publish(_fact(agent.identity, number))
        assert await agent.flush(_LIMIT_S)
        took.append(1000 * (time.perf_counter() - start))
    return {"fact_ms_p50": percentile(took, 50), "fact_ms_p99": percentile(took, 99)}


async def burst(crowd: Crowd, log: JetStreamLog, given: Sizes) -> dict[str, float]:
    """All at once; nodes are lost one after the other while it lasts."""
    loud = crowd.loud
    before, cpu = await log.last_seq(), time.process_time()
    start = time.monotonic()
    for number in range(given.facts):
        agent = loud[number % len(loud)]
        assert agent.publish(_fact(agent.identity, number)), "the spool is full"
    taken_s = time.process_time() - cpu
    lost: dict[str, int] = {}
    waited: list[int] = []
    for victim in crowd.victims(_LOSSES):
        await asyncio.sleep(_LOSS_EVERY_S)
        lost[victim.name] = victim.lose()
        waited.append(sum(agent.facts.waiting for agent in loud))
    assert waited[-1] > 0, "the burst was over before the last node was lost: give it more facts"
    flushed = await asyncio.gather(*(agent.flush(_LIMIT_S) for agent in loud))
    assert all(flushed)
    took = time.monotonic() - start
    delays = await _delays_ms(log, before, lost)
    return {
        "burst_facts_per_s": given.facts / took,
        "loss_to_log_in_burst_ms": statistics.median(delays),
        "loss_to_log_in_burst_ms_max": max(delays),
        "fact_cpu_us": 1e6 * taken_s / given.facts,
        "waiting_at_loss": float(waited[0]),
    }


async def all_speak(crowd: Crowd, log: JetStreamLog, given: Sizes) -> dict[str, float]:
    """Every agent has its share of the burst to say; nodes are lost while each has a fact in the
    server's queue."""
    victims = crowd.victims(_LOSSES)
    before, speakers = await log.last_seq(), crowd.light
    running = [asyncio.create_task(agent.facts.run()) for agent in speakers]
    start = time.monotonic()
    for number in range(given.facts):
        agent = speakers[number % len(speakers)]
        agent.facts.publish(_fact(agent.identity, number))
    lost: dict[str, int] = {}
    in_flight: list[int] = []
    for victim in victims:
        await asyncio.sleep(_LOSS_EVERY_S / _LOSSES)
        in_flight.append(sum(agent.in_flight for agent in speakers))
        lost[victim.name] = victim.lose()
    assert sum(agent.facts.waiting for agent in speakers), "it was over before the last was lost"
    await asyncio.gather(*(agent.facts.flush(_LIMIT_S) for agent in speakers))
    took = time.monotonic() - start
    for task in running:
        task.cancel()
    delays = await _delays_ms(log, before, lost)
    return {
        "all_speak_facts_per_s": given.facts / took,
        "all_speak_loss_to_log_ms": statistics.median(delays),
        "all_speak_loss_to_log_ms_max": max(delays),
        "all_speak_in_flight": float(in_flight[0]),
    }


async def _delays_ms(log: JetStreamLog, after: Sequence, lost: dict[str, int]) -> list[float]:
    """From the loss of each to its fact in the log, by the server's time stamp of it."""
    delays: dict[str, float] = {}

    def seen(recorded: Recorded) -> None:
        body = recorded.envelope.body if recorded.envelope is not None else None
        if isinstance(body, ConnectionClosed) and body.client in lost:
            delays[body.client] = (recorded.at_ns - lost[body.client]) / 1e6

    tail = log.read(after + 1)
    try:
        async with asyncio.timeout(_LIMIT_S):
            async for recorded in tail:
                seen(recorded)
                if len(delays) == len(lost):
                    break
    finally:
        await tail.aclose()
    return list(delays.values())


def _fact(identity: Identity, number: int) -> StoreBound:
    return StoreBound(node=identity.node, address="192.0.2.1", store_port=number % 60_000)


async def busy(given: Sizes) -> dict[str, float]:
    """One server and its agents."""
    found: dict[str, float] = {}
    folder = Path(tempfile.mkdtemp(prefix="unicron-"))
    try:
        async with NatsServer(folder / "nats", CLUSTER) as server:
            log = await JetStreamLog.connect(server.url, CLUSTER, name="control/bench")
            light = max(given.connected - given.agents, 2 * _LOSSES + 1)
            crowd = Crowd(server.node_url, folder, given.agents, light)
            try:
                found["connect_s"] = await crowd.connect()
                found |= await singles(crowd.loud[0])
                found |= await burst(crowd, log, given)
                found |= await all_speak(crowd, log, given)
            finally:
                await crowd.close()
                await log.close()
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def percentile(values: list[float], percent: int) -> float:
    """Of the sorted values, the one there."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
