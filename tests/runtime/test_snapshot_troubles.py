"""Engines whose log isn't what it was, and places for snapshots that fail or hang."""

import anyio
import pytest

from tests.core.story import SPEC
from tests.runtime.cluster import LIMIT_S
from tests.runtime.kept import Kept, warnings
from unicron import events as ev
from unicron.controlplane.runtime import snapshots
from unicron.controlplane.runtime.memory import MemoryLog, MemorySnapshots, MemoryStream
from unicron.controlplane.runtime.snapshots import SnapshotKeeper
from unicron.events import ConfigError, LogBroken, LogMismatch, LogUnreachable, subjects


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
