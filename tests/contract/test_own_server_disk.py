"""The disk under a server of our own fills, and is freed: it goes on without anybody's help."""

import asyncio
import resource

import pytest

from tests.contract.worlds import decision, until
from unicron.controlplane.runtime import serverdisk
from unicron.controlplane.runtime.outcomes import Accepted, Unknown
from unicron.controlplane.runtime.serverdisk import LOW, ROOM, judged, keep_writable

MIB = 1 << 20


@pytest.mark.parametrize(
    "before, free, stuck, expected",
    [
        ("ample", LOW, False, "ample"),
        ("ample", LOW - 1, False, "low"),
        ("low", LOW, False, "low"),
        ("low", LOW * 3 // 2, False, "ample"),
        ("low", 0, True, "stuck"),
        ("ample", LOW * 9, True, "stuck"),
        ("stuck", LOW * 9, True, "stuck"),
        ("stuck", LOW * 9, False, "ample"),
        ("stuck", LOW, False, "low"),
        ("ample", None, False, "gone"),
        ("stuck", None, True, "gone"),
        ("gone", LOW * 9, False, "ample"),
    ],
)
def test_how_it_stands(before, free, stuck, expected):
    assert judged(before, free, stuck=stuck) == expected


class Kept:
    """A server that is kept writable on a disk of which we say how much is free."""

    def __init__(self, server, monkeypatch):
        self.server, self.told, self.free = server, [], LOW * 9
        monkeypatch.setattr(serverdisk, "_free", lambda root: self.free)

    async def __aenter__(self):
        self._care = asyncio.create_task(
            keep_writable(self.server, self.told.append, look_s=0.02, again_s=0.02)
        )
        self._end = asyncio.create_task(self.server.wait())
        return self

    async def __aexit__(self, *_):
        assert not self._care.done()
        assert not self._end.done()  # a new start is no end
        for task in (self._care, self._end):
            task.cancel()
        await asyncio.wait({self._care, self._end})

    def fill(self):
        """The server that runs now can't make any file larger."""
        self.free = 0
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


@pytest.fixture
async def kept(nats, monkeypatch):
    async with Kept(nats.server, monkeypatch) as kept:
        yield kept


@pytest.mark.real
async def test_it_is_told_and_goes_on_once_there_is_room(nats, kept):
    log = await nats.open(attempt_s=0.5, limit_s=30.0)
    fence = (await log.append(*decision(1), fence=0)).seq
    full, pid = kept.told, nats.server.pid
    kept.fill()
    waiting = asyncio.create_task(log.append(*decision(2), fence=fence))
    await until(lambda: any("can't be written" in told for told in full))
    assert "file too large" in full[-1]
    assert "Make at least 16 MiB of room" in full[-1]
    kept.free = ROOM - 1
    await asyncio.sleep(0.2)
    assert nats.server.pid == pid
    assert not waiting.done()
    kept.free = LOW * 9
    stored = await asyncio.wait_for(waiting, 30)
    assert isinstance(stored, Accepted)
    assert nats.server.pid != pid
    assert stored.seq > fence
    await until(lambda: "has room again" in full[-1])
    assert full[1:] == [
        "the nats-server was started anew",
        f"the disk of the log has room again ({nats.server.root})",
    ]
    tail = log.read(1)
    ids = [(await anext(tail)).id for _ in range(await log.last_seq())]
    await tail.aclose()
    assert ids.count(decision(2)[2]) == 1


@pytest.mark.real
async def test_a_server_that_gets_stuck_again_is_started_again(nats, kept):
    log = await nats.open(attempt_s=0.3, limit_s=0.6)
    fence = (await log.append(*decision(1), fence=0)).seq
    for round_ in (1, 2):
        await until(lambda: kept.server.pid)
        kept.fill()
        assert isinstance(await log.append(*decision(2), fence=fence), Unknown)
        kept.free = LOW * 9
        await until(lambda n=round_: sum("started anew" in t for t in kept.told) == n)
    log._limit_s = 30.0
    assert isinstance(await log.append(*decision(2), fence=fence), Accepted)


@pytest.mark.real
async def test_a_disk_that_fills_is_told_before_it_is_full(kept):
    await asyncio.sleep(0.1)
    assert kept.told == []
    kept.free = 40 * MIB
    await until(lambda: kept.told)
    kept.free = LOW * 3 // 2
    await until(lambda: len(kept.told) == 2)
    assert kept.told[0].startswith("the disk of the log has 40 MiB left")
    assert kept.told[1].startswith("the disk of the log has room again")


@pytest.mark.real
async def test_a_folder_that_is_gone_is_told_and_no_new_log_begun(kept):
    pid = kept.server.pid
    kept.free = None
    await until(lambda: kept.told)
    await asyncio.sleep(0.1)
    assert len(kept.told) == 1
    assert kept.told[0].startswith(f"the folder of the log is gone ({kept.server.root})")
    assert kept.server.pid == pid


def test_what_is_free_where_nothing_is(tmp_path):
    assert serverdisk._free(tmp_path) is None
    (tmp_path / "store").mkdir()
    assert serverdisk._free(tmp_path) > 0
