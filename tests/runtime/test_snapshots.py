"""An engine that begins from snapshots and leaves some: which it takes, and what that changes."""

import logging
from itertools import pairwise

import anyio
import msgspec
import pytest

from tests.core.story import SPEC
from tests.runtime.cluster import LIMIT_S, QuickPlanner
from tests.runtime.pair import Pair
from unicron import events as ev
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.snapshot import decode_snapshot
from unicron.controlplane.replay import Replayer
from unicron.controlplane.runtime import snapshots
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.memory import MemoryLog, MemorySnapshots, MemoryStream
from unicron.controlplane.runtime.snapshots import SnapshotKeeper
from unicron.controlplane.runtime.unread import NewerLog
from unicron.events import ConfigError, LogBroken, LogMismatch, LogUnreachable, subjects


class Reads(MemoryLog):
    """Notes where reading begins."""

    def __init__(self, stream):
        super().__init__(stream)
        self.begins = []

    def read(self, from_seq):
        self.begins.append(from_seq)
        return super().read(from_seq)


class Kept(Pair):
    """Instances that keep snapshots in one place; `said` by whom they began from one."""

    def __init__(self, every=1, stores=None):
        super().__init__(lease_ms=60_000)  # nobody is silent here, however slow the machine
        self.stores = stores or [MemorySnapshots(keep=3)]
        self.every = every
        self.said = []

    @property
    def kept(self):
        return self.stores[0].kept

    async def begin(self, group, name, on_event=None):
        log = self.logs[name] = Reads(self.stream)
        engine = Engine(
            log,
            self.bus,
            instance=name,
            solver=QuickPlanner(),
            on_event=on_event,
            snapshots=SnapshotKeeper(self.stores, every=self.every, tell=self.said.append),
            strict=True,
        )
        scope = self.scopes[name] = anyio.CancelScope()
        self.engines[name] = engine

        async def run():
            with scope:
                await engine.run()

        group.start_soon(run)

        def settled():
            """It leads, or follows another one and isn't just about to lead."""
            holder = self.stream.hold.holder.partition("/")[0]
            return engine.leading or (engine.follows and holder not in ("", name))

        await self.until(settled)

    async def agree(self):
        """Once there is nothing more to decide."""

        def rests():
            state = next(iter(self.engines.values())).state
            last = len(self.stream.entries)
            return state.seq == last and decide(state) is None and not state.plan.request

        await self.until(rests)
        return await super().agree()

    async def night(self, count=30):
        """Something happens under the leadership of a, which ends in order."""
        async with self.running("a"):
            for _ in range(count):
                self.agent_says(ev.AgentStopped(node=ev.NodeId("n1"), reason="asked"))
            await self.engines["a"].submit(SPEC, by="test")
            await self.agree()
        self.engines.clear()
        return len(self.stream.entries)


def warnings(caplog):
    about = [r for r in caplog.records if r.name.endswith(".snapshots")]
    return [r.getMessage() for r in about if r.levelno >= logging.WARNING]


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


async def refused(pair, stream):
    pair.stream = stream
    with pytest.raises(BaseExceptionGroup) as raised:
        async with pair.running("b"):
            pass
    (error,) = raised.value.exceptions
    return error


def cut(stream, length):
    """The same log as it was before."""
    found = MemoryStream(stream.cluster)
    found.birth = stream.birth
    for entry in stream.entries[:length]:
        found.write_raw(entry.subject, entry.data)
    return found


async def test_a_log_that_lost_its_end_stops_it():
    pair = Kept()
    last = await pair.night()
    before = dict(pair.kept)
    error = await refused(pair, cut(pair.stream, last - 1))
    assert isinstance(error, LogBroken)
    assert (error.code, error.first_wrong) == ("E-LOG-SHORT", last)
    assert (pair.kept, len(pair.stream.entries)) == (before, last - 1)


async def test_a_log_that_lost_its_end_and_went_on_stops_it():
    pair = Kept()
    last = await pair.night()
    other = cut(pair.stream, last - 1)
    for _ in range(5):
        other.write_raw(subjects.fact("c", ev.NodeId("n1")), b"other")
    error = await refused(pair, other)
    assert (error.code, error.first_wrong) == ("E-LOG-CHANGED", last)


async def test_another_log_of_the_same_name_stops_it():
    pair = Kept()
    await pair.night()
    error = await refused(pair, MemoryStream("c"))
    assert isinstance(error, LogMismatch)
    assert error.code == "E-LOG-BIRTH"


async def test_a_log_with_a_hole_before_the_snapshot_stops_it(monkeypatch):
    pair = Kept()
    last = await pair.night()

    async def first_missing(log, upto):
        assert upto == last
        return 3

    monkeypatch.setattr(MemoryLog, "first_missing", first_missing)
    error = await refused(pair, pair.stream)
    assert (error.code, error.first_wrong) == ("E-LOG-GAP", 3)


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


class Broken:
    """A place where nothing works until it is `well`."""

    name, where = "disk", "the folder x"

    def __init__(self, well=False, error=None):
        self.well, self.calls = well, 0
        self.error = error or OSError(28, "No space left on device")

    async def answer(self, value=None):
        self.calls += 1
        if not self.well:
            raise self.error
        return value

    async def known(self):
        return await self.answer([])

    async def load(self, seq):
        return await self.answer()

    async def save(self, seq, data):
        await self.answer()


async def test_what_can_not_be_used_costs_one_warning(caplog):
    pair = Kept(stores=[Broken(), MemorySnapshots()])
    await pair.night()
    last = len(pair.stream.entries)
    assert pair.stores[0].calls > 2
    assert max(pair.stores[1].kept) == last
    assert warnings(caplog) == ["snapshots in the folder x can't be used: No space left on device"]
    pair.stores[0].well = True
    async with pair.running("a"):
        assert pair.said == [f"from the snapshot of #{last} (memory), 0 events after it"]


@pytest.mark.parametrize(
    "error, told",
    [
        (OSError("odd"), "odd"),
        (LogUnreachable("no answer", why="cut off"), "no answer: cut off"),
        (ConfigError("not permitted"), "not permitted"),
    ],
)
async def test_each_failure_is_told_and_told_again_once_it_worked_meanwhile(error, told, caplog):
    place = Broken(error=error)
    keeper = SnapshotKeeper([place])
    for well in (False, False, True, False, False):
        place.well = well
        assert await keeper.places() == []
    assert warnings(caplog) == [f"snapshots in the folder x can't be used: {told}"] * 2


async def test_an_end_in_order_waits_for_a_slow_place_only_so_long(monkeypatch, caplog):
    class Slow(Broken):
        async def save(self, seq, data):
            await anyio.sleep_forever()

    monkeypatch.setattr(snapshots, "_LAST_LIMIT_S", 0.05)
    pair = Kept(every=1_000, stores=[Slow(well=True)])
    async with pair.running("a"):
        pass
    assert warnings(caplog) == ["no snapshot was written at the end: it took too long"]
    assert pair.stream.hold.holder == ""  # the lease was given back before


async def test_nothing_waits_for_a_slow_place():
    class Slow(Broken):
        hangs = True

        async def save(self, seq, data):
            while self.hangs:
                await anyio.sleep(0.01)

    pair = Kept(stores=[Slow(well=True)])
    with anyio.fail_after(LIMIT_S):
        async with pair.running("a"):
            await pair.engines["a"].submit(SPEC, by="test")
            await pair.agree()
            pair.stores[0].hangs = False  # or its end would wait some seconds for it


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
