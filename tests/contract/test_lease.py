"""What every lease promises, in memory and on JetStream; and what only a server can do to one."""

import asyncio

import pytest

from tests.contract.worlds import CLUSTER, JetStreamWorld
from unicron.controlplane.runtime.jetstream import JetStreamLease
from unicron.controlplane.runtime.ports import Hold
from unicron.events import ConfigError, LogUnreachable


@pytest.fixture
async def leases(world):
    """Of two instances."""
    return (await world.open()).lease(), (await world.open()).lease()


async def test_at_first_nobody_has_it(world, leases):
    assert await leases[0].look() == Hold()
    assert leases[0].limit_ms == world.lease_ms


async def test_whoever_takes_it_is_seen_by_all(leases):
    held = await leases[0].put("a/1", Hold())
    assert held.holder == "a/1"
    assert held.revision > 0
    assert [await lease.look() for lease in leases] == [held, held]


async def test_every_renewal_shows(leases):
    first = await leases[0].put("a/1", Hold())
    second = await leases[0].put("a/1", first)
    assert second.revision != first.revision
    assert await leases[1].look() == second


async def test_of_two_that_take_it_at_once_one_has_it(leases):
    assert await leases[0].put("", Hold())
    for _ in range(20):
        seen = await leases[0].look()
        puts = [lease.put(f"{n}/1", seen) for n, lease in enumerate(leases)]
        won = [hold for hold in await asyncio.gather(*puts) if hold is not None]
        assert won == [await leases[0].look()]


async def test_whoever_is_late_gets_none_and_changes_nothing(leases):
    old = await leases[0].put("a/1", Hold())
    new = await leases[1].put("b/1", old)
    assert await leases[0].put("a/1", old) is None
    assert await leases[0].put("a/1", Hold()) is None
    assert await leases[0].put("", old) is None
    assert await leases[0].look() == new


async def test_what_was_given_back_is_nobodys(leases):
    held = await leases[0].put("a/1", Hold())
    free = await leases[0].put("", held)
    assert (free.holder, await leases[1].look()) == ("", free)
    assert (await leases[1].put("b/1", free)).holder == "b/1"


# --- On a server ----------------------------------------------------------------------------------


@pytest.mark.real
async def test_a_server_that_begins_anew_knows_no_lease(nats: JetStreamWorld):
    lease = (await nats.open()).lease()
    held = await lease.put("a/1", Hold())
    await nats.server.kill()
    with pytest.raises(LogUnreachable):
        await lease.look()
    with pytest.raises(LogUnreachable):
        await lease.put("a/1", held)
    await nats.server.start()
    async with asyncio.timeout(20):
        while True:
            try:
                assert await lease.look() == Hold()
                break
            except LogUnreachable:
                await asyncio.sleep(0.05)
    with pytest.raises(LogUnreachable):
        await lease.put("a/1", held)
    assert (await lease.put("a/1", Hold())).holder == "a/1"


@pytest.mark.real
async def test_what_somebody_wrote_there_by_hand_is_nobodys(nats: JetStreamWorld):
    log = await nats.open()
    lease = log.lease()
    await lease.put("a/1", Hold())
    subject = f"$KV.UNICRON_{CLUSTER}_lease.leader"
    await log.connection.request(subject, b"", headers={"KV-Operation": "DEL"}, limit_s=5)
    seen = await lease.look()
    assert (seen.holder, seen.revision > 0) == ("", True)
    assert (await lease.put("b/1", seen)).holder == "b/1"


@pytest.mark.real
async def test_nodes_and_readers_cannot_touch_it(nats: JetStreamWorld):
    log = await nats.open()
    held = await log.lease().put("a/1", Hold())
    for url in (nats.server.node_url, nats.server.reader_url):
        other = JetStreamLease(await nats.connection(url), CLUSTER, replicas=1)
        with pytest.raises(ConfigError, match="permit"):
            await other.put("x/1", held)
    assert await log.lease().look() == held
