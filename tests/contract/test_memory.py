"""Hooks that only the log and the bus in memory have."""

from tests.contract.worlds import CLUSTER, decision, fact, take
from unicron.controlplane.runtime.memory import AckLoss, MemoryBus, MemoryLog, MemoryStream
from unicron.controlplane.runtime.outcomes import Accepted, Conflict, Unknown
from unicron.events import Beat


async def test_an_append_may_arrive_late_and_then_meets_its_fence():
    stream = MemoryStream(CLUSTER)
    log = MemoryLog(stream)
    stream.lose_ack(AckLoss.STORED_LATER, times=2)
    assert isinstance(await log.append(*fact(1), fence=None), Unknown)
    assert isinstance(await log.append(*decision(1), fence=0), Unknown)
    await log.append(*decision(1, "b"), fence=0)
    assert stream.deliver_late() == [Accepted(seq=2), Conflict(last_seq=1)]
    assert stream.deliver_late() == []
    assert [e.seq for e in await take(log.read(1), 2)] == [1, 2]


async def test_its_clock_is_the_callers():
    stream = MemoryStream(CLUSTER, clock_ns=lambda: 77)
    await MemoryLog(stream).append(*fact(1), fence=None)
    assert (await MemoryLog(stream).get(1)).at_ns == 77


async def test_the_bus_plays_the_other_side():
    bus, seen = MemoryBus(), []
    await bus.on_beats(seen.append)
    await bus.on_asks(seen.append)
    bus.on_connection(lambda: seen.append("lost"), lambda: seen.append("back"))
    beat = Beat(node="n1", incarnation=1, number=1)
    bus.beat(beat)
    bus.ask("t")
    bus.lose()
    bus.come_back()
    assert seen == [beat, "t", "lost", "back"]
    stream = MemoryStream(CLUSTER)
    await bus.resend(stream.write_raw(decision(1)[0], b"{}"))
    assert bus.orders == stream.entries
