"""Guarantee: after N reconnects nothing has leaked. Connections are cut by the server itself, 200
times each: that of a control plane's log and bus, and those of an agent or a worker."""

import asyncio
import gc
import json
import os

import nats
import pytest

from tests.contract.worlds import until
from unicron.controlplane.runtime.jetstream import JetStreamLog, connect
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.controlplane.runtime.ports import Hold
from unicron.events import PeerErrorReported, subjects
from unicron.worker_shim.identity import agent_identity
from unicron.worker_shim.transport import Transport

pytestmark = pytest.mark.real

CLUSTER = "leaks"
REPEAT = 200


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as made:
        yield made


class Operator:
    """Looks into the server, and ends connections there. Use as ``async with``."""

    def __init__(self, server):
        self._url = server.system_url

    async def __aenter__(self):
        self._client = await nats.connect(self._url, name="operator")
        return self

    async def __aexit__(self, *_):
        await self._client.close()

    async def ask(self, what, **details):
        answer = await self._client.request(
            f"$SYS.REQ.SERVER.PING.{what}", json.dumps(details).encode(), timeout=5
        )
        found = json.loads(answer.data)
        return found["server"]["id"], found["data"]

    async def kick(self, name):
        """End the connection of that name; True if there was one."""
        server, found = await self.ask("CONNZ")
        for one in found["connections"]:
            if one.get("name") == name:
                body = json.dumps({"cid": one["cid"]}).encode()
                await self._client.request(f"$SYS.REQ.SERVER.{server}.KICK", body, timeout=5)
                return True
        return False

    async def held(self, log):
        """What the server holds for its clients."""
        _, connections = await self.ask("CONNZ")
        _, subscriptions = await self.ask("SUBSZ")
        stream = subjects.stream_name(CLUSTER)
        info = await log.connection.api(f"STREAM.INFO.{stream}", None, dict)
        return {
            "connections": connections["num_connections"],
            "subscriptions": subscriptions["num_subscriptions"],
            "consumers": info["state"]["consumer_count"],
        }

    async def holds(self, log, expected):
        """Wait until it holds that again: consumers of a connection that is gone go after 5 s."""
        async with asyncio.timeout(20):
            while await self.held(log) != expected:
                await asyncio.sleep(0.1)


def own():
    """What this process holds: open files and sockets, tasks."""
    gc.collect()
    return {"files": len(os.listdir("/proc/self/fd")), "tasks": len(asyncio.all_tasks())}


def of(client):
    """What nats-py holds for a connection."""
    return {
        "subscriptions": len(client._subs),
        "answers": len(client._resp_map),
        "pongs": len(client._pongs),
    }


async def test_reconnects_of_a_control_plane_leave_nothing(server):
    async with Operator(server) as operator:
        connection = await connect(server.url, name="control/a")
        log = await JetStreamLog.open(connection, CLUSTER)
        bus, lease = NatsBus(connection, CLUSTER), log.lease()
        await bus.on_beats(lambda beat: None)
        await bus.on_asks(lambda name: None)
        held = await lease.put("a/1", Hold())
        tail, read = log.read(1), []

        async def follow():
            async for recorded in tail:
                read.append(recorded.seq)  # noqa: PERF401 - others watch it grow

        following = asyncio.create_task(follow())

        async def cut(times):
            nonlocal held
            for _ in range(times):
                before = connection.client.stats["reconnects"], len(read)
                assert await operator.kick("control/a")
                await until(lambda b=before: connection.client.stats["reconnects"] > b[0])
                # Its advisories stand in the log: the tail reads on, and the lease is renewed.
                await until(lambda b=before: len(read) >= b[1] + 2)
                held = await lease.put("a/1", held)
                assert held is not None

        await until(lambda: tail.reopened == 0)
        there = await operator.held(log)
        assert there["consumers"] == 1
        await cut(5)
        before = own(), of(connection.client)
        await cut(REPEAT)
        assert connection.client.stats["reconnects"] == REPEAT + 5
        await operator.holds(log, there)
        await until(lambda: (own(), of(connection.client)) == before)  # a request may be on its way
        assert read == list(range(1, len(read) + 1))
        following.cancel()
        await asyncio.wait({following})
        await log.close()
        await connection.close()


async def test_reconnects_of_an_agent_or_worker_leave_nothing(server):
    async with Operator(server) as operator:
        log = await JetStreamLog.connect(server.url, CLUSTER, name="control/a")
        identity = agent_identity(CLUSTER, "n1", 1)
        transport = Transport(identity, server.node_url, lambda *_: None)
        running = asyncio.create_task(transport.run())
        connects, number = 0, 0

        async def cut(times):
            nonlocal connects, number
            for _ in range(times):
                await until(lambda: transport.is_connected)
                client = transport._client
                assert await operator.kick(identity.client)
                await until(lambda c=client: transport._client not in (None, c))
                connects += 1
                number += 1
                transport.publish(fact(number))
                assert await transport.flush(10)

        await cut(5)
        before, there = (own(), of(transport._client)), await operator.held(log)
        await cut(REPEAT)
        assert connects == REPEAT + 5
        await operator.holds(log, there)
        assert (own(), of(transport._client)) == before
        running.cancel()
        await asyncio.wait({running})
        entries = [await log.get(seq) for seq in range(1, await log.last_seq() + 1)]
        said = [e.envelope.source.counter for e in entries if e.subject == FACTS]
        assert said == list(range(1, number + 1))
        await log.close()


FACTS = subjects.fact(CLUSTER, "n1")


def fact(number, error="closed by peer"):
    return PeerErrorReported(
        task="t",
        worker="n1/0",
        incarnation=1,
        generation=1,
        iteration=number,
        phase="reduction",
        error=error,
    )
