"""`unicron replay --export`: what is written, how, and what is refused."""

import asyncio
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_log_source import of_cluster
from tests.contract.worlds import JetStreamWorld
from tests.core.story import running
from unicron import events as ev
from unicron.controlplane.cli import progress
from unicron.controlplane.core.configuration import digest_of
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.events import subjects

UNICRON = Path(sys.executable).parent / "unicron"


def test_what_is_written_is_read_back_and_verified(cli, log, story):
    done = cli("replay", "--log", log, "--export", "out.ndjson", "--verify")
    assert done.exit_code == 0, done.output
    size = Path("out.ndjson").stat().st_size
    first, second, *_ = done.stdout.splitlines()
    assert first == f"+ exported {len(story.log)} events into out.ndjson ({size:,} bytes)"
    assert second.startswith("+ holds for cluster c up to ")
    assert "1 digest compared" in done.stdout
    assert done.stdout.endswith("next: unicron audit --log out.ndjson\n")
    history = ev.read_history(Path("out.ndjson"), strict=True)
    assert list(history.events) == story.log
    assert (history.header.cluster, history.header.birth) == ("c", "told")
    assert history.header.fold_version == FOLD_VERSION
    assert history.seal.state_digest == digest(story.state)


def test_an_export_of_an_export_is_the_same(cli, log):
    for source, target in ((log, "one.ndjson"), ("one.ndjson", "two.ndjson")):
        assert cli("replay", "--log", source, "--export", target).exit_code == 0
    assert Path("one.ndjson").read_bytes() == Path("two.ndjson").read_bytes()


def test_a_compressed_history_is_read_wherever_a_plain_one_is(cli, log, story):
    Path("run").mkdir()
    done = cli("replay", "--log", log, "--export", "run/night.ndjson.zst", "--verify")
    assert done.exit_code == 0, done.output
    packed, plain = Path("run/night.ndjson.zst"), Path(log)
    assert packed.stat().st_size < plain.stat().st_size / 3
    for command in (["replay", "--verify"], ["audit"], ["status"], ["events"]):
        assert cli(*command, "--log", "run").exit_code == 0, command
    assert cli("replay", "--log", packed, "--export", "again.ndjson").exit_code == 0
    history = ev.read_history(Path("again.ndjson"))
    assert list(history.events) == story.log
    assert history.header.logic_version == LOGIC_VERSION
    assert history.seal.configuration == digest_of(story.state.planning)


def test_a_compressed_history_that_was_cut_off_is_refused(cli, log):
    assert cli("replay", "--log", log, "--export", "night.ndjson.zst").exit_code == 0
    packed = Path("night.ndjson.zst")
    packed.write_bytes(packed.read_bytes()[:-40])
    done = cli("replay", "--log", packed)
    assert done.exit_code == 1
    assert "can't be unpacked there: it is cut off" in done.stderr


def test_a_folder_is_exported_and_only_its_beginning(cli, story):
    Path("run").mkdir()
    story.history(Path("run/log.ndjson"))
    document = cli.json("replay", "--log", "run", "--export", "a.ndjson", "--until", "28")
    assert document["export"] == {"file": "a.ndjson", "bytes": Path("a.ndjson").stat().st_size}
    assert (document["log"], document["log_events"]) == ("a.ndjson", 28)
    assert document["digest"] == digest(story.states[28])
    assert cli("replay", "--log", "a.ndjson", "--verify").exit_code == 0


def test_a_beginning_that_is_longer_than_the_log(cli, log, story):
    done = cli("replay", "--log", log, "--export", "a.ndjson", "--until", len(story.log) + 1)
    assert done.exit_code == 2
    assert "E-REPLAY-UNTIL" in done.stderr
    assert not Path("a.ndjson").exists()


def test_digests_stand_at_regular_distances(cli):
    told = running(1)
    for port in range(1, 2000):
        told.fact("agent/n1", 1, ev.StoreBound(node="n1", address="a", store_port=port))
    told.history(Path("log.ndjson"))
    document = cli.json("replay", "--log", "log.ndjson", "--export", "out.ndjson", "--verify")
    assert document["digests"] == 3
    digests = ev.read_history(Path("out.ndjson")).digests
    assert [d.seq for d in digests] == [1000, 2000, len(told.log)]
    assert [d.state_digest for d in digests] == [digest(told.states[d.seq]) for d in digests]


# --- Refused -------------------------------------------------------------------------------------


def refused(cli, *arguments, code):
    """Three lines on stderr at most, exit code 2, and nothing new in the folder."""
    before = {p.name: p.read_bytes() for p in Path().iterdir() if p.is_file()}
    done = cli("replay", *arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert f"({code})" in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) <= 3
    assert {p.name: p.read_bytes() for p in Path().iterdir() if p.is_file()} == before
    return done.stderr


