"""Texts that are too long for the log: kept on the node's disk, delivered when that can be."""

import asyncio
import contextlib
import hashlib
import os
import stat

import pytest

from tests.worker_shim.nats_server import CLUSTER, until
from tests.worker_shim.test_agent import running_node
from unicron.events import Incarnation, LongText, NodeId, WorkerId, subjects
from unicron.events.texts import PART_BYTES, TEXT_MAX_BYTES, is_whole, part_count
from unicron.worker_shim import longtext
from unicron.worker_shim.facts import TRACEBACK_MAX, Facts
from unicron.worker_shim.launch import WorkerLaunch
from unicron.worker_shim.longtext import SUFFIX, LongTexts, keep, waiting


class Store:
    """What was put there by (digest, part); `refusals`: so many answers say no."""

    def __init__(self, refusals=0):
        self.parts = {}
        self.refusals = refusals
        self.asked = 0

    async def put(self, sha256, part, data):
        self.asked += 1
        if self.refusals:
            self.refusals -= 1
            return "not now"
        self.parts[sha256, part] = data
        return ""

    def whole(self, text):
        return b"".join(self.parts[text.sha256, n] for n in range(part_count(text)))


async def deliver(folder, store, monkeypatch):
    """Run until nothing waits any more."""
    monkeypatch.setattr(longtext, "_LOOK_S", 0.005)
    monkeypatch.setattr(longtext, "_RETRY_FIRST_S", 0.005)
    running = asyncio.create_task(LongTexts(str(folder), store.put).run())
    async with asyncio.timeout(10):
        while waiting(str(folder)):
            await asyncio.sleep(0.005)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def test_it_is_kept_private_and_named_by_its_digest(tmp_path):
    text = keep(str(tmp_path), "Fehler: ü")
    data = "Fehler: ü".encode()
    assert text == LongText(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    (path,) = tmp_path.iterdir()
    assert path.name == f"{text.sha256}{SUFFIX}"
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_text_for_a_wire_is_kept_too(tmp_path):
    text = keep(str(tmp_path), "half a pair: \ud800")
    assert (tmp_path / f"{text.sha256}{SUFFIX}").read_bytes() == b"half a pair: ?"


def test_one_that_is_too_long_even_there_is_cut(tmp_path):
    text = keep(str(tmp_path), "a" * TEXT_MAX_BYTES + "ü" * TEXT_MAX_BYTES)
    assert text.size <= TEXT_MAX_BYTES
    assert b"characters cut" in (tmp_path / f"{text.sha256}{SUFFIX}").read_bytes()


def test_a_full_or_missing_folder_costs_the_text_only(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(longtext, "WAITING_MAX", 2)
    assert [keep(str(tmp_path), str(n)) is None for n in range(3)] == [False, False, True]
    assert "2 texts wait" in caplog.text
    assert keep(str(tmp_path / "none"), "x") is None


async def test_parts_are_put_in_order_and_make_the_whole(tmp_path, monkeypatch):
    whole = "0123456789" * (PART_BYTES // 4)
    text, store = keep(str(tmp_path), whole), Store()
    await deliver(tmp_path, store, monkeypatch)
    assert list(store.parts) == [(text.sha256, n) for n in range(3)]
    assert is_whole(text, store.whole(text))
    assert not is_whole(text, store.whole(text)[:-1])
    assert list(tmp_path.iterdir()) == []


async def test_it_is_tried_again_until_it_is_there(tmp_path, monkeypatch, caplog):
    text, store = keep(str(tmp_path), "x" * (PART_BYTES + 1)), Store(refusals=5)
    await deliver(tmp_path, store, monkeypatch)
    assert is_whole(text, store.whole(text))
    assert store.asked == 7
    assert caplog.text.count("not now") == 1


async def test_a_damaged_one_is_dropped_and_the_others_go_on(tmp_path, monkeypatch, caplog):
    texts = [keep(str(tmp_path), name) for name in ("one", "two", "three")]
    path = tmp_path / f"{texts[0].sha256}{SUFFIX}"
    path.write_bytes(b"something else")
    store = Store()
    await deliver(tmp_path, store, monkeypatch)
    assert sorted(store.parts) == sorted((t.sha256, 0) for t in texts[1:])
    assert "damaged" in caplog.text


async def test_a_folder_that_goes_away_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(longtext, "_LOOK_S", 0.005)
    folder = tmp_path / "home"
    running = asyncio.create_task(LongTexts(str(folder), Store().put).run())
    await asyncio.sleep(0.05)
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


# --- What a worker says of its exception ----------------------------------------------------------


class Trainer:
    iteration = 3


@pytest.fixture
def said(tmp_path):
    """What a worker whose files are in the folder says."""
    told = []
    spec = type("Spec", (), {"task": "gpt"})()
    launch = WorkerLaunch(
        cluster="c",
        spec=spec,
        worker=WorkerId("n1/0"),
        incarnation=Incarnation(1),
        node=NodeId("n1"),
        device=0,
        nats_url="",
        page_path="",
        journal_path="",
        log_path=os.path.join(tmp_path, "w0.1.log"),
    )
    return Facts(launch, Trainer(), told.append), told


def raised(depth, text):
    """An exception that went through so many functions."""

    def nested(left):
        if left:
            nested(left - 1)
        raise ValueError(text)

    with pytest.raises(ValueError) as caught:
        nested(depth)
    return caught.value


def test_a_short_traceback_stands_in_the_fact(said, tmp_path):
    facts, told = said
    facts.exception(2, "forward", raised(1, "boom"))
    assert told[0].traceback.startswith("Traceback (most recent call last):\n")
    assert told[0].traceback.endswith("ValueError: boom\n")
    assert told[0].whole is None
    assert list(tmp_path.iterdir()) == []


def test_of_a_long_one_both_ends_stand_there_and_the_whole_is_kept(said, tmp_path):
    facts, told = said
    facts.exception(2, "forward", raised(1, "x" * 100_000 + " the end"))
    (fact,) = told
    assert len(fact.traceback) <= TRACEBACK_MAX
    assert "characters cut" in fact.traceback
    assert fact.traceback.endswith("the end\n")
    assert fact.whole.size > 100_000
    data = (tmp_path / f"{fact.whole.sha256}{SUFFIX}").read_bytes()
    assert is_whole(fact.whole, data)
    assert data.endswith(b"the end\n")


@pytest.mark.real
async def test_an_agent_takes_what_its_workers_left(folder, log_server):
    """Also what was there before it began."""
    home = folder / "run" / folder.name
    home.mkdir(0o700, parents=True)
    texts = [keep(str(home), "before")]
    await log_server.make_stream(subjects.text_stream(CLUSTER), [subjects.text_tree(CLUSTER)])
    async with running_node(folder, log_server) as node:
        texts.append(keep(str(home), "from a worker"))
        await until(lambda: not waiting(str(home)), what="the delivery")
        there = await log_server.payloads(subjects.text_stream(CLUSTER), len(texts))
        assert there == [b"before", b"from a worker"]
        assert node.process.poll() is None
