"""An engine that begins from snapshots and leaves some: which it takes, and what that changes."""

from itertools import pairwise

import anyio
import msgspec
import pytest

from tests.core.story import SPEC
from tests.runtime.kept import Kept, warnings
from unicron import events as ev
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.snapshot import decode_snapshot
from unicron.controlplane.replay import Replayer
from unicron.controlplane.runtime.memory import MemoryLog, MemorySnapshots
from unicron.controlplane.runtime.snapshots import SnapshotKeeper
from unicron.controlplane.runtime.unread import NewerLog
from unicron.events import LogUnreachable, subjects


async def test_who_began_from_a_snapshot_goes_on_like_who_folded_everything(caplog):
    pair = Kept()
    last = await pair.night()
    assert max(pair.kept) == last
    async with pair.running("b"):
        assert pair.logs["b"].begins == [last + 1]
        assert pair.said == [f"from the snapshot of #{last} (memory), 0 events after it"]
        await pair.leads("b")
        await pair.agree()
    assert Replayer(pair.stream.entries).verify().verified
    assert not warnings(caplog)


async def test_a_follower_that_folded_everything_and_a_leader_from_a_snapshot_agree():
    pair = Kept()
    await pair.night()
    async with pair.running("a") as group:
        pair.stores = [MemorySnapshots()]
        await pair.begin(group, "b")
        assert (pair.logs["b"].begins, len(pair.said)) == ([1], 1)
        spec = msgspec.structs.replace(SPEC, task=ev.TaskId("second"))
        await pair.engines["a"].submit(spec, by="test")
        await pair.agree()
        assert pair.engines["a"].state == pair.engines["b"].state
        pair.scopes["a"].cancel()
        await pair.leads("b")
        del pair.engines["a"]
        await pair.agree()
    assert Replayer(pair.stream.entries).verify().verified


async def test_one_is_written_every_so_often_and_the_newest_are_kept():
    pair = Kept(every=10)
    async with pair.running("a"):
        for number in range(1, 4):
            while len(pair.stream.entries) < 10 * number + 1:
                pair.agent_says(ev.AgentStopped(node=ev.NodeId("n1"), reason="asked"))
            await pair.until(lambda n=number: any(seq >= 10 * n for seq in pair.kept))
        assert len(pair.kept) == 3
        kept = sorted(pair.kept)
        assert all(later - seq >= 10 for seq, later in pairwise(kept))
    assert max(pair.kept) == len(pair.stream.entries)
    for seq, data in pair.kept.items():
        snapshot = decode_snapshot(data)
        assert snapshot.seq == seq
        assert snapshot.chain == ev.chain_of(pair.stream.entries[:seq]).hex()
        assert snapshot.leadership == pair.stream.entries[0].envelope.body


async def test_none_is_written_while_history_is_folded():
    pair = Kept(every=10)
    for _ in range(200):
        pair.agent_says(ev.AgentStopped(node=ev.NodeId("n1"), reason="asked"))
    saved = []
    save = pair.stores[0].save

    async def noted(seq, data):
        saved.append(seq)
        await save(seq, data)

    pair.stores[0].save = noted
    async with pair.running("a"):
        await pair.until(lambda: saved)
    assert len([seq for seq in saved if seq <= 200]) <= 1
    assert max(saved) == len(pair.stream.entries)


async def test_a_bad_one_is_left_aside_for_an_older_one(caplog):
    pair = Kept(every=10)
    last = await pair.night()
    assert len(pair.kept) >= 2
    older = sorted(pair.kept)[-2]
    pair.kept[last] = pair.kept[last][:-1]
    async with pair.running("a"):
        assert pair.logs["a"].begins == [older + 1]
        await pair.agree()
    (told,) = warnings(caplog)
    assert told.startswith(f"the snapshot of #{last} (memory) is left aside: its bytes")


async def test_without_any_good_one_the_log_is_folded_from_its_start(caplog):
    pair = Kept(every=10)
    await pair.night()
    for seq in pair.kept:
        pair.kept[seq] = b"unicron-snapshot 2 from the future\n"
    count = len(pair.kept)
    async with pair.running("a"):
        assert pair.logs["a"].begins == [1]
        await pair.agree()
    assert len(warnings(caplog)) == count
    assert not pair.said


