import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from tests.contract.worlds import JetStreamWorld
from tests.core.story import running
from unicron import events as ev
from unicron.controlplane.cli import history_path, log_source
from unicron.controlplane.cli.log_source import Log, log_arguments, read_log
from unicron.events import subjects


def test_a_file(log, story):
    read = read_log(log, None)
    assert list(read.events) == story.log
    assert (read.shown, read.cluster, read.birth) == ("log.ndjson", "c", "told")
    assert read_log(log, "c") == read


def test_a_folder_with_one_history(cli, story):
    Path("run").mkdir()
    Path("run/notes.txt").write_text("hello", encoding="utf-8")
    story.history(Path("run/log.ndjson"))
    assert read_log("run", None).shown == "run/log.ndjson"
    assert (
        "next: unicron audit --log run/log.ndjson"
        in cli("replay", "--log", "run", "--verify").stdout
    )


def test_a_folder_with_several(cli, story):
    for name in ("a", "b"):
        story.history(Path(f"{name}.ndjson"))
    done = cli("audit", "--log", ".")
    assert done.exit_code == 2
    assert ". holds 2 history files" in done.stderr
    assert "there are a.ndjson, b.ndjson" in done.stderr


def test_the_log_of_another_cluster(cli, log):
    done = cli("replay", "--log", log, "--cluster", "prod")
    assert done.exit_code == 2
    assert "log.ndjson is a log of cluster c, not of prod (E-LOG-CLUSTER)" in done.stderr


def test_what_can_be_no_cluster(cli, log):
    done = cli("replay", "--log", log, "--cluster", "a.b")
    assert done.exit_code == 2
    assert "E-CONFIG-CLUSTER" in done.stderr


def test_a_part_of_a_log(cli, story):
    before = ev.chain_of(story.log[:3]).hex()
    header = ev.HistoryHeader(cluster="c", birth="b", version="v", first_seq=4, chain_before=before)
    ev.write_history(Path("part.ndjson"), header, story.log[3:])
    done = cli("replay", "--log", "part.ndjson")
    assert done.exit_code == 2
    assert "part.ndjson begins with event 4 (E-LOG-PART)" in done.stderr


