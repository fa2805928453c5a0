"""Which of several servers a connection is to, and when it leaves one that is of no use."""

import asyncio
import contextlib
import json
import random
import socket

import msgspec
import pytest
from nats.aio.msg import Msg

from tests.contract.worlds import until
from tests.real.test_reconnects import CLUSTER, FACTS, fact
from tests.real.wire import Wire
from tests.support.agents import agent
from unicron.controlplane.runtime.jetstream import JetStreamLog, NoAnswer, connect, connection
from unicron.controlplane.runtime.jetstream.stream import StreamInfo
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.controlplane.runtime.outcomes import Accepted
from unicron.controlplane.runtime.ports import Hold
from unicron.events import ConfigError, Envelope, Source, encode, event_id
from unicron.worker_shim import transport as shim
from unicron.worker_shim.agent import parse

pytestmark = pytest.mark.real


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as made:
        yield made


@pytest.fixture(autouse=True)
def in_order(monkeypatch):
    """Addresses are tried as they are given, and hung connections given up soon."""
    monkeypatch.setattr(random, "shuffle", lambda items: None)
    monkeypatch.setattr(connection, "_PING_INTERVAL_S", 0.1)
    monkeypatch.setattr(shim, "_PING_INTERVAL_S", 0.1)


@pytest.fixture
def hole():
    """Address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"nats://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def nobody():
    """Address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"nats://127.0.0.1:{bound.getsockname()[1]}"


async def test_servers_that_are_down_are_passed_by(server, hole, nobody):
    made = await connect(f"{hole},{nobody},{server.url}", name="control/a")
    await JetStreamLog.open(made, CLUSTER)
    async with agent(f"{hole},{nobody},{server.node_url}", CLUSTER) as reporting:
        reporting.publish(fact(1))
        assert await reporting.flush(10)
    await made.close()


async def test_an_agent_leaves_a_server_that_stores_nothing(server, tmp_path, monkeypatch):
    """It answers, but has no log: as one that lost the others of its cluster."""
    monkeypatch.setattr(shim, "MOVE_AFTER_S", 0.3)
    log = await JetStreamLog.connect(server.url, CLUSTER, name="control/a")
    async with NatsServer(tmp_path / "other", CLUSTER) as other:
        async with agent(f"{other.node_url},{server.node_url}", CLUSTER) as reporting:
            await until(lambda: reporting.is_connected)
            assert reporting.server_address()[1] == port(other)
            for number in range(1, 11):
                reporting.publish(fact(number))
            assert await reporting.flush(10)
            assert reporting.server_address()[1] == port(server)
        entries = [await log.get(seq) for seq in range(1, await log.last_seq() + 1)]
        said = [e.envelope.source.counter for e in entries if e.subject == FACTS]
        assert said == list(range(1, 11))
    await log.close()


async def test_an_agent_that_has_nothing_to_say_leaves_it_too(server, tmp_path, monkeypatch):
    """It asks now and then whether the log is there. Orders would not reach it otherwise."""
    monkeypatch.setattr(shim, "MOVE_AFTER_S", 0.3)
    monkeypatch.setattr(shim, "PROBE_S", 0.1)
    log = await JetStreamLog.connect(server.url, CLUSTER, name="control/a")
    async with (
        NatsServer(tmp_path / "other", CLUSTER) as other,
        agent(f"{other.node_url},{server.node_url}", CLUSTER) as idle,
    ):
        await until(lambda: idle.is_connected)
        assert idle.server_address()[1] == port(other)
        await until(lambda: idle.is_connected and idle.server_address()[1] == port(server))
        last = await log.last_seq()
        client = idle._client
        while client.stats["out_msgs"] < 20:
            await asyncio.sleep(0.05)
        assert idle._client is client  # here it stays,
        assert await log.last_seq() == last  # and what it asks is not stored
    await log.close()


async def test_alone_a_server_is_not_asked(server, monkeypatch):
    """There is no other to go to."""
    monkeypatch.setattr(shim, "PROBE_S", 0.05)
    async with agent(server.node_url, CLUSTER) as idle:
        await until(lambda: idle.is_connected)
        sent = idle._client.stats["out_msgs"]
        await asyncio.sleep(1.5)
        assert idle._client.stats["out_msgs"] == sent


@pytest.mark.parametrize("reads", [False, True])
async def test_a_control_plane_leaves_a_server_that_is_of_no_use(server, monkeypatch, reads):
    """Also if it reads: one that was cut off still has what it had."""
    monkeypatch.setattr(connection, "MOVE_AFTER_S", 0.3)
    async with Wire(server.url) as other:
        made = await connect(f"{server.url},{other.url}", name="control/a")
        log = await JetStreamLog.open(made, CLUSTER)
        assert made.client.connected_url.port == port(server)
        failed = 0
        while made.client.stats["reconnects"] == 0:
            with contextlib.suppress(NoAnswer):
                failed += 1
                await made.request("nobody.hears.this", b"", limit_s=0.2)
            if reads:
                with contextlib.suppress(NoAnswer):
                    assert await log.last_control_seq() == 0
            await asyncio.sleep(0.05)
        assert failed > 1
        assert made.client.connected_url.port == port(other)
        await made.close()


