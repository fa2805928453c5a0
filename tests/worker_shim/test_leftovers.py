"""What dead processes left is delivered by the agent: all of it, in order, once, and first."""

import asyncio
import os

import pytest

from tests.worker_shim.nats_server import CLUSTER
from tests.worker_shim.test_publisher import Flaky, Running, peer_error
from unicron.events import AgentStarted, FactsDropped, codec
from unicron.worker_shim import leftovers, spool
from unicron.worker_shim.identity import agent_identity, worker_identity
from unicron.worker_shim.leftovers import Leftovers
from unicron.worker_shim.publisher import FactPublisher
from unicron.worker_shim.spool import SpoolFile

AGENT = agent_identity(CLUSTER, "n1", 100)


async def leave(folder, identity, count, at=0, name=None):
    """A process of this identity took facts at `at`, `at` + 10, … and died with them."""
    times = iter(range(at, at + 10 * count, 10))
    path = folder / (name or f"{identity.who.replace('/', '.')}.{identity.incarnation}.spool")
    file = SpoolFile(str(path), identity.owner)
    facts = FactPublisher(identity, Flaky(), clock_ns=lambda: next(times), spool=file)
    for number in range(count):
        facts.publish(peer_error(number))
    file.close()
    return path


def worker(incarnation, device=0, cluster=CLUSTER):
    return worker_identity(cluster, f"n1/{device}", incarnation, "t")


def started():
    return AgentStarted(node="n1", address="", store_port=1, devices=1, device_kind="cpu")


async def take_over(folder, flaky, *, deliver=True):
    """As an agent does that starts; what the log has afterwards, as (who, incarnation, number)."""
    facts = FactPublisher(AGENT, flaky)
    left = Leftovers(str(folder), CLUSTER, facts)
    await left.of_earlier_lives()
    facts.publish(started())
    if deliver:
        async with Running(facts):
            assert await facts.flush(10) and await left.delivered()
    return [(e.source.who, e.source.incarnation, e.source.counter) for e in flaky.stored.values()]


def of(identity, count):
    return [(identity.who, identity.incarnation, n) for n in range(1, count + 1)]


OWN = [("agent/n1", 100, 1)]


async def test_all_that_was_left_comes_before_the_new_life(folder):
    earlier = [agent_identity(CLUSTER, "n1", n) for n in (9, 10, 90)]
    for life in reversed(earlier):
        await leave(folder, life, 3)
    flaky = Flaky("lost", "lost")
    told = await take_over(folder, flaky)
    assert told == [*of(earlier[0], 3), *of(earlier[1], 3), *of(earlier[2], 3), *OWN]
    assert os.listdir(folder) == []


async def test_sources_come_in_the_order_of_their_time(folder):
    await leave(folder, worker(5), 3, at=0)
    await leave(folder, worker(2, device=1), 3, at=5)
    await leave(folder, worker(6), 2, at=2)  # a clock that was set back, but a later life
    told = await take_over(folder, Flaky())
    w0, w1 = "worker/n1/0", "worker/n1/1"
    first = [(w0, 5, 1), (w1, 2, 1), (w0, 5, 2), (w1, 2, 2), (w0, 5, 3), (w0, 6, 1), (w0, 6, 2)]
    assert told == [*first, (w1, 2, 3), *OWN]


async def test_who_dies_while_delivering_leaves_the_rest_to_the_next(folder):
    await leave(folder, worker(5), 30)
    await leave(folder, worker(2, device=1), 30, at=1000)
    flaky = Flaky(*["stored"] * 40, *["lost"] * 1000)
    facts = FactPublisher(AGENT, flaky)
    left = Leftovers(str(folder), CLUSTER, facts)
    await left.of_earlier_lives()
    async with Running(facts):
        while len(flaky.attempts) < 42:
            await asyncio.sleep(0.001)
    assert os.listdir(folder) == ["worker.n1.1.2.spool"]
    flaky.outcomes.clear()
    told = await take_over(folder, flaky)
    assert told == [*of(worker(5), 30), *of(worker(2, device=1), 30), *OWN]
    assert os.listdir(folder) == []