def test_what_is_there_is_replaced_only_by_force(cli, log):
    Path("out.ndjson").write_text("precious", encoding="utf-8")
    said = refused(cli, "--log", log, "--export", "out.ndjson", code="E-EXPORT-EXISTS")
    assert "--force" in said
    assert cli("replay", "--log", log, "--export", "out.ndjson", "--force").exit_code == 0
    assert cli("replay", "--log", "out.ndjson", "--verify").exit_code == 0


def test_a_log_may_replace_itself(cli, log, story):
    assert cli("replay", "--log", log, "--export", log, "--force").exit_code == 0
    assert list(ev.read_history(Path(log)).events) == story.log


@pytest.mark.parametrize("named", ["log.ndjson", "."])
def test_a_beginning_does_not_replace_the_log(cli, log, named):
    arguments = ("--log", named, "--until", "5", "--export", log, "--force")
    assert "is the log that is read" in refused(cli, *arguments, code="E-EXPORT-TARGET")


@pytest.mark.parametrize("target", [".", "nowhere/out.ndjson"])
def test_where_no_file_can_be(cli, log, target):
    refused(cli, "--log", log, "--export", target, code="E-EXPORT-TARGET")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_is_full_leaves_no_half_file(cli, log, monkeypatch, number):
    def full(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    Path("out.ndjson").write_text("precious", encoding="utf-8")
    for target, force in (("new.ndjson", ()), ("out.ndjson", ("--force",))):
        said = refused(cli, "--log", log, "--export", target, *force, code="E-EXPORT-WRITE")
        assert os.strerror(number) in said


def test_a_folder_without_permission(cli, log, monkeypatch):
    """As root nothing is forbidden, so the refusal is the system's by hand."""

    def forbidden(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("unicron.events.history.tempfile.mkstemp", forbidden)
    said = refused(cli, "--log", log, "--export", "out.ndjson", code="E-EXPORT-WRITE")
    assert "Permission denied" in said


def test_a_touched_log_is_not_exported(cli, log):
    lines = Path(log).read_bytes().splitlines(keepends=True)
    Path(log).write_bytes(b"".join([*lines[:20], *lines[21:]]))
    done = cli("replay", "--log", log, "--export", "out.ndjson")
    assert (done.exit_code, Path("out.ndjson").exists()) == (1, False)
    assert [p.name for p in Path().iterdir()] == [log]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--force",),
        ("--export", "-", "--verify"),
        ("--export", "-", "--json"),
    ],
)
def test_what_does_not_go_together(cli, log, arguments):
    done = cli("replay", "--log", log, *arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.stderr


# --- Pipes ---------------------------------------------------------------------------------------


def test_onto_stdout(log, story, tmp_path):
    done = subprocess.run(
        [UNICRON, "replay", "--log", log, "--export", "-"],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    reader = ev.HistoryReader("stdout", io.BytesIO(done.stdout))
    assert [item for item in reader if isinstance(item, ev.Recorded)] == story.log
    assert reader.seal is not None


def test_a_pipe_that_closes_early_and_a_device_that_is_full(log, tmp_path):
    command = f"{UNICRON} replay --log {log} --export"
    for rest, code in ((" - | true; exit ${PIPESTATUS[0]}", 0), (" /dev/full", 2)):
        done = subprocess.run(
            ["bash", "-c", command + rest],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    assert not Path("/dev/full").is_file()


# --- Progress ------------------------------------------------------------------------------------


def test_progress_is_told_only_once_it_takes_long(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    items = iter(range(100_000))
    for item in progress.watched("replay", items, lambda: 0.25):
        now = item * 0.001  # a thousand in a second
        if item == 9000:
            assert capsys.readouterr().err == ""
        if item == 15_000:
            break
    assert capsys.readouterr().err == ("replay   25 %  10,048 events  1,000/s  30 s left\n")


def test_a_progress_line_without_an_end():
    assert progress.progress_line("export", 2_000, 4.0, None) == "export  2,000 events  500/s"


# --- A stream ------------------------------------------------------------------------------------


@pytest.mark.real
async def test_a_stream_is_exported(cli, tmp_path):
    told = running(1)
    async with JetStreamWorld(tmp_path / "server") as world:
        log = await world.open()
        fence = 0
        for recorded in told.log:
            subject, data = of_cluster(recorded, "demo")
            control = subjects.tree_of(subject) == "control"
            await log.append(subject, data, recorded.id, fence=fence if control else None)
            fence = recorded.seq if control else fence
        arguments = ("replay", "--log", world.server.url, "--export", "out.ndjson")
        done = await asyncio.to_thread(cli, *arguments, "--json")
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        history = ev.read_history(Path("out.ndjson"))
        assert history.header.birth == document["birth"] == await log.birth()
        assert history.header.cluster == "demo"
        assert [r.data for r in history.events][: len(told.log)] == [r.data for r in told.log]
