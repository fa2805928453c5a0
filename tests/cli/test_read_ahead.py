"""A child reads ahead: what comes is what one reader alone gives, whatever happens to the child."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.core.story import running
from tests.replay import tampering
from tests.replay.test_histories import HISTORIES
from unicron import events as ev
from unicron.controlplane.cli import read_ahead
from unicron.controlplane.cli.log_source import open_log
from unicron.controlplane.cli.read_ahead import ReadAhead, worth_it
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.events import subjects
from unicron.events.compressed import unpacked

FACT = subjects.fact("c", ev.NodeId("n1"))


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Neither a child nor a pipe."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def small_blocks(monkeypatch):
    """So that a short file is many of them."""
    monkeypatch.setattr(read_ahead, "_BLOCK", 300)


@pytest.fixture
def path(tmp_path):
    """A history with digests in it, some entries of which are no events."""
    told = running(2)
    raw = [b'{"a":\n1}', b"\xff", b'{"a":' + 70 * b"[" + 70 * b"]" + b"}", b"{}", b'{"b":1}']
    log = list(told.log)
    for data in raw * 4:
        log.append(ev.record(len(log) + 1, FACT, data, 5))
    header = ev.HistoryHeader(
        cluster="c", birth="b", version="v", fold_version=FOLD_VERSION, digest_every=7
    )
    ev.write_history(tmp_path / "log.ndjson", header, log, lambda: "0" * 64)
    return tmp_path / "log.ndjson"


@contextlib.contextmanager
def ahead(path):
    with path.open("rb") as file, contextlib.closing(ReadAhead(path, file)) as reader:
        yield reader


def gone_through(reader):
    """Header, every item with the chain after it, and how it ended."""
    items: list = []
    try:
        items.extend((item, reader.chain) for item in reader)
    except ev.UnicronError as error:
        return reader.header, items, (type(error), str(error), error.first_wrong)
    return reader.header, items, None


def alone(path):
    with path.open("rb") as file:
        return gone_through(ev.HistoryReader(str(path), unpacked(file)))


@pytest.mark.parametrize("block", [1, 300, 1 << 18])
def test_it_gives_what_one_reader_gives(path, monkeypatch, block):
    monkeypatch.setattr(read_ahead, "_BLOCK", block)
    with ahead(path) as reader:
        found = gone_through(reader)
    assert found == alone(path)
    assert len(found[1]) > 40
    assert any(isinstance(item, ev.StateDigest) for item, _ in found[1])


@pytest.mark.parametrize("file", HISTORIES, ids=lambda p: p.stem)
def test_histories_of_every_version(file):
    with ahead(file) as reader:
        assert gone_through(reader) == alone(file)


def test_a_compressed_one(path, tmp_path):
    history = ev.read_history(path)
    packed = tmp_path / "log.ndjson.zst"
    ev.write_history(packed, history.header, history.events, lambda: "0" * 64)
    with ahead(packed) as reader:
        found = gone_through(reader)
    assert found == alone(packed)
    assert found[1] == alone(path)[1]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", tampering.TAMPERINGS.values(), ids=tampering.TAMPERINGS.keys())
def test_a_touched_file_gets_the_same_refusal(path, small_blocks, how, seed):
    lines = path.read_bytes().splitlines(keepends=True)
    touched = how(random.Random(seed), lines)
    path.write_bytes(b"".join(touched))
    with pytest.raises(ev.UnicronError) as refused:
        ev.read_history(path)
    try:
        with ahead(path) as reader:
            found = gone_through(reader)
    except ev.UnicronError as error:  # the header's
        says: tuple = (type(error), str(error), error.first_wrong)
    else:
        assert found == alone(path)
        says = found[2]
    expected = refused.value
    assert says == (type(expected), str(expected), expected.first_wrong)
    assert expected.first_wrong == tampering.first_wrong(lines, touched)


def test_a_file_that_is_no_history(tmp_path):
    path = tmp_path / "log.ndjson"
    path.write_text("hello\n", encoding="utf-8")
    with pytest.raises(ev.LogMismatch, match="is no unicron history"), ahead(path):
        pass


@pytest.mark.parametrize("after", [0, 1, 5, 20])
@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_child_that_is_killed_or_stopped_is_done_without(
    path, small_blocks, monkeypatch, after, what
):
    """Its pipe is short, so that it can't have said everything by then."""
    monkeypatch.setattr(read_ahead, "_SILENT_MS", 200)
    monkeypatch.setattr(read_ahead, "_PIPE", 4096)
    _long(path)
    alone_from: list[int] = []
    rest = ReadAhead._rest
    monkeypatch.setattr(
        ReadAhead, "_rest", lambda self, given: alone_from.append(given) or rest(self, given)
    )
    with ahead(path) as reader:
        child, items = reader._pid, []
        assert child
        for number, item in enumerate(reader):
            if number == after:
                os.kill(child, what)
            items.append((item, reader.chain))
        assert reader._pid == 0
    assert items == alone(path)[1]
    [given] = alone_from
    assert after <= given < len(items)  # it was in the middle