async def test_failures_among_what_succeeds_move_nobody(server, monkeypatch):
    monkeypatch.setattr(connection, "MOVE_AFTER_S", 0.2)
    async with Wire(server.url) as other:
        made = await connect(f"{server.url},{other.url}", name="control/a")
        log = await JetStreamLog.open(made, CLUSTER)
        held = await log.lease().put("a/1", Hold())
        end = asyncio.get_running_loop().time() + 1
        while asyncio.get_running_loop().time() < end:
            with pytest.raises(NoAnswer):
                await made.request("nobody.hears.this", b"", limit_s=0.2)
            held = await log.lease().put("a/1", held)
            await asyncio.sleep(0.05)
        assert made.client.stats["reconnects"] == 0
        await made.close()


@pytest.mark.parametrize("code", [10004, 10008, 10009, 10118, 10158, 10167])
async def test_not_for_now_is_no_answer(server, code):
    """An append is tried again under its id, and the log is not broken for a reader."""
    made = await connect(server.url, name="control/a")
    log = await JetStreamLog.open(made, CLUSTER)
    ask, refusals = made.client.request, 2

    async def request(subject, data, **options):
        nonlocal refusals
        if not refusals:
            return await ask(subject, data, **options)
        refusals -= 1
        error = {"code": 409, "err_code": code, "description": "not now"}
        return Msg(made.client, data=json.dumps({"error": error}).encode())

    made.client.request = request
    with pytest.raises(NoAnswer, match="not now"):
        await log.last_seq()
    assert await log.append(*stored_as(fact(1)), fence=None) == Accepted(seq=1)
    assert refusals == 0
    await made.close()


@pytest.mark.parametrize(
    "cluster,current",
    [
        (None, True),
        ({"leader": "s0"}, True),
        ({"leader": "s0", "replicas": [{"active": 900_000_000}, {"active": 9_000_000_000}]}, True),
        ({"leader": "s0", "replicas": [{"active": 5_000_000_000}] * 2}, False),
        ({"replicas": [{"active": 1}] * 2}, False),
    ],
)
def test_a_server_that_does_not_hear_from_most_others_knows_nothing(cluster, current):
    info = {
        "config": {"name": "UNICRON_x", "subjects": []},
        "state": {"first_seq": 1, "last_seq": 7},
        "created": "2026-11-30T16:00:00Z",
    }
    said = info | ({"cluster": cluster} if cluster else {})
    assert msgspec.convert(said, StreamInfo).is_current is current


@pytest.mark.parametrize(
    "addresses,found",
    [
        (["nats://u:p@a:1", "nats://u:p@b:2"], {"user": "u", "password": "p"}),
        (["nats://u:p@a:1", "nats://v:p@b:2"], {}),
        (["nats://token@a:1"], {}),
        (["a:1", "b"], {}),
    ],
)
def test_servers_learned_of_from_others_get_the_same_credentials(addresses, found):
    assert connection._credentials(addresses) == found


def test_an_agent_takes_several_addresses():
    arguments = ["--cluster", "c", "--node", "n1", "--devices", "1", "--run-dir", "."]
    both = "nats://u:p@a:1,nats://u:p@b:2"
    assert parse(arguments, {"UNICRON_NATS": both}).workers.nats_url == both
    with pytest.raises(ConfigError, match="isn't the address"):
        parse(arguments, {"UNICRON_NATS": "nats://a:1,b:2"})


async def test_what_cannot_be_sent_holds_up_no_reconnect(server):
    """The network is gone with megabytes unsent: the socket is given up, not waited for."""
    async with Wire(server.url) as one, Wire(server.url) as two:
        small_buffer(one._server.sockets[0], socket.SO_RCVBUF)
        made = await connect(f"{one.url},{two.url}", name="control/a")
        broken = socket_of(made.client)
        small_buffer(broken, socket.SO_SNDBUF)
        one.cut(silently=True)
        for _ in range(4):
            await made.client.publish("nobody.hears.this", b"x" * 500_000)
        await until(lambda: unsent(made.client) > 100_000)
        await until(lambda: made.client.stats["reconnects"] == 1)
        assert made.client.connected_url.port == port(two)
        log = await JetStreamLog.open(made, CLUSTER)
        assert await log.last_seq() >= 0
        assert broken.fileno() == -1
        await made.close()


async def test_what_an_agent_cannot_send_leaves_no_socket(server):
    log = await JetStreamLog.connect(server.url, CLUSTER, name="control/a")
    async with Wire(server.node_url) as one, Wire(server.node_url) as two:
        small_buffer(one._server.sockets[0], socket.SO_RCVBUF)
        async with agent(f"{one.url},{two.url}", CLUSTER) as reporting:
            await until(lambda: reporting.is_connected)
            client = reporting._client
            broken = socket_of(client)
            small_buffer(broken, socket.SO_SNDBUF)
            one.cut(silently=True)
            reporting.publish(fact(1, error="x" * 500_000))
            await until(lambda: unsent(client) > 100_000)
            assert await reporting.flush(20)
            assert reporting.server_address()[1] == port(two)
            assert broken.fileno() == -1
    await log.close()


def stored_as(body):
    """Arguments of append() for the first fact of an agent."""
    source = Source(who="agent/n1", incarnation=1, counter=1)
    envelope = Envelope(id=event_id(source), source=source, written_at_ns=0, body=body)
    return FACTS, encode(envelope), envelope.id


def small_buffer(sock, which):
    """The kernel takes little."""
    sock.setsockopt(socket.SOL_SOCKET, which, 4096)


def socket_of(client):
    return client._transport._io_writer.get_extra_info("socket")


def unsent(client):
    """Bytes that wait in this process."""
    return client._transport._io_writer.transport.get_write_buffer_size()


def port(there):
    """Of a server, or of a wire to it."""
    return int(there.url.rpartition(":")[2])
