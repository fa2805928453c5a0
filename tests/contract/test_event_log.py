"""What every EventLog promises, in memory and on a real server."""

import asyncio

import anyio
import pytest

from tests.contract.worlds import (
    CLUSTER,
    DECISION,
    FACT,
    JetStreamWorld,
    MemoryWorld,
    decision,
    fact,
    take,
)
from unicron.controlplane.runtime.outcomes import Accepted, Conflict, Unknown
from unicron.events import (
    HistoryHeader,
    LogBroken,
    UndecodableEvent,
    UnknownEvent,
    read_history,
    subjects,
    write_history,
)


async def control_end(log):
    """The fence for the next decision."""
    return await log.last_control_seq()


async def fill(log, facts=3, decisions=2):
    """Facts, then decisions under the fence; all accepted."""
    for counter in range(1, facts + 1):
        assert isinstance(await log.append(*fact(counter), fence=None), Accepted)
    for counter in range(1, decisions + 1):
        outcome = await log.append(*decision(counter), fence=await control_end(log))
        assert isinstance(outcome, Accepted)
    return await log.last_seq()


async def test_an_empty_log(log):
    assert log.cluster == CLUSTER
    assert await log.last_seq() == 0
    assert await log.last_control_seq() == 0
    assert await log.get(1) is None


async def test_entries_come_in_order_with_their_bytes(log):
    wanted = [fact(1), fact(2), decision(1), fact(3)]
    for seq, arguments in enumerate(wanted, 1):
        fence = 0 if arguments[0] == DECISION else None
        assert await log.append(*arguments, fence=fence) == Accepted(seq=seq)
    got = await take(log.read(1), 4)
    assert [e.seq for e in got] == [1, 2, 3, 4]
    assert [(e.subject, e.data, e.id) for e in got] == wanted
    assert all(e.envelope is not None for e in got)
    assert await log.last_seq() == 4
    assert await log.last_control_seq() == 3


async def test_get_read_and_a_history_file_give_equal_entries(log, tmp_path):
    last = await fill(log)
    read = await take(log.read(1), last)
    assert [await log.get(seq) for seq in range(1, last + 1)] == read
    header = HistoryHeader(cluster=CLUSTER, birth=await log.birth(), version="test")
    write_history(tmp_path / "log", header, read)
    assert list(read_history(tmp_path / "log").events) == read


async def test_a_tail_gets_what_is_appended_later(world, log):
    tail = (await world.open()).read(1)
    waiting = asyncio.create_task(anext(tail))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await log.append(*fact(1), fence=None)
    assert (await waiting).seq == 1
    await log.append(*fact(2), fence=None)
    assert (await anext(tail)).seq == 2


async def test_tails_are_independent_and_begin_where_they_are_told(log):
    last = await fill(log)
    first, later, end = log.read(1), log.read(4), log.read(last + 1)
    assert [e.seq for e in await take(later, 2)] == [4, 5]
    assert [e.seq for e in await take(first, last)] == list(range(1, last + 1))
    await log.append(*fact(9), fence=None)
    assert (await anext(end)).seq == last + 1


async def test_reading_beyond_the_end_is_refused(log):
    last = await fill(log)
    with pytest.raises(LogBroken) as raised:
        await anext(log.read(last + 2))
    assert raised.value.first_wrong == last + 1
    assert raised.value.code == "E-LOG-SHORT"


async def test_a_cancelled_wait_loses_nothing(log):
    tail = log.read(1)
    with anyio.move_on_after(0.2) as scope:
        await anext(tail)
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(tail)
    await fill(log, facts=3, decisions=0)
    assert [e.seq for e in await take(tail, 3)] == [1, 2, 3]


async def test_closing_ends_whoever_waits(world):
    log = await world.open()
    one, other = log.read(1), log.read(1)
    waiting = [asyncio.create_task(anext(tail)) for tail in (one, other)]
    await asyncio.sleep(0.05)
    await one.aclose()
    with pytest.raises(StopAsyncIteration):
        await waiting[0]
    assert not waiting[1].done()
    await log.close()
    with pytest.raises(StopAsyncIteration):
        await waiting[1]
    assert [e async for e in other] == []
    await log.close()


# --- The fence -----------------------------------------------------------------------------------


async def test_facts_between_do_not_touch_the_fence(log):
    await log.append(*decision(1), fence=0)
    await fill(log, facts=3, decisions=0)
    assert await log.append(*decision(2), fence=1) == Accepted(seq=5)


async def test_the_fence_covers_the_whole_tree(log):
    elsewhere = subjects.control(CLUSTER, "node", "n7")
    assert await log.append(*decision(1), fence=0) == Accepted(seq=1)
    assert await log.append(*decision(1, "b", elsewhere), fence=0) == Conflict(last_seq=1)
    assert await log.append(*decision(1, "b", elsewhere), fence=1) == Accepted(seq=2)
    assert await log.append(*decision(2), fence=1) == Conflict(last_seq=2)
    assert await log.last_seq() == 2


async def test_a_fence_beyond_the_end_is_a_conflict(log):
    await fill(log, facts=2, decisions=1)
    assert await log.append(*decision(9), fence=7) == Conflict(last_seq=3)
    assert await log.last_seq() == 3


