"""Guarantee: news of a lost node doesn't wait until a burst of other facts is over."""

import asyncio
import contextlib

import pytest

from tests.real.fleet import CLUSTER
from tests.support.agents import connected_agent
from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import ConnectionClosed, StoreBound

pytestmark = pytest.mark.real

_AGENTS, _FACTS_EACH = 60, 50


async def test_a_loss_comes_before_most_of_what_all_others_have_to_say(tmp_path):
    async with contextlib.AsyncExitStack() as ends:
        server = await ends.enter_async_context(NatsServer(tmp_path / "nats", CLUSTER))
        log = await JetStreamLog.connect(server.url, CLUSTER, name="control/test")
        ends.push_async_callback(log.close)
        loud = [
            await ends.enter_async_context(connected_agent(server.node_url, CLUSTER, f"n{i}"))
            for i in range(_AGENTS)
        ]
        async with connected_agent(server.node_url, CLUSTER, "lost") as lost:
            name = lost.identity.client
            for number in range(_FACTS_EACH):
                for one in loud:
                    fact = StoreBound(node=one.identity.node, address="h", store_port=number)
                    assert one.publish(fact)
            begins = await log.last_seq()
            while await log.last_seq() < begins + _AGENTS:
                await asyncio.sleep(0.005)
        waited = sum(one.facts.waiting for one in loud)
        assert waited > _AGENTS * _FACTS_EACH * 0.8  # it was lost early in the burst
        assert all(await asyncio.gather(*(one.flush(60) for one in loud)))
        order = [r.envelope.body async for r in _up_to(log, await log.last_seq())]
    at = next(
        i for i, b in enumerate(order) if isinstance(b, ConnectionClosed) and b.client == name
    )
    after = sum(isinstance(body, StoreBound) for body in order[at:])
    assert after > _AGENTS * _FACTS_EACH / 2


async def _up_to(log, last):
    async for recorded in log.read(1):
        yield recorded
        if recorded.seq == last:
            return