def test_a_file_that_may_not_be_read(cli, log, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    done = cli("replay", "--log", log)
    assert done.exit_code == 2
    assert "log.ndjson can't be read (E-CONFIG-FILE)\nPermission denied\n" in done.stderr


def test_a_folder_that_may_not_be_entered(cli, log, monkeypatch):
    """Neither a log in it nor a page into it gives a traceback."""
    ask = os.stat

    def refused(path, *more, **options):
        if "shut" in Path(os.fsdecode(path)).parts:
            raise PermissionError(13, "Permission denied")
        return ask(path, *more, **options)

    monkeypatch.setattr(os, "stat", refused)
    for arguments in (("--log", "shut/x.ndjson"), ("--log", log, "--html", "shut/x.html")):
        done = cli("audit", *arguments)
        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")
        assert isinstance(done.exception, SystemExit)


def test_a_folder_that_may_not_be_listed(cli, monkeypatch):
    Path("shut").mkdir()

    def refused(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    done = cli("audit", "--log", "shut")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: shut can't be read (E-CONFIG-FILE)\nPermission denied")


def test_a_pipe_that_nobody_writes_into(cli, monkeypatch):
    monkeypatch.setattr(history_path, "_WRITER_S", 0.2)
    os.mkfifo("pipe")
    before = threading.active_count()
    done = cli("audit", "--log", "pipe")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: nobody writes into pipe (E-CONFIG-FILE)\n")
    assert threading.active_count() == before


def test_a_pipe_whose_writer_comes_late(cli, log):
    os.mkfifo("pipe")
    content = Path(log).read_bytes()
    writer = threading.Timer(0.3, lambda: Path("pipe").write_bytes(content))
    writer.start()
    done = cli("replay", "--log", "pipe", "--verify")
    writer.join()
    assert done.exit_code == 0
    assert done.stdout.startswith("+ holds")


def test_a_history_on_stdin(log):
    command = [sys.executable, "-m", "unicron.controlplane.cli", "audit", "--json", "--log"]
    piped, read = (
        subprocess.run(
            [*command, name], check=False, input=Path(log).read_bytes(), capture_output=True
        )
        for name in ("-", log)
    )
    assert piped.returncode == 0
    documents = [json.loads(done.stdout) for done in (piped, read)]
    assert documents[0]["items"] == documents[1]["items"]


def test_nothing_is_the_log(cli, log):
    """An unset variable doesn't read whatever lies in the folder."""
    done = cli("audit", "--log", "")
    assert done.exit_code == 2
    assert "it is empty" in done.stderr


def test_an_address_without_a_server(cli):
    done = cli("audit", "--log", "nats://")
    assert done.exit_code == 2
    assert "names no server (E-LOG-ADDRESS)" in done.stderr


@pytest.mark.parametrize(
    "shown,arguments",
    [
        ("log.ndjson", "--log log.ndjson"),
        ("my log.ndjson", "--log 'my log.ndjson'"),
        ("nats://h:4222", "--log nats://h:4222 --cluster c"),
    ],
)
def test_arguments_to_copy(shown, arguments):
    log = Log(shown=shown, cluster="c", birth="", events=())
    assert log_arguments(log) == arguments


def test_nothing_listens_there(cli):
    done = cli("audit", "--log", "nats://me:secret@127.0.0.1:1")
    assert done.exit_code == 3
    assert "E-NATS-ADDRESS" in done.stderr
    assert "secret" not in done.output


# --- A stream ------------------------------------------------------------------------------------


def of_cluster(recorded, cluster):
    """Subject and bytes of the entry, had that cluster written it."""
    return recorded.subject.replace("unicron.c.", f"unicron.{cluster}.", 1), recorded.data


@pytest.mark.real
async def test_a_stream_reads_as_the_file_does(cli, tmp_path):
    """Chains cover subjects, so the story is told with those of the stream's cluster."""
    told = running(1)
    async with JetStreamWorld(tmp_path / "server") as world:
        log = await world.open()
        fence = 0
        for recorded in told.log:
            subject, data = of_cluster(recorded, "demo")
            control = subjects.tree_of(subject) == "control"
            outcome = await log.append(subject, data, recorded.id, fence=fence if control else None)
            assert outcome.seq == recorded.seq
            fence = recorded.seq if control else fence
        url = world.server.url
        document = await asyncio.to_thread(cli.json, "replay", "--log", url)
        assert document["cluster"] == "demo"
        assert document["birth"] == await log.birth()
        assert document["events"] >= len(told.log)
        read = await asyncio.to_thread(read_log, url, "demo")
        assert [(r.seq, r.data) for r in read.events][: len(told.log)] == [
            (r.seq, r.data) for r in told.log
        ]
        await missing_cluster(cli, url)


async def missing_cluster(cli, url):
    done = await asyncio.to_thread(cli, "audit", "--log", url, "--cluster", "prod", "--json")
    assert done.exit_code == 2
    assert "prod" in json.loads(done.stdout)["what"]


def test_a_log_is_a_value():
    log = Log(shown="x", cluster="c", birth="b", events=())
    with pytest.raises(AttributeError):
        log.cluster = "d"
    assert msgspec.to_builtins(log)["events"] == ()


@pytest.mark.parametrize(
    "typed,shown",
    [
        ("nats://h", "nats://h:4222"),
        ("tls://h:4", "tls://h:4"),
        ("nats://me:secret@h:4", "nats://me:***@h:4"),
        ("nats://token@h", "nats://***@h:4222"),
        ("nats://me:secret@[::1]:4", "nats://me:***@[::1]:4"),
    ],
)
def test_what_was_typed_is_shown_without_its_secrets(typed, shown):
    assert log_source._without_secrets(typed) == shown
    log = Log(shown=shown, cluster="c", birth="", events=())
    assert ("***" in shown) == bool(log_source.hidden_words(log))


def test_several_addresses_are_shown_without_their_secrets():
    typed = "nats://me:secret@h1:4,nats://me:secret@h2"
    address = log_source.address_of(typed, "c")
    assert (address.url, address.shown) == (typed, "nats://me:***@h1:4,nats://me:***@h2:4222")


@pytest.mark.parametrize(
    "typed", ["nats://", "nats://h:99999", "nats://[::1", "nats://me:secret", "nats://h:4,tls://"]
)
def test_what_is_no_address_is_refused_and_tells_no_secret(cli, typed):
    done = cli("status", "--log", typed)
    assert (done.exit_code, "E-LOG-ADDRESS" in done.stderr) == (2, True)
    assert "secret" not in done.stderr


def test_commands_to_type_say_that_a_secret_is_left_out(story):
    from unicron.controlplane.cli.opened import Opened, next_lines
    from unicron.controlplane.replay import IncidentBook
    from unicron.controlplane.replay.story import NextCommand

    log = Log(shown="nats://me:***@h:4", cluster="c", birth="", events=tuple(story.log))
    opened = Opened(log=log, book=IncidentBook(story.log), last_seq=len(story.log))
    assert next_lines(opened, [NextCommand(arguments=("why", "a b"), about="")]) == [
        "*** stands for the password or token, which is not shown",
        "next: unicron why 'a b' --log 'nats://me:***@h:4' --cluster c",
    ]


@pytest.mark.real
async def test_a_stream_is_followed(tmp_path):
    """What is there already is told first, then each event as it comes."""
    told = running(1)
    async with JetStreamWorld(tmp_path / "server") as world:
        log = await world.open()
        appended = 0

        async def append(recorded):
            nonlocal appended
            subject, data = of_cluster(recorded, "demo")
            control = subjects.tree_of(subject) == "control"
            await log.append(subject, data, recorded.id, fence=appended if control else None)
            appended = recorded.seq if control else appended

        for recorded in told.log[:20]:
            await append(recorded)
        arguments = ["events", "--follow", "--json", "--log", world.server.url]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "unicron.controlplane.cli", *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            seen = [json.loads(await asyncio.wait_for(process.stdout.readline(), 30))]
            await append(told.log[20])
            while seen[-1]["type"] != _tag(told.log[20]):
                seen.append(json.loads(await asyncio.wait_for(process.stdout.readline(), 30)))
        finally:
            process.send_signal(signal.SIGINT)
            code = await asyncio.wait_for(process.wait(), 30)
    assert code == 130
    assert {event["schema"] for event in seen} == {"unicron.events/1"}
    seqs = [event["seq"] for event in seen]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert seqs[0] > 1  # the newest ones of those that were there


def _tag(recorded):
    return recorded.envelope.body.__struct_config__.tag
