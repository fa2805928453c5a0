"""A server that comes back with less than it had acknowledged: nobody reads over that."""

import asyncio
import shutil

import pytest

from tests.contract.worlds import JetStreamWorld, fact
from unicron.controlplane.runtime.outcomes import Accepted
from unicron.events import LogBroken, LogMismatch

pytestmark = pytest.mark.real


@pytest.fixture
async def nats(tmp_path):
    async with JetStreamWorld(tmp_path) as world:
        yield world


@pytest.mark.parametrize("since", ["nothing", "others wrote"])
async def test_a_log_that_lost_its_end_is_not_read_over(nats, since):
    """The store as it was some events ago comes back, as after a power cut without fsync. What was
    written since then, before anybody reads on, doesn't hide it."""
    log = await nats.open()
    await log.append(*fact(1), fence=None)
    tail = log.read(1)
    await anext(tail)
    await nats.server.stop()
    store = nats.server.root / "store"
    shutil.copytree(store, nats.server.root / "old")
    await nats.server.start()
    for counter in range(2, 9):
        assert isinstance(await log.append(*fact(counter), fence=None), Accepted)
    reached = max([e.seq async for e in up_to(tail, await log.last_seq())])
    await nats.server.kill()
    shutil.rmtree(store)
    (nats.server.root / "old").rename(store)
    await nats.server.start()
    if since == "others wrote":
        for counter in range(20, 60):
            assert isinstance(await log.append(*fact(counter), fence=None), Accepted)
    with pytest.raises(LogBroken) as raised:
        async with asyncio.timeout(20):
            async for entry in tail:  # an advisory may have arrived just before
                reached = entry.seq
    assert raised.value.code == ("E-LOG-SHORT" if since == "nothing" else "E-LOG-CHANGED")
    assert raised.value.first_wrong <= reached


async def up_to(tail, last):
    async for entry in tail:
        yield entry
        if entry.seq >= last:
            return


async def test_a_server_that_comes_back_empty_has_lost_the_log(nats):
    """It isn't the cluster's name or the address that is wrong, since it was there before."""
    log = await nats.open()
    await log.append(*fact(1), fence=None)
    tail = log.read(1)
    await nats.server.kill()
    shutil.rmtree(nats.server.root / "store")
    await nats.server.start()
    with pytest.raises(LogMismatch, match="has gone from the NATS server") as raised:
        async with asyncio.timeout(20):
            while True:  # what arrived before
                await anext(tail)
    assert raised.value.code == "E-LOG-NONE"
    assert "from a copy" in raised.value.fix
