"""The progress page: read from outside at any moment, and the breakpoint in it."""

import os
import signal
import struct
import time

import pytest

from unicron.worker_shim.breakpoint import Breakpoint
from unicron.worker_shim.page import PageReader, Phase, ProgressPage
from unicron.worker_shim.process import start_ticks


def test_a_reader_sees_what_the_writer_wrote(tmp_path):
    page = ProgressPage(str(tmp_path / "p"), incarnation=7)
    page.set(generation=3, iteration=11, micro_batches_done=2)
    page.count_collective()
    page.count_forward()
    page.count_forward()
    page.enter(Phase.REDUCTION)
    seen = PageReader(page.path).read()
    assert (seen.pid, seen.start_ticks, seen.incarnation) == (
        os.getpid(),
        start_ticks(os.getpid()),
        7,
    )
    assert (seen.generation, seen.iteration, seen.micro_batches_done) == (3, 11, 2)
    assert (seen.collectives, seen.forward_passes, seen.phase) == (1, 2, Phase.REDUCTION)
    assert seen.phase.label == "reduction"
    assert 0 < seen.changed_ns <= time.monotonic_ns()


def test_absent_short_and_foreign_files_read_as_nothing(tmp_path):
    assert PageReader(str(tmp_path / "none")).read() is None
    (tmp_path / "short").write_bytes(b"abc")
    assert PageReader(str(tmp_path / "short")).read() is None
    (tmp_path / "foreign").write_bytes(os.urandom(512))
    assert PageReader(str(tmp_path / "foreign")).read() is None


def test_a_reader_made_before_the_page_finds_it(tmp_path):
    reader = PageReader(str(tmp_path / "p"))
    assert reader.read() is None
    ProgressPage(str(tmp_path / "p"), incarnation=1)
    assert reader.read().incarnation == 1


def test_a_slot_torn_by_sigkill_leaves_the_one_before(tmp_path):
    page = ProgressPage(str(tmp_path / "p"), incarnation=1)
    page.set(iteration=5)
    page.set(iteration=6)
    published = PageReader(page.path).read()
    # The death between filling the next slot and publishing it: half of the slot is new.
    offset = 8 * (16 + ((page._count + 1) & 1) * 16)
    struct.pack_into("@3q", page._map, offset, page._count + 1, 9, 7)
    assert PageReader(page.path).read() == published
    # And a published slot whose content doesn't belong together is refused.
    page._words[8] = page._count + 1
    assert PageReader(page.path).read() is None


@pytest.mark.real
def test_readings_are_never_torn_while_the_writer_runs(tmp_path):
    path = str(tmp_path / "p")
    pid = os.fork()
    if pid == 0:
        page = ProgressPage(path, incarnation=1)
        for number in range(100_000_000):
            page.set(generation=number, iteration=2 * number, micro_batches_done=3 * number)
        os._exit(1)
    reader, readings = PageReader(path), set()
    try:
        end = time.monotonic() + 20
        while len(readings) < 500:
            seen = reader.read()
            if seen is not None:
                readings.add((seen.generation, seen.iteration, seen.micro_batches_done))
            assert time.monotonic() < end
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert all(i == 2 * g and m == 3 * g for g, i, m in readings)


def forked_worker(path, *, fault_injection=True, iterations=10_000):
    """A process that goes round forward and vote for ever."""
    pid = os.fork()
    if pid:
        return pid
    try:
        page = ProgressPage(path, incarnation=1, fault_injection=fault_injection)
        for iteration in range(iterations):
            page.set(iteration=iteration, micro_batches_done=0, generation=1)
            for micro_batch in range(3):
                page.set(micro_batches_done=micro_batch)
                page.enter(Phase.FORWARD, micro_batch)
            page.enter(Phase.VOTE)
            time.sleep(0.001)
    finally:
        os._exit(0)


@pytest.fixture
def worker(tmp_path):
    pid = forked_worker(str(tmp_path / "p"))
    yield pid, str(tmp_path / "p")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.real
def test_a_breakpoint_holds_the_worker_exactly_there(worker):
    _, path = worker
    with Breakpoint(path) as injector:
        iteration = PageReader(path).read().iteration + 20
        injector.arm(Phase.FORWARD, iteration=iteration, micro_batch=1)
        before = time.monotonic_ns()
        hit = injector.wait_hit(10)
        assert hit is not None and hit >= before - 1_000_000_000
        held = PageReader(path).read()
        assert (held.iteration, held.micro_batches_done, held.phase) == (
            iteration,
            1,
            Phase.FORWARD,
        )
        assert PageReader(path).read() == held


@pytest.mark.real
def test_a_disarmed_worker_goes_on_and_can_be_held_again(worker):
    _, path = worker
    with Breakpoint(path) as injector:
        for _ in range(3):
            injector.arm(Phase.VOTE)
            assert injector.wait_hit(10) is not None
            assert PageReader(path).read().phase == Phase.VOTE
            held = PageReader(path).read()
            injector.disarm()
            end = time.monotonic() + 10
            while PageReader(path).read().changed_ns == held.changed_ns:
                assert time.monotonic() < end
        injector.arm(Phase.VOTE, generation=99)
        assert injector.wait_hit(0.1) is None


@pytest.mark.real
def test_a_second_injector_takes_over(worker):
    _, path = worker
    with Breakpoint(path) as first:
        first.arm(Phase.VOTE)
        assert first.wait_hit(10) is not None
    with Breakpoint(path) as second:
        second.arm(Phase.FORWARD)
        assert second.wait_hit(10) is not None


@pytest.mark.real
def test_without_fault_injection_there_is_no_breakpoint(tmp_path):
    pid = forked_worker(str(tmp_path / "p"), fault_injection=False, iterations=5)
    try:
        with pytest.raises(ValueError, match="fault_injection=True"):
            Breakpoint(str(tmp_path / "p"))
    finally:
        os.waitpid(pid, 0)


def test_waiting_for_a_page_has_a_limit(tmp_path):
    with pytest.raises(TimeoutError):
        Breakpoint(str(tmp_path / "p"), timeout_s=0.01)
