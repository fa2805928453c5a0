"""What only a log on several servers meets: the one that leads the stream dies."""

import asyncio
import contextlib

import pytest

from tests.contract.worlds import CLUSTER, ClusterWorld, decision, fact, take
from unicron.controlplane.runtime.jetstream import NoAnswer
from unicron.controlplane.runtime.outcomes import Accepted, Conflict
from unicron.controlplane.runtime.ports import Hold
from unicron.events import LogUnreachable, subjects

pytestmark = pytest.mark.real
STREAM = subjects.stream_name(CLUSTER)


@pytest.fixture
async def three(trio):
    async with ClusterWorld(trio) as made:
        yield made


async def leader_of(log, stream=STREAM):
    """Name of the server that leads a stream."""
    while True:
        with contextlib.suppress(NoAnswer):
            info = await log.connection.api(f"STREAM.INFO.{stream}", None, dict)
            if leader := info["cluster"].get("leader"):
                return leader
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def killed(trio, name):
    """The server is dead meanwhile."""
    trio.kill(name)
    try:
        yield
    finally:
        trio.start_one(int(name[1:]))


async def test_of_two_racing_writers_exactly_one_wins_every_time(three):
    """Losers get one of two error codes, about as often."""
    logs = [await three.open(), await three.open()]
    fence = 0
    for round_ in range(1, 101):
        outcomes = await asyncio.gather(
            *(log.append(*decision(round_, f"w{n}"), fence=fence) for n, log in enumerate(logs))
        )
        (won,) = [o for o in outcomes if isinstance(o, Accepted)]
        assert [o for o in outcomes if o is not won] == [Conflict(last_seq=won.seq)]
        fence = won.seq
    assert await logs[0].last_seq() == 100


async def test_nothing_is_lost_or_doubled_when_the_streams_leader_dies(three, trio):
    """Appends go on by themselves under the same ids once there is another leader."""
    log, other = await three.open(), await three.open()
    assert await log.append(*decision(1), fence=0) == Accepted(seq=1)
    async with killed(trio, await leader_of(log)):
        facts = [log.append(*fact(n), fence=None) for n in range(1, 6)]
        outcomes = await asyncio.gather(*facts, other.append(*decision(2), fence=1))
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        entries = await take(log.read(1), 7)
    assert sorted(entry.id for entry in entries) == sorted(
        arguments[2] for arguments in [decision(1), decision(2), *(fact(n) for n in range(1, 6))]
    )
    assert await log.last_seq() == 7


async def test_a_lost_answer_across_the_death_of_the_streams_leader(three, trio):
    """The event was stored, its answer lost, the leader killed: it is found, not written again."""
    log = await three.open()
    await log.append(*decision(1), fence=0)
    name, ask = await leader_of(log), log.connection.request

    async def request(subject, data, **options):
        if not subject.startswith("unicron."):
            return await ask(subject, data, **options)
        log.connection.request = ask
        await ask(subject, data, **options)
        trio.kill(name)
        raise NoAnswer("lost", why="the test lost the answer")

    log.connection.request = request
    try:
        assert await log.append(*decision(2), fence=1) == Accepted(seq=2, duplicate=True)
        assert await log.append(*decision(3), fence=2) == Accepted(seq=3)
    finally:
        trio.start_one(int(name[1:]))
    assert await log.last_seq() == 3


async def test_the_lease_survives_the_death_of_a_server(three, trio):
    """Renewals stall for seconds, less than the limit, and then go on with the same holder."""
    lease = (await three.open()).lease()
    held = await lease.put("a/1", Hold())
    log = await three.open()
    name = await leader_of(log, f"KV_{subjects.lease_bucket(CLUSTER)}")
    async with killed(trio, name):
        while True:
            with contextlib.suppress(LogUnreachable):
                assert await lease.look() == held
                break
            await asyncio.sleep(0.1)
        assert (await lease.put("a/1", held)).holder == "a/1"
