"""A spool gives back what was taken, whatever happened to its process, its disk or its bytes."""

import os
import random
import signal
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker_shim.test_publisher import peer_error
from unicron.events import codec
from unicron.events.envelope import Envelope, Source
from unicron.worker_shim import dropped, spool
from unicron.worker_shim.spool import Owner, SpoolDepth, SpoolFile

OWNER = Owner(cluster="c", who="worker/n1/0", incarnation=5)
MIB = 1024 * 1024


def fact(number, text=""):
    source = Source(who=OWNER.who, incarnation=OWNER.incarnation, counter=number)
    body = peer_error(number, text or "closed by peer" * (number % 3))
    return codec.encode(
        Envelope(id=f"worker/n1/0:5:{number}", source=source, written_at_ns=number, body=body)
    )


def written(count, header=True):
    records = [spool.encode_record(fact(number)) for number in range(1, count + 1)]
    return (spool.encode_header(OWNER) if header else b"") + b"".join(records)


def numbers(data):
    return [f.source.counter for f in spool.decode(data).facts]


# --- The format ----------------------------------------------------------------------------------


def test_what_was_written_is_read():
    contents = spool.decode(written(3))
    assert contents.owner == OWNER and contents.damaged == 0
    assert [f.data for f in contents.facts] == [fact(1), fact(2), fact(3)]
    assert {f.kind for f in contents.facts} == {"worker.peer_error.v1"}
    assert spool.decode(b"") == spool.Contents(owner=None, facts=(), damaged=0)


def test_a_file_cut_anywhere_holds_all_that_was_whole():
    data = written(3)
    ends = [len(written(count)) for count in range(4)]
    for length in range(len(data) + 1):
        whole = sum(end <= length for end in ends) - 1
        contents = spool.decode(data[:length])
        assert len(contents.facts) == max(0, whole)
        assert (contents.damaged > 0) == (length not in (0, len(spool.MAGIC), *ends))


def test_a_damaged_byte_costs_its_own_record_only():
    data = written(4)
    for position in range(len(spool.MAGIC), len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        contents = spool.decode(bytes(damaged))
        lost = 4 - len(contents.facts)
        assert (lost, contents.owner) in ((1, OWNER), (0, None)), position
        assert contents.damaged >= 1


def test_numbers_that_were_damaged_are_spoken_for():
    data = written(5).replace(fact(2), b"x" * len(fact(2))).replace(fact(3), fact(3)[:-1] + b"?")
    whole = dropped.filled(spool.decode(data).facts)
    assert [f.source.counter for f in whole] == [1, 2, 3, 4, 5]
    said = [codec.decode("unicron.c.fact.n1", f.data) for f in whole[1:3]]
    assert [e.id for e in said] == ["worker/n1/0:5:2", "worker/n1/0:5:3"]
    assert [(e.body.who, e.body.incarnation, e.body.count) for e in said] == [
        ("worker/n1/0", 5, 1)
    ] * 2
    assert "damaged" in said[0].body.reason


def test_a_number_that_no_damage_explains_is_not_led_up_to():
    """Somebody wrote it there: 10**15 facts that say of each other that they are lost."""
    found = spool.decode(written(2) + spool.encode_record(fact(10**15))).facts
    assert [f.source.counter for f in dropped.filled(found)] == [1, 2, 10**15]


def test_of_two_records_with_a_number_the_later_one_counts():
    later = fact(2, "the later one")
    data = written(3) + spool.encode_record(later)
    assert spool.decode(data).facts[1].data == later
    assert numbers(data) == [1, 2, 3]


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_can_hurt(noise, header):
    spool.decode(noise)
    data = written(1, header) + noise + written(3, header=False)
    assert set(numbers(data)) >= {1, 2, 3}


# --- The file ------------------------------------------------------------------------------------


def test_a_file_holds_what_waits(folder):
    path = str(folder / "w.spool")
    file, depth = SpoolFile(path, OWNER), SpoolDepth(path)
    assert depth.read() == 0 and not os.path.exists(path)
    for number in (1, 2, 3):
        file.append(fact(number))
    assert depth.read() == 3 and spool.is_held(path) is False  # of one process, no lock holds
    file.keep([fact(2), fact(3)])
    file.append(fact(4))
    assert numbers((folder / "w.spool").read_bytes()) == [2, 3, 4]
    assert file.size == os.path.getsize(path)
    file.keep(())
    assert depth.read() == 0 and file.size == len(spool.encode_header(OWNER))
    file.append(fact(5))
    file.close()
    assert numbers((folder / "w.spool").read_bytes()) == [5]
    file.append(fact(6))  # too late, and harmless
    assert depth.read() == 1
    assert os.listdir(folder) == ["w.spool"]


def test_an_empty_one_is_removed_at_the_end(folder):
    file = SpoolFile(str(folder / "w.spool"), OWNER)
    file.append(fact(1))
    file.keep(())
    file.close()
    assert os.listdir(folder) == []


WRITER = """
import os, sys
from tests.worker_shim.test_spool import OWNER, fact
from unicron.worker_shim.spool import SpoolFile
file = SpoolFile(sys.argv[1], OWNER)
number = 0
while True:
    number += 1
    file.append(fact(number))
    os.write(1, b"x")
"""


def test_what_was_taken_survives_kill_9(folder):
    path = folder / "w.spool"
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=os.getcwd()
        )
        taken = len(writer.stdout.read(random.Random(3).randrange(200, 2000)))
        assert spool.is_held(str(path))
        writer.send_signal(signal.SIGKILL)
        taken += len(writer.stdout.read())
        writer.stdout.close()
        writer.wait(10)
        assert not spool.is_held(str(path))
        found = numbers(path.read_bytes())
        assert found == list(range(1, len(found) + 1)) and len(found) in (taken, taken + 1)