async def test_of_two_racing_writers_exactly_one_wins(world, log):
    rival = await world.open()
    end = 0
    for round_number in range(1, 21):
        outcomes = await asyncio.gather(
            log.append(*decision(round_number, "a"), fence=end),
            rival.append(*decision(round_number, "b"), fence=end),
        )
        won = [o for o in outcomes if isinstance(o, Accepted)]
        lost = [o for o in outcomes if isinstance(o, Conflict)]
        assert len(won) == len(lost) == 1
        end = won[0].seq
        assert lost[0].last_seq == end
    assert await log.last_seq() == end == 20


async def test_a_fence_belongs_to_decisions_and_only_to_them(log):
    with pytest.raises(AssertionError):
        await log.append(*decision(1), fence=None)
    with pytest.raises(AssertionError):
        await log.append(*fact(1), fence=0)


# --- Duplicates and unknown outcomes -------------------------------------------------------------


async def test_the_logs_copy_of_a_duplicate_is_adopted(world, log):
    await log.append(*fact(1, "first"), fence=None)
    again = await (await world.open()).append(*fact(1, "second"), fence=None)
    assert again == Accepted(seq=1, duplicate=True)
    assert (await log.get(1)).envelope.body.reason == "first"
    assert await log.last_seq() == 1


async def test_a_decision_said_twice_stands_once(world, log):
    """With the fence of its first try, which is stale by then, and with the one after it."""
    await fill(log, facts=1, decisions=0)
    assert await log.append(*decision(1), fence=0) == Accepted(seq=2)
    await log.append(*fact(2), fence=None)
    assert await log.append(*decision(1), fence=0) == Accepted(seq=2, duplicate=True)
    assert await log.append(*decision(1), fence=2) == Accepted(seq=2, duplicate=True)
    await (await world.open()).append(*decision(1, "b"), fence=2)
    assert await log.append(*decision(1), fence=0) == Accepted(seq=2, duplicate=True)
    # With the fence of another's success no writer of ours tries again. Then one server looks at
    # the fence first, and several at the id: both are true.
    outcome = Accepted(seq=2, duplicate=True) if world.id_first else Conflict(last_seq=4)
    assert await log.append(*decision(1), fence=2) == outcome
    assert await log.last_seq() == 4


@pytest.mark.parametrize("stored", [True, False])
async def test_an_unknown_decision_is_resolved_by_reading_back(world, log, stored):
    _, _, ours = decision(1)
    world.lose_ack(log, stored=stored)
    assert isinstance(await log.append(*decision(1), fence=0), Unknown)
    outcome = await log.resolve(ours, DECISION, after=0)
    if stored:
        assert outcome == Accepted(seq=1, duplicate=True)
    else:
        assert isinstance(outcome, Unknown)  # it may be on its way
        assert await log.append(*decision(1), fence=0) == Accepted(seq=1)
    later = await (await world.open()).append(*decision(1, "b"), fence=1)
    assert later == Accepted(seq=2)
    assert await log.resolve(ours, DECISION, after=0) == Accepted(seq=1, duplicate=True)


async def test_an_unknown_decision_lost_to_another_writer_is_a_conflict(world, log):
    world.lose_ack(log, stored=False)
    assert isinstance(await log.append(*decision(1), fence=0), Unknown)
    rival = await world.open()
    await rival.append(*decision(1, "b"), fence=0)
    await rival.append(*decision(2, "b"), fence=1)
    assert await log.resolve(decision(1)[2], DECISION, after=0) == Conflict(last_seq=2)
    assert await log.append(*decision(1), fence=0) == Conflict(last_seq=2)


@pytest.mark.parametrize("stored", [True, False])
async def test_an_unknown_fact_is_resolved_by_reading_back(world, log, stored):
    await fill(log, facts=2, decisions=0)
    world.lose_ack(log, stored=stored)
    assert isinstance(await log.append(*fact(3), fence=None), Unknown)
    for after in (0, 2):
        outcome = await log.resolve(fact(3)[2], FACT, after=after)
        if stored:
            assert outcome == Accepted(seq=3, duplicate=True)
        else:
            assert isinstance(outcome, Unknown)
    again = await log.append(*fact(3), fence=None)
    assert again == Accepted(seq=3, duplicate=stored)
    assert await log.last_seq() == 3


# --- What is in it -------------------------------------------------------------------------------


async def test_foreign_entries_are_kept_in_their_place(world, log):
    await log.append(*fact(1), fence=None)
    await world.write_raw(FACT, b"noise")
    subject, data, _ = decision(1)
    await world.write_raw(subject, data.replace(b"alarm.raised.v1", b"alarm.sung.v1"))
    await log.append(*fact(2), fence=None)
    entries = await take(log.read(1), 4)
    assert [e.seq for e in entries] == [1, 2, 3, 4]
    assert isinstance(entries[1].entry, UndecodableEvent)
    assert isinstance(entries[2].entry, UnknownEvent)
    assert entries[2].entry.tag == "alarm.sung.v1"
    assert await log.last_control_seq() == 3


async def test_a_log_knows_itself(world, log, tmp_path):
    assert await log.birth() == await (await world.open()).birth()
    if isinstance(world, MemoryWorld):
        other = await MemoryWorld().open()
        assert await other.birth() != await log.birth()
    else:
        async with JetStreamWorld(tmp_path / "other") as another:
            assert await (await another.open()).birth() != await log.birth()
