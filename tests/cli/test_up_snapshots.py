"""`unicron up` that was there before: where it begins, and when it refuses to."""

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import find_nats_server
from unicron.events import subjects

pytestmark = pytest.mark.real

UP = [sys.executable, "-m", "unicron.controlplane.cli", "up", "--cluster", "west"]
DATA = [*UP, "--data", "west"]


def lead(command):
    """Start it, wait until it leads, end it in order; what it said until it led."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = []
            while not said or not said[-1].startswith("control plane "):
                said.append(process.stderr.readline().rstrip())
                assert said[-1], said
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait() == 0
        finally:
            process.kill()
    return said


def refused(command):
    """Start it; exit code and what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.splitlines()


def newest():
    return max(Path("west/snapshots").iterdir())


def test_it_begins_where_it_ended(cli):
    assert lead(DATA) == ["control plane a leads cluster west"]
    first, leads = lead(DATA)
    assert first == "from the snapshot of #1 (disk), 2 events after it"
    assert leads == "control plane a leads cluster west"


def test_its_log_is_replayed_from_its_snapshots_meanwhile(cli):
    lead(DATA)
    with subprocess.Popen(DATA, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr.readline().startswith("from the snapshot of #1")
            assert process.stderr.readline() == "control plane a leads cluster west\n"
            upto = ("replay", "--verify", "--until", "3", "--log")  # the log tells of readers, too
            whole = cli.json(*upto, "west")
            reader = Path("west/reader.url").read_text().strip()
            newest_one = ("--from-snapshot", "newest")
            for log in (("west", *newest_one), ("west", "--from-snapshot", newest())):
                found = cli.json(*upto, *log)
                assert (found["began"], found["digest"]) == (1, whole["digest"])
                assert found["chain"] == whole["chain"]
            none = cli("replay", "--log", reader, "--cluster", "west", *newest_one)
            assert (none.exit_code, "E-SNAPSHOT" in none.stderr) == (2, True)
            lead([*UP, "--data", "other"])
            (other,) = Path("other/snapshots").iterdir()
            none = cli("replay", "--log", "west", "--from-snapshot", other)
            assert (none.exit_code, "E-LOG-BIRTH" in none.stderr) == (2, True)
            assert "try: leave out --from-snapshot" in none.stderr
            newest().write_bytes(b"bad")
            none = cli("replay", "--log", "west", *newest_one)
            assert (none.exit_code, "E-SNAPSHOT" in none.stderr) == (2, True)
        finally:
            process.kill()


def test_it_begins_from_the_start_without_a_good_one(cli):
    lead(DATA)
    newest().write_bytes(newest().read_bytes()[:-1])
    warned, leads = lead(DATA)
    assert warned.startswith("warning: the snapshot of #1 (disk) is left aside: its bytes don't")
    assert leads == "control plane a leads cluster west"


def test_another_folder_may_be_named(cli):
    lead([*DATA, "--snapshots", "here"])
    assert not Path("west/snapshots").exists()
    assert len(lead([*DATA, "--snapshots", "here"])) == 2
    assert lead(DATA) == ["control plane a leads cluster west"]


def test_a_folder_that_can_not_be_used_costs_a_warning(cli):
    Path("west").mkdir()
    Path("west/snapshots").write_text("")
    warned, leads = lead(DATA)
    assert warned == "warning: snapshots in west/snapshots can't be used: Not a directory"
    assert leads == "control plane a leads cluster west"


def test_a_log_that_is_older_than_its_snapshot_is_refused(cli):
    """Somebody restored the store of some time ago."""
    lead(DATA)
    shutil.copytree("west/store", "before")
    lead(DATA)
    shutil.rmtree("west/store")
    shutil.move("before", "west/store")
    code, said = refused(DATA)
    assert code == 1
    assert said[0].startswith("error: the log of west ends at #")
    assert said[0].endswith("but the snapshot is of #4 (E-LOG-SHORT)")
    assert said[1] == "it has lost its end"
    assert said[2].startswith("try: restore the log from a replica or backup; only if")
    assert "west/snapshots" in said[2]
    assert len(said) == 3
    shutil.rmtree("west/snapshots")
    assert lead(DATA)[-1] == "control plane a leads cluster west"


def test_a_log_that_is_gone_is_not_made_anew(cli):
    """Nor is one that somebody else made meanwhile taken for it."""
    lead(DATA)
    shutil.rmtree("west/store")
    for _ in range(2):
        code, said = refused(DATA)
        assert code == 2
        assert said[0].startswith("error: the log of west is gone from the NATS server at 127.0.0.")
        assert said[1] == "there are snapshots of it in west/snapshots"
        assert said[2].startswith("try: check the address, or restore the log")
    Path("west/snapshots").rename("away")
    lead(DATA)
    shutil.rmtree("west/snapshots")
    Path("away").rename("west/snapshots")
    done = subprocess.run([*DATA, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    document = json.loads(done.stdout[done.stdout.index("{\n") :])
    assert document["code"] == "E-LOG-BIRTH"
    assert "west/snapshots" in document["fix"]


@pytest.fixture
def address(tmp_path):
    """Of a server of its own."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    config = tmp_path / "server.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{tmp_path}/js" }}\n')
    server = subprocess.Popen([find_nats_server(), "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


async def fill(address, count):
    """A log with so many entries that nobody understands."""
    log = await JetStreamLog.connect(address, "west", name="control/test")
    for number in range(count):
        await log.connection.client.publish(subjects.fact("west", "n1"), b"%d" % number)
    await log.connection.client.flush()
    while await log.last_seq() < count:
        await asyncio.sleep(0.01)
    await log.close()


def test_another_host_begins_from_the_object_store(cli, address):
    asyncio.run(fill(address, 6_000))
    command = [*UP, "--nats", address, "--instance"]
    lead([*command, "a"])
    first, *_, leads = lead([*command, "b"])
    assert first.startswith("from the snapshot of #6,00")
    assert first.endswith("(object store), 0 events after it")
    assert leads == "control plane b leads cluster west"
    command = ("replay", "--log", address, "--cluster", "west", "--verify", "--until", "6002")
    done, found = cli.json(*command), cli.json(*command, "--from-snapshot", "newest")
    assert 6_000 <= found["began"] <= 6_002
    assert (found["digest"], found["chain"]) == (done["digest"], done["chain"])
