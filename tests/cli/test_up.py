"""`unicron up` with a server of its own, and reading its log by the data folder meanwhile."""

import contextlib
import json
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unicron.controlplane.runtime import data_folder
from unicron.controlplane.runtime.natsserver import find_nats_server

pytestmark = pytest.mark.real


@pytest.fixture
def started(cli):
    """A control plane of cluster west on the folder ``west`` that leads; ended by the test."""
    command = [sys.executable, "-m", "unicron.controlplane.cli", "up", "--cluster", "west"]
    process = subprocess.Popen(
        [*command, "--data", "west"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr.readline() == "control plane a leads cluster west\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_its_log_is_read_by_its_folder_while_it_runs(cli, started):
    for name in (data_folder.NODES, data_folder.READER):
        assert stat.S_IMODE(Path("west", name).stat().st_mode) == 0o600
    assert cli.json("status", "--log", "west")["leader"] == "a"
    shown = cli("events", "--log", "west")
    assert "a leads cluster west" in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith(" --log west")
    assert cli("replay", "--log", "west", "--verify", "--export", "x.ndjson").exit_code == 0
    other = cli("status", "--log", "west", "--cluster", "east")
    assert (other.exit_code, "E-LOG-CLUSTER" in other.stderr) == (2, True)
    nodes = Path("west", data_folder.NODES).read_text().strip()
    refused = cli("status", "--cluster", "west", "--log", nodes)
    assert refused.exit_code == 4
    assert "reader.url" in refused.stderr

    started.send_signal(signal.SIGTERM)
    out, err = started.communicate(timeout=30)
    assert "unicron status --log west" in out
    assert err.splitlines() == [
        "ending on SIGTERM",
        "control plane a of cluster west ended; tasks train on without it",
    ]
    ended = cli("status", "--log", "west")
    assert ended.exit_code == 3
    assert "E-DATA-NOT-RUNNING" in ended.stderr
    assert "try: unicron up --cluster west --data west" in ended.stderr


def test_a_killed_one_leaves_no_address_that_is_believed(cli, started):
    started.kill()
    started.wait()
    assert Path("west", data_folder.READER).exists()
    for _ in range(100):  # a child between fork and exec holds the lock a moment longer
        said = cli("status", "--log", "west").stderr
        if "E-NATS-ADDRESS" not in said:
            break
    assert "E-DATA-NOT-RUNNING" in said


def test_the_folder_of_another_cluster_is_refused(cli):
    with data_folder.alone(Path("west"), "west"):
        pass
    done = cli("up", "--cluster", "east", "--data", "west", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["code"] == "E-DATA-CLUSTER"
    assert "west is the folder of cluster west, not of east" in done.stderr


@pytest.mark.parametrize(
    "name, code",
    [
        ("cluster", "E-DATA-FOLDER"),
        ("lock", "E-DATA-FOLDER"),
        ("port", "E-DATA-FOLDER"),
        ("nodes.url", "E-DATA-FOLDER"),
        ("nats-server.log", "E-NATS-FOLDER"),
        ("nats-server.conf", "E-NATS-FOLDER"),
        ("passwords.json", "E-NATS-FOLDER"),
    ],
)
def test_a_folder_that_can_not_be_written_is_told_as_one_error(cli, name, code):
    Path("west", name).mkdir(parents=True)
    done = cli("up", "--cluster", "west", "--data", "west")
    assert (done.exit_code, f"({code})" in done.stderr) == (2, True)
    assert "a disk with room" in done.stderr


def test_passwords_that_were_damaged_are_not_made_anew(cli):
    Path("west").mkdir()
    for damaged in (b"", b'{"control": 3}', b"\xff"):
        Path("west/passwords.json").write_bytes(damaged)
        done = cli("up", "--cluster", "west", "--data", "west")
        assert (done.exit_code, "(E-NATS-FOLDER)" in done.stderr) == (2, True)
        assert Path("west/passwords.json").read_bytes() == damaged


def test_a_damaged_owner_is_nobody(cli):
    Path("west").mkdir()
    Path("west/cluster").write_bytes(b"\xff\xfe")
    done = cli("up", "--cluster", "west", "--data", "west")
    assert (done.exit_code, "(E-DATA-CLUSTER)" in done.stderr) == (2, True)


def test_a_name_or_port_that_is_none_claims_no_folder(cli):
    for wrong in (("--cluster", "../west"), ("--cluster", "west", "--port", "99999")):
        assert cli("up", *wrong, "--data", "west").exit_code == 2
        assert not Path("west").exists()


def test_an_address_of_another_kind(cli):
    done = cli("status", "--log", "http://me:secret@host/x")
    assert done.exit_code == 2
    assert "a NATS address begins with nats://" in done.stderr
    assert "secret" not in done.output


def test_a_server_of_its_own_keeps_the_log_alone(cli):
    done = cli("up", "--cluster", "west", "--data", "west", "--replicas", "3")
    assert done.exit_code == 2
    assert "--replicas needs --nats" in done.stderr


def test_an_address_that_may_not_write_is_told_as_one_error(cli, started):
    """The second instance gets as far as the election, among several tasks of one group."""
    reader = Path("west", data_folder.READER).read_text().strip()
    command = [sys.executable, "-m", "unicron.controlplane.cli", "up", "--cluster", "west"]
    command += ["--nats", reader, "--instance", "b"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 4
    assert "a control plane needs a user that may do everything" in refused.stderr
    assert len(refused.stderr.splitlines()) == 3, refused.stderr
    assert started.poll() is None


def test_the_folder_of_another_one_is_no_address(cli):
    Path("west").mkdir()
    for given in ("west", "./east"):
        done = cli("up", "--cluster", "west", "--nats", given)
        assert done.exit_code == 3
        assert f"{given} is no address of a NATS server" in done.stderr
        assert "docs/failover.md" in done.stderr


def test_a_configuration_that_makes_no_sense_is_refused_before_anything_starts(cli):
    Path("unicron.toml").write_text("[planning]\nrepiar_ms = 5\n")
    done = cli("up", "--cluster", "west", "--data", "west", "--config", "unicron.toml", "--json")
    assert done.exit_code == 2
    told = json.loads(done.stdout)
    assert (told["code"], told["fix"]) == ("E-UNKNOWN-KEY", "did you mean repair_ms?")
    assert not Path("west").exists()


def test_a_configuration_is_in_force_and_stays_without_its_file(cli):
    Path("unicron.toml").write_text("[planning]\nnode_mtbf_ms = 90_000\n")
    command = [sys.executable, "-m", "unicron.controlplane.cli", "up", "--cluster", "west"]
    command += ["--data", "west"]
    for more in (["--config", "unicron.toml"], []):
        process = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True)
        try:
            while "leads" not in process.stderr.readline():
                assert process.poll() is None
            for _ in range(100):
                configured = cli.json("status", "--log", "west")["configured"]
                if configured:
                    break
            assert configured == "a node fails once in 1 min 30"
            told = [e for e in cli("events", "--log", "west").stdout.splitlines() if "config" in e]
            assert len(told) == 1
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


@pytest.fixture
def shared(tmp_path):
    """Starts a server on one port and one store, again after it was killed."""
    store = tmp_path / "shared"
    store.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (store / "server.conf").write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{store}/js" }}\n'
    )
    running = []

    def start():
        command = [find_nats_server(), "-c", str(store / "server.conf")]
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return running[-1]
            time.sleep(0.05)
        raise AssertionError("the server doesn't start")

    yield start, f"127.0.0.1:{port}"
    for server in running:
        server.kill()
        server.wait()


def test_a_server_that_is_away_is_told_and_when_it_is_back(cli, shared):
    start, address = shared
    server = start()
    command = [sys.executable, "-m", "unicron.controlplane.cli", "up", "--cluster", "west"]
    command += ["--nats", f"nats://{address}", "--instance", "b"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr.readline() == "control plane b leads cluster west\n"
            server.kill()
            server.wait()
            assert process.stderr.readline().startswith(f"the NATS server at {address} is out of")
            start()
            assert process.stderr.readline() == f"the NATS server at {address} is back\n"
            process.send_signal(signal.SIGINT)
            said = process.stderr.read().splitlines()
            assert said[-1].startswith("control plane b of cluster west ended")
            assert process.wait() == 0
        finally:
            process.kill()
