"""Whoever is told to end does, whatever arrives in that moment."""

import asyncio

import pytest
from nats.aio.msg import Msg

from tests.support.agents import connected_agent
from unicron.controlplane.runtime.jetstream import connect
from unicron.controlplane.runtime.natsserver import NatsServer

pytestmark = pytest.mark.real

CLUSTER = "ends"


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as made:
        yield made


def answered_when_cancelled(client):
    """Its requests wait for ever, and are answered in the moment in which they are cancelled: then
    asyncio.wait_for, with which nats-py waits, forgets the cancellation in Python 3.11."""

    async def request(*_, **options):
        answer = asyncio.get_running_loop().create_future()
        try:
            await answer
        except asyncio.CancelledError:
            return Msg(client, data=b"{}")

    client.request = request


async def cancelled(work):
    """`work` ends when it is told to."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    return task.cancelled()


async def test_a_cancellation_that_comes_with_an_answer_is_kept(server):
    made = await connect(server.url, name="control/a")
    answered_when_cancelled(made.client)

    async def for_ever():
        while True:
            await made.request("x", b"", limit_s=60)

    assert await cancelled(for_ever())
    await made.close()


async def test_an_agent_keeps_it_too(server):
    async with connected_agent(server.node_url, CLUSTER) as reporting:
        answered_when_cancelled(reporting._client)

        async def for_ever():
            while True:
                await reporting.put("x", b"")

        assert await cancelled(for_ever())