async def test_of_two_places_the_newer_snapshot_is_taken():
    first, second = MemorySnapshots(), MemorySnapshots()
    second.name = "elsewhere"
    pair = Kept(stores=[first, second])
    last = await pair.night()
    assert max(first.kept) == max(second.kept) == last
    del first.kept[last]
    async with pair.running("a"):
        assert pair.said == [f"from the snapshot of #{last} (elsewhere), 0 events after it"]


async def followed(pair):
    """An instance begins, follows whoever has the lease, and ends in order."""
    pair.stream.hold = pair.stream.hold._replace(holder="z/1", revision=99)
    async with pair.running("b"):
        await pair.until(lambda: pair.engines["b"].follows)
    del pair.engines["b"]
    pair.stream.hold = pair.stream.hold._replace(holder="", revision=100)


async def test_what_was_read_is_not_written_again():
    pair = Kept(every=10)
    last = await pair.night()
    kept = dict(pair.kept)
    saved = []
    save = pair.stores[0].save

    async def noted(seq, data):
        saved.append(seq)
        await save(seq, data)

    pair.stores[0].save = noted
    await followed(pair)
    assert (saved, pair.kept) == ([], kept)
    async with pair.running("a"):  # one more event, its leadership: ten aren't over yet
        await pair.agree()
        assert saved == []
    assert saved == [len(pair.stream.entries)] > [last]


async def test_one_that_goes_while_it_is_looked_at_is_no_loss():
    class Forgetful(MemorySnapshots):
        async def load(self, seq):
            return None if seq == max(self.kept) else await super().load(seq)

    pair = Kept(every=10, stores=[Forgetful(keep=3)])
    await pair.night()
    older = sorted(pair.kept)[-2]
    assert await SnapshotKeeper(pair.stores).places() == ["memory"]
    assert await SnapshotKeeper([MemorySnapshots()]).places() == []
    async with pair.running("a"):
        assert pair.logs["a"].begins == [older + 1]


async def test_whoever_stops_because_of_a_bug_leaves_none(monkeypatch):
    pair = Kept(every=1_000)

    def broken(*_):
        raise RuntimeError("a bug")

    with pytest.raises(BaseExceptionGroup):
        async with pair.running("a"):
            monkeypatch.setattr(pair.engines["a"].monitor, "opinions", broken)
            await anyio.sleep(10)
    assert not pair.kept


async def test_who_begins_while_the_log_is_away_waits(monkeypatch):
    pair = Kept()
    last = await pair.night()
    away = 2
    ask = MemoryLog.last_seq

    async def last_seq(log):
        nonlocal away
        away -= 1
        if away >= 0:
            raise LogUnreachable("away")
        return await ask(log)

    monkeypatch.setattr(MemoryLog, "last_seq", last_seq)
    async with pair.running("a"):
        assert away < 0
        assert pair.logs["a"].begins == [last + 1]


async def test_a_decision_of_a_newer_version_counts_also_before_the_snapshot():
    pair = Kept()
    await pair.night()
    body = {"type": "node.polished.v1", "node": "n1"}
    envelope = {"id": "x", "source": {"who": "x", "incarnation": 1, "counter": 1}}
    data = msgspec.json.encode({**envelope, "written_at_ns": 0, "body": body, "term": 1})
    pair.stream.hold = pair.stream.hold._replace(holder="z/1", revision=9)
    async with anyio.create_task_group() as group:
        group.start_soon(pair.begin, group, "b")
        await pair.until(lambda: "b" in pair.engines and pair.engines["b"].follows)
        pair.stream.write_raw(subjects.control("c", "cluster", "c"), data)
        last = len(pair.stream.entries)
        await pair.until(lambda: pair.engines["b"].state.seq == last)
        group.cancel_scope.cancel()
    assert max(pair.kept) == last
    pair.stream.hold = pair.stream.hold._replace(holder="", revision=10)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with pair.running("c"):
            await anyio.sleep(10)
    assert pair.logs["c"].begins == [last + 1]
    assert raised.group_contains(NewerLog)


async def test_the_state_after_a_snapshot_is_that_of_the_whole_log():
    pair = Kept()
    last = await pair.night()
    state = Replayer(pair.stream.entries).state_at(last)
    assert digest(decode_snapshot(pair.kept[last]).state) == digest(state)
