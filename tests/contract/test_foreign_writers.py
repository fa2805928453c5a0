"""What anybody with a node's credentials may write: it is read as what it is, and stops nobody."""

import asyncio
import contextlib
import json
from urllib.parse import urlsplit

import pytest

from tests.contract.worlds import CLUSTER, FACT, JetStreamWorld, decision, fact, take
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.jetstream.client import as_told
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.controlplane.runtime.outcomes import Accepted, Conflict
from unicron.controlplane.runtime.solver import ChildSolver
from unicron.events import AgentStarted, Envelope, Source, encode, event_id

pytestmark = pytest.mark.real

HEADERS = [
    b"",
    b"NATS/1.0",
    b"garbage\r\n\r\n",
    b"NATS/1.0 \xff\xff\xff\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nStatus: 100\r\nNats-Last-Stream: none\r\n\r\n",
    b"NATS/1.0\r\nStatus: 100\r\nNats-Consumer-Stalled: x y\r\n\r\n",
]
SUBJECTS = [b"n\xff\xfe", b"\xe2\x82", b"a\xc3\xa9\xc3", "ünï".encode()]


@pytest.fixture
async def world(tmp_path):
    async with JetStreamWorld(tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def raw(url):
    """Sends bytes as they are, and waits until the server has dealt with them."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    hello = {"user": parts.username, "pass": parts.password, "headers": True, "verbose": False}

    async def send(data):
        writer.write(data + b"PING\r\n")
        async with asyncio.timeout(5):
            while (line := await reader.readline()) != b"PONG\r\n":
                assert not line.startswith(b"-ERR"), line

    await reader.readline()
    await send(f"CONNECT {json.dumps(hello)}\r\n".encode())
    try:
        yield send
    finally:
        writer.close()
        await writer.wait_closed()


def published(subject, headers, data):
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (subject, len(data), data)
    sizes = len(headers), len(headers) + len(data)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, *sizes, headers, data)


async def test_no_header_and_no_subject_keeps_anybody_from_reading_on(world):
    log = await world.open()
    tail = log.read(1)
    first = await log.append(*fact(1), fence=None)
    async with raw(world.server.node_url) as send:
        for number, headers in enumerate(HEADERS):
            await send(published(FACT.encode(), headers, b'{"header":%d}' % number))
        for number, name in enumerate(SUBJECTS):
            subject = FACT.rpartition(".")[0].encode() + b"." + name
            await send(published(subject, b"", b'{"subject":%d}' % number))
    async with asyncio.timeout(20):
        while True:
            entry = await anext(tail)
            if b'{"subject":%d}' % (len(SUBJECTS) - 1) == entry.data:
                break
    assert tail.reopened == 0
    last = entry.seq
    entries = await take(log.read(1), last)
    assert [e.seq for e in entries] == list(range(1, last + 1))
    assert entries[first.seq - 1].data == fact(1)[1]
    assert sum(e.data.startswith(b'{"header"') for e in entries) == len(HEADERS)
    assert sum(e.data.startswith(b'{"subject"') for e in entries) == len(SUBJECTS)
    assert [await log.get(e.seq) for e in entries] == entries  # as the server's API tells it


@pytest.mark.parametrize(
    "subject, told",
    [
        (b"plain", "plain"),
        ("ünï".encode(), "ünï"),
        (b"n\xff\xfe", "n\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd\ufffd"),
        (b"a\xc3\xa9\xc3", "aé\ufffd"),
    ],
)
def test_bytes_that_are_no_text(subject, told):
    assert as_told(subject).decode() == told


async def test_a_fact_under_the_id_of_a_decision_is_not_taken_for_it(world):
    log = await world.open()
    subject, data, event = decision(1)
    async with raw(world.server.node_url) as send:
        headers = f"NATS/1.0\r\nNats-Msg-Id: {event}\r\n\r\n".encode()
        await send(published(FACT.encode(), headers, b"{}"))
    assert await log.append(subject, data, event, fence=0) == Conflict(last_seq=0)
    assert await log.last_control_seq() == 0
    assert isinstance(await log.append(*decision(2), fence=0), Accepted)


@pytest.mark.parametrize("name", ["n 1", "*", "", "n\r\nPUB x 0\r\n\r\n", "x" * 5000])
async def test_a_node_that_nobody_can_speak_to_stops_no_decision(world, name):
    log = await world.open()
    engine = Engine(
        log, NatsBus(log.connection, CLUSTER), instance="a", solver=ChildSolver(), version="t"
    )
    running = asyncio.create_task(engine.run())
    try:
        for counter, node in enumerate((name, "n2"), start=1):
            source = Source(who=f"agent/{node}", incarnation=1, counter=1)
            started = AgentStarted(
                node=node, address="a", store_port=1, devices=1, device_kind="cpu"
            )
            made = Envelope(id=event_id(source), source=source, written_at_ns=0, body=started)
            await log.append(FACT, encode(made), f"{counter}", fence=None)
        async with asyncio.timeout(20):
            while any(
                node not in engine.state.nodes or engine.state.nodes[node].status == "joining"
                for node in (name, "n2")
            ):
                await engine.moved()
    finally:
        running.cancel()
        await asyncio.wait([running])
