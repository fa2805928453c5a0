"""A reader that is too slow loses nothing: what its queues drop is noticed and read again."""

import asyncio

import pytest
from nats.errors import SlowConsumerError

from tests.contract.test_jetstream import fill_quickly
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState

pytestmark = pytest.mark.real

_EVENTS, _ROOM = 3000, 100


def overflow(connection):
    """From here on nats-py holds so many messages for a subscription; the list grows with each
    that it drops."""
    client = connection.client
    subscribe, on_error, dropped = client.subscribe, client._error_cb, []

    async def cramped(subject, **options):
        return await subscribe(subject, pending_msgs_limit=_ROOM, **options)

    async def heard(error):
        if isinstance(error, SlowConsumerError):
            dropped.append(error)
        await on_error(error)

    client.subscribe, client._error_cb = cramped, heard
    return dropped


async def test_an_overflowing_queue_is_read_again(nats):
    log, reader = await nats.open(), await nats.open()
    dropped = overflow(reader.connection)
    tail, state, seen = reader.read(1), ClusterState(), []
    filling = asyncio.create_task(fill_quickly(log, batches=3, count=_EVENTS // 3, size=300))
    async for recorded in tail:
        state = fold(state, recorded)  # raises if one is left out
        seen.append(recorded.seq)
        if len(seen) % 1000 == 1:
            await filling  # it stands still while thousands arrive
        if recorded.seq == _EVENTS:
            break
    assert seen == list(range(1, _EVENTS + 1))
    assert len(dropped) > _ROOM
    assert tail.reopened >= 1
    assert state.seq == _EVENTS


async def test_an_overflow_at_the_end_is_noticed_though_nothing_follows(nats):
    """By what the server says that it had sent."""
    log, reader = await nats.open(), await nats.open()
    dropped = overflow(reader.connection)
    tail = reader.read(1)
    waiting = asyncio.create_task(anext(tail))
    while tail.reopened < 0:
        await asyncio.sleep(0.005)
    await fill_quickly(log, batches=1, count=1000, size=300)
    seen = [(await waiting).seq]
    while seen[-1] < 1000:
        seen.append((await anext(tail)).seq)
    assert seen == list(range(1, 1001))
    assert dropped
    assert tail.reopened >= 1
