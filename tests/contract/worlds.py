"""The two worlds the contract holds in, and how the tests write events."""

import asyncio
import contextlib

from unicron.controlplane.runtime.jetstream import ApiRefused, JetStreamLog, NoAnswer, connect
from unicron.controlplane.runtime.memory import AckLoss, MemoryLog, MemoryStream
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import (
    AgentStopped,
    AlarmRaised,
    Envelope,
    Source,
    encode,
    event_id,
    subjects,
)

CLUSTER = "demo"
FACT = subjects.fact(CLUSTER, "n1")
DECISION = subjects.control(CLUSTER, "task", "t")


def fact(counter, reason="asked"):
    """Arguments of append() for one fact."""
    source = Source(who="agent/n1", incarnation=1, counter=counter)
    return FACT, *_encoded(source, AgentStopped(node="n1", reason=reason))


def decision(counter, who="a", subject=DECISION):
    """Arguments of append() for one decision."""
    source = Source(who=f"control/{who}", incarnation=1, counter=counter)
    return subject, *_encoded(source, AlarmRaised(code="E-TEST", message=f"from {who}"))


def _encoded(source, body):
    envelope = Envelope(id=event_id(source), source=source, written_at_ns=0, body=body)
    return encode(envelope), envelope.id


async def take(tail, count):
    """The next `count` entries."""
    return [await anext(tail) for _ in range(count)]


class MemoryWorld:
    lease_ms, id_first = 2000, False

    def __init__(self):
        self.stream = MemoryStream(CLUSTER)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def open(self):
        return MemoryLog(self.stream)

    async def write_raw(self, subject, data):
        self.stream.write_raw(subject, data)

    def lose_ack(self, log, *, stored):
        """The next append on `log` ends Unknown."""
        self.stream.lose_ack(AckLoss.STORED if stored else AckLoss.NOT_STORED)


class JetStreamWorld:
    """`ready`: connections made before there is a stream, so that no advisory about them stands
    in it and sequences are the test's own."""

    lease_ms, id_first = 2000, False

    def __init__(self, root, ready=4):
        self.server = NatsServer(root / "nats", CLUSTER)
        self._ready = ready
        self._pool = []
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self):
        await self.server.start()
        self._pool = [await self.connection() for _ in range(self._ready)]
        return self

    async def __aexit__(self, *_):
        await self._open.aclose()
        await self.server.stop()

    async def connection(self, url=None, name="control/test"):
        made = await connect(url or self.server.url, name=name)
        self._open.push_async_callback(made.close)
        return made

    async def open(self, **options):
        """A log on a connection of its own."""
        connection = self._pool.pop() if self._pool else await self.connection()
        made = await JetStreamLog.open(connection, CLUSTER, **options)
        self._open.push_async_callback(made.close)
        return made

    async def write_raw(self, subject, data):
        await self._pool[0].request(subject, data, limit_s=5)

    def lose_ack(self, log, *, stored):
        """The next append on `log` gets no answer, and `log` tries no second time."""
        log._limit_s = 0
        lose_answers(log.connection, 1, stored=stored)


class ClusterWorld(JetStreamWorld):
    """Three servers keep the stream, which goes with the world; the servers stay."""

    lease_ms, id_first = 10_000, True

    def __init__(self, trio, ready=4):
        self.trio = trio
        self._ready = ready
        self._pool = []
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self):
        self._pool = [await self.connection() for _ in range(self._ready)]
        await self.answers("STREAM.NAMES")
        return self

    async def answers(self, operation):
        """Wait until the three have agreed on who leads them."""
        while True:
            with contextlib.suppress(NoAnswer):
                return await self._pool[0].api(operation, {}, dict)
            await asyncio.sleep(0.1)

    async def __aexit__(self, *_):
        last = await self.connection()
        beside = (subjects.lease_bucket(CLUSTER), subjects.snapshot_bucket(CLUSTER))
        for stream in (subjects.stream_name(CLUSTER), f"KV_{beside[0]}", f"OBJ_{beside[1]}"):
            with contextlib.suppress(ApiRefused):
                await last.api(f"STREAM.DELETE.{stream}", None, dict, limit_s=10)
        await self._open.aclose()

    async def connection(self, url=None, name="control/test"):
        return await super().connection(url or self.trio.url, name)

    async def open(self, **options):
        return await super().open(**{"replicas": 3, **options})


def lose_answers(connection, times, *, stored):
    """The next requests under the log's subjects get no answer, though their event is stored."""
    ask = connection.request

    async def request(subject, data, **options):
        nonlocal times
        if not subject.startswith("unicron.") or not times:
            return await ask(subject, data, **options)
        times -= 1
        if stored:
            await ask(subject, data, **options)
        raise NoAnswer("lost", why="the test lost the answer")

    connection.request = request


async def until(condition):
    """Wait for something that is bound to happen; the test's own time-out is the limit."""
    while not condition():
        await asyncio.sleep(0.005)
