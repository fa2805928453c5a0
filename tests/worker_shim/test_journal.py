"""The journal: what was written survives SIGKILL, a torn tail does no harm."""

import math
import os
import signal
import time

import pytest

from unicron.worker_shim.journal import RECORD_BYTES, Journal, Kind, read_journal


def test_records_are_read_as_written(tmp_path):
    path = str(tmp_path / "j")
    journal = Journal(path)
    journal.forward(4, 11, 2)
    journal.commit(4, 2, loss=2.5, contributed=(11, 3))
    journal.close()
    forward, first, second, commit = read_journal(path)
    assert (forward.kind, forward.iteration, forward.micro_batch) == (Kind.FORWARD, 4, 11)
    assert forward.generation == 2 and math.isnan(forward.loss)
    assert [(r.kind, r.micro_batch) for r in (first, second)] == [
        (Kind.CONTRIBUTED, 11),
        (Kind.CONTRIBUTED, 3),
    ]
    assert (commit.kind, commit.iteration, commit.generation, commit.loss) == (
        Kind.COMMIT,
        4,
        2,
        2.5,
    )
    assert forward.mono_ns <= commit.mono_ns <= time.monotonic_ns()


def test_losses_keep_their_bits(tmp_path):
    journal = Journal(str(tmp_path / "j"))
    losses = [0.1 + 0.2, 5e-324, -0.0, float("inf")]
    for number, loss in enumerate(losses):
        journal.commit(number, 1, loss=loss)
    assert [r.loss.hex() for r in read_journal(journal_path(tmp_path))] == [x.hex() for x in losses]


def journal_path(folder):
    return str(folder / "j")


def test_no_file_no_records(tmp_path):
    assert read_journal(journal_path(tmp_path)) == []


@pytest.mark.parametrize("cut", [1, 39, 40, 41])
def test_a_torn_tail_is_left_out(tmp_path, cut):
    journal = Journal(journal_path(tmp_path))
    for iteration in range(5):
        journal.forward(iteration, 0, 1)
    os.truncate(journal_path(tmp_path), 5 * RECORD_BYTES - cut)
    records = read_journal(journal_path(tmp_path))
    assert [r.iteration for r in records] == list(range((5 * RECORD_BYTES - cut) // RECORD_BYTES))


def test_damage_before_the_tail_is_an_error(tmp_path):
    journal = Journal(journal_path(tmp_path))
    for iteration in range(3):
        journal.forward(iteration, 0, 1)
    data = bytearray((tmp_path / "j").read_bytes())
    data[RECORD_BYTES + 20] ^= 1
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(ValueError, match="record 1 is damaged"):
        read_journal(journal_path(tmp_path))


@pytest.mark.real
def test_what_was_written_survives_sigkill(tmp_path):
    pid = os.fork()
    if pid == 0:
        journal = Journal(journal_path(tmp_path))
        for iteration in range(1_000_000):
            journal.forward(iteration, iteration % 12, 1)
        os._exit(1)
    end = time.monotonic() + 10
    while len(read_journal(journal_path(tmp_path))) < 100:
        assert time.monotonic() < end
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    records = read_journal(journal_path(tmp_path))
    assert [r.iteration for r in records] == list(range(len(records)))