async def test_a_dead_worker_is_delivered_and_a_successor_can_wait_for_that(folder):
    path = await leave(folder, worker(5), 2)
    flaky = Flaky()
    facts = FactPublisher(AGENT, flaky)
    left = Leftovers(str(folder), CLUSTER, facts)
    assert await left.delivered()
    left.of_worker(str(path))
    waiting = asyncio.create_task(left.delivered())
    await asyncio.sleep(0.01)
    assert not waiting.done() and facts.waiting == 2
    async with Running(facts):
        assert await waiting
    assert not path.exists() and len(flaky.stored) == 2
    left.of_worker(str(path))  # nothing there
    assert await left.delivered()


async def test_when_the_agent_ends_nobody_waits(folder):
    path = await leave(folder, worker(5), 2)
    left = Leftovers(str(folder), CLUSTER, FactPublisher(AGENT, Flaky()))
    left.of_worker(str(path))
    waiting = asyncio.create_task(left.delivered())
    await asyncio.sleep(0)
    left.close()
    assert await waiting is False
    left.of_worker(str(await leave(folder, worker(6), 1)))
    assert await left.delivered() is False
    assert len(os.listdir(folder)) == 2  # for the next agent


async def test_damage_costs_no_more_than_itself(folder, caplog):
    path = await leave(folder, worker(5), 5)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"iteration":2', b'"iteration":7')[:-1])
    flaky = Flaky()
    told = await take_over(folder, flaky)
    assert told == [*of(worker(5), 4), *OWN]
    stood_in = flaky.stored["worker/n1/0:5:3"].body
    assert isinstance(stood_in, FactsDropped) and stood_in.count == 1
    assert "damaged in 2 places" in caplog.text and not path.exists()


async def test_spools_of_another_cluster_and_half_written_ones(folder, caplog):
    other = await leave(folder, worker(5, cluster="other"), 2)
    (folder / "w0.7.spool").write_bytes(b"")
    (folder / "w0.8.spool").write_bytes(spool.MAGIC[:5])
    (folder / "w0.9.spool.new").write_bytes(b"half")
    (folder / "w0.9.journal").write_bytes(b"")
    assert await take_over(folder, Flaky()) == OWN
    assert sorted(os.listdir(folder)) == ["w0.9.journal", other.name]
    assert "of the cluster other: left alone" in caplog.text


@pytest.mark.parametrize("limit", ["files", "bytes"])
async def test_of_too_much_the_oldest_is_kept_and_the_rest_is_told(folder, monkeypatch, limit):
    if limit == "files":
        monkeypatch.setattr(leftovers, "LEFT_LIMIT_FILES", 2)
    else:
        monkeypatch.setattr(leftovers, "LEFT_LIMIT_BYTES", 3_000)
    lives = [worker(n) for n in range(1, 5)]
    for number, life in enumerate(lives):
        await leave(folder, life, 4, at=100 * number)
    flaky = Flaky()
    told = await take_over(folder, flaky)
    assert told == [*of(lives[0], 4), *of(lives[1], 4), *((AGENT.who, 100, n) for n in (1, 2, 3))]
    dropped = [e.body for e in flaky.stored.values() if isinstance(e.body, FactsDropped)]
    assert [(d.who, d.incarnation, d.after, d.count) for d in dropped] == [
        ("worker/n1/0", 3, 0, 4),
        ("worker/n1/0", 4, 0, 4),
    ]
    assert os.listdir(folder) == []


async def test_a_spool_in_use_is_left_alone(folder, monkeypatch, caplog):
    path = await leave(folder, worker(5), 2)
    monkeypatch.setattr(leftovers, "_HELD_LIMIT_S", 0.05)
    monkeypatch.setattr(leftovers, "is_held", lambda path: True)
    assert await take_over(folder, Flaky()) == OWN
    assert path.exists() and "is in use still" in caplog.text


async def test_what_is_no_file_is_left_alone(folder, caplog):
    """A pipe would be waited for, for ever."""
    os.mkfifo(folder / "pipe.spool")
    (folder / "more.spool").mkdir()
    await leave(folder, worker(5), 2)
    assert await take_over(folder, Flaky()) == [*of(worker(5), 2), *OWN]
    assert sorted(os.listdir(folder)) == ["more.spool", "pipe.spool"]
    assert caplog.text.count("is no file: left alone") == 2


async def test_what_was_left_is_what_was_taken(folder):
    path = await leave(folder, worker(5), 3)
    before = [fact.data for fact in spool.decode(path.read_bytes()).facts]
    flaky = Flaky()
    await take_over(folder, flaky)
    assert [codec.encode(e) for e in flaky.stored.values()][:3] == before