def _long(path, size=1 << 20):
    """More than a pipe of any size holds."""
    history = ev.read_history(path)
    log = list(history.events)
    while len(log) < 400 * (size >> 20):
        log.append(ev.record(len(log) + 1, FACT, b'{"a":"%s"}' % (b"x" * 5000), 5))
    ev.write_history(path, history.header, log, lambda: "0" * 64)
    assert path.stat().st_size > size


@pytest.mark.parametrize("what", ["cut", "other", "shorter"])
def test_a_file_that_becomes_another_one_meanwhile(path, small_blocks, monkeypatch, what):
    _long(path)
    history = ev.read_history(path)
    with path.open("r+b") as file:
        content = file.read()
        with contextlib.closing(ReadAhead(path, path.open("rb"))) as reader, reader._file:
            items = iter(reader)
            for _ in range(20):
                next(items)
            os.kill(reader._pid, signal.SIGKILL)
            if what == "cut":
                file.truncate(len(content) // 50)
            else:
                log = [
                    ev.record(e.seq, e.subject, e.data.replace(b"c", b"d"), e.at_ns)
                    for e in history.events[: 5 if what == "shorter" else None]
                ]
                file.seek(0)
                file.truncate()
                ev.write_history_to(file, history.header, log, lambda: "0" * 64)
                file.flush()
            with pytest.raises(ev.LogBroken) as raised:
                list(items)
    if what == "cut":
        assert raised.value.code == "E-LOG-HALF"
    else:
        assert "became another file while it was read" in str(raised.value)


@pytest.mark.parametrize("what", ["fork", "pipe"])
def test_a_system_that_gives_no_more_processes_or_pipes(path, monkeypatch, what):
    def none_left(*_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, what, none_left)
    with ahead(path) as reader:
        assert gone_through(reader) == alone(path)


def test_who_stops_in_the_middle_leaves_no_child(path, small_blocks):
    _long(path)
    with ahead(path) as reader:
        child = reader._pid
        next(iter(reader))
        os.kill(child, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_when_it_is_worth_it(path, monkeypatch):
    with path.open("rb") as file:
        assert not worth_it(file)  # short
        monkeypatch.setattr(read_ahead, "_LONG", 100)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        monkeypatch.setattr(os, "listdir", lambda _: ["1"])
        assert worth_it(file)
        monkeypatch.setattr(os, "listdir", lambda _: ["1", "2"])
        assert not worth_it(file)  # threads
        monkeypatch.setattr(os, "listdir", lambda _: ["1"])
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        assert not worth_it(file)  # one core
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        assert worth_it(file)
    with path.open("rb") as file, monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
        assert not worth_it(file)  # children vanish, and there is nobody to end or wait for
        patch.undo()
        patch.setattr(os, "listdir", _no_proc)
        assert not worth_it(file)
    readable, writable = os.pipe()
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        assert not worth_it(pipe)


def _no_proc(folder):
    raise FileNotFoundError(2, "No such file or directory", folder)


_IGNORING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "unicron.controlplane.cli", *sys.argv[1:]])
"""


def test_a_long_file_where_whoever_calls_ignores_sigchld(path):
    """As a service or a script may that starts it; then nobody can wait for a child."""
    _long(path, 4 << 20)
    said = subprocess.run(
        [sys.executable, "-c", _IGNORING, "replay", "--log", str(path), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")


def test_threads_are_seen(path, monkeypatch):
    monkeypatch.setattr(read_ahead, "_LONG", 100)
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with path.open("rb") as file:
            assert not worth_it(file)
    finally:
        done.set()
        thread.join()


def test_a_log_is_read_ahead_where_it_is_worth_it(path, monkeypatch):
    used = []
    monkeypatch.setattr(
        "unicron.controlplane.cli.log_source.ReadAhead",
        lambda *given: used.append(ReadAhead(*given)) or used[0],
    )
    monkeypatch.setattr("unicron.controlplane.cli.log_source.worth_it", lambda _: True)
    with open_log(str(path), None) as opened:
        items = list(opened.items)
        assert opened.chain is not None
        assert opened.chain() == used[0].chain
        assert opened.fraction() == 1.0
    assert items == [item for item, _ in alone(path)[1]]


_SLOW = """
import sys, time
from unicron.controlplane.cli import log_source
log_source.worth_it = lambda file: True
with log_source.open_log(sys.argv[1], None) as opened:
    for number, item in enumerate(opened.items):
        if not number:
            print("reading", flush=True)
        time.sleep(0.05)
"""


@pytest.mark.parametrize("what", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_child_goes_with_its_parent_and_says_nothing(path, what):
    """SIGINT goes to both, as from a terminal."""
    _long(path)
    parent = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "reading\n"
    [child] = _children(parent.pid)
    if what == signal.SIGINT:
        os.killpg(parent.pid, what)
    else:
        parent.send_signal(what)
    _, said = parent.communicate(timeout=30)
    assert parent.returncode == -what
    assert said.count("Traceback") == (what == signal.SIGINT)  # the parent's own
    deadline = time.monotonic() + 30
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(child)


def _lives(pid):
    """A zombie doesn't: whoever inherited it may be slow to look."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _children(pid):
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