FILLER = """
import resource, sys
from tests.worker_shim.test_spool import OWNER, fact
from unicron.worker_shim.spool import SpoolFile
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 10_000))
file = SpoolFile(sys.argv[1], OWNER)
for number in range(1, 101):
    file.append(fact(number))
print(file.behind, file.size)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
file.keep([fact(99), fact(100)])
file.append(fact(101))
print(file.behind)
"""


def test_a_full_disk_costs_no_record_that_was_whole_and_is_said_once(folder):
    path = folder / "w.spool"
    done = subprocess.run(
        [sys.executable, "-c", FILLER, str(path)], capture_output=True, text=True, check=True
    )
    behind, size, healed = done.stdout.split()
    assert (behind, healed) == ("True", "False") and 4_000 < int(size) <= 5_000
    assert done.stderr.count("can't be written") == 1 and "in memory only" in done.stderr
    assert numbers(path.read_bytes()) == [99, 100, 101]


def test_when_full_the_file_ends_with_a_whole_record(folder):
    path = folder / "w.spool"
    script = FILLER.partition("print")[0]
    subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=True)
    contents = spool.decode(path.read_bytes())
    found = [f.source.counter for f in contents.facts]
    assert contents.damaged == 0 and found == list(range(1, len(found) + 1)) and len(found) > 5


def test_a_folder_that_cannot_be_used_is_said_once_and_hurts_nobody(folder, caplog):
    (folder / "file").write_text("")
    file = SpoolFile(str(folder / "file" / "w.spool"), OWNER)
    for number in range(1, 20):
        file.append(fact(number))
        file.keep(())
    assert caplog.text.count("can't be written") == 1
    file.keep([fact(20)])
    assert file.behind and file.size == 0
    file.close()


@pytest.mark.parametrize("text", ["", "not json", '{"source": 3}', '{"source": {"who": "x"}}'])
def test_a_whole_record_that_is_no_fact_is_damage(text):
    contents = spool.decode(written(1) + spool.encode_record(text.encode()))
    assert (len(contents.facts), contents.damaged) == (1, 1)


def test_facts_of_a_newer_version_are_read():
    raw = msgspec.json.decode(fact(2))
    raw["body"] = {"type": "worker.unheard_of.v7", "news": 1}
    found = spool.decode(written(1) + spool.encode_record(msgspec.json.encode(raw))).facts
    assert [f.kind for f in found] == ["worker.peer_error.v1", "worker.unheard_of.v7"]
