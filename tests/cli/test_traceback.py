"""`unicron traceback`: from a file, and from a server that has the whole beside the log."""

import asyncio
from pathlib import Path

import pytest

from tests.core.story import running
from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import ExceptionReported, LongText, read_history, subjects
from unicron.worker_shim.longtext import SUFFIX, keep

_COMMON = {
    "task": "gpt",
    "worker": "n1/1",
    "incarnation": 1,
    "generation": 1,
    "iteration": 3,
    "phase": "forward",
    "kind": "software",
    "message": "ValueError: boom",
}
_WHOLE = LongText(sha256="ab" * 32, size=12_345)


def told(path, **fields):
    """Of a worker that raised; the sequence at which it said so."""
    story = running(1)
    story.fact("worker/n1/1", 1, ExceptionReported(**_COMMON, **fields))
    seq = len(story.log)
    story.settle()
    story.history(Path(path))
    return seq


def test_a_short_one_stands_in_the_log(cli):
    seq = told("x.ndjson", traceback="Traceback\n  here\nValueError: boom\n")
    done = cli("traceback", f"#{seq}", "--log", "x.ndjson")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "Traceback\n  here\nValueError: boom\n\n"
    for question in (("status", seq), ("why", seq), ("audit", "inc")):
        told_of = cli(*question, "--log", "x.ndjson").stdout
        assert f"unicron traceback {seq} --log x.ndjson" in told_of


def test_of_a_long_one_a_file_has_both_ends(cli):
    seq = told("x.ndjson", traceback="Traceback [… cut …] boom", whole=_WHOLE)
    done = cli("traceback", seq, "--log", "x.ndjson")
    assert done.exit_code == 1
    assert done.stdout == "Traceback [… cut …] boom\n"
    assert done.stderr.startswith("not the whole: 12,345 bytes, sha256 abab")
    document = cli.json("traceback", seq, "--log", "x.ndjson", exit_code=1)
    assert (document["is_whole"], document["worker"]) == (False, "n1/1")
    assert "LOG is a file" in document["missing"]


def test_an_older_worker_said_less(cli):
    seq = told("x.ndjson")
    done = cli("traceback", seq, "--log", "x.ndjson")
    assert (done.exit_code, done.stdout) == (1, "ValueError: boom\n")
    assert "message only" in done.stderr


def test_other_events_have_none(cli):
    seq = told("x.ndjson")
    done = cli("traceback", 1, "--log", "x.ndjson")
    assert done.exit_code == 2
    assert f"workers raised in #{seq}" in done.stderr
    assert cli("traceback", 9999, "--log", "x.ndjson").exit_code == 2


def test_it_commands_no_terminal(cli):
    seq = told("x.ndjson", traceback="a\x1b[2Jb\n\tc\u202ed")
    assert cli("traceback", seq, "--log", "x.ndjson").stdout == "a\ufffd[2Jb\n\tc\ufffdd\n"


async def place(log):
    """Where the exception stands."""
    async for recorded in log.read(1):
        if b"worker.exception.v1" in recorded.data:
            return recorded.seq


@pytest.mark.real
def test_the_whole_comes_from_the_server(cli, tmp_path):
    """And if it isn't there, that is said."""
    whole = "frame\n" * 2000 + "ValueError: boom\n"
    text = keep(str(tmp_path), whole)
    seq = told("x.ndjson", traceback="short", whole=text)
    data = (tmp_path / f"{text.sha256}{SUFFIX}").read_bytes()

    async def main():
        async with NatsServer(tmp_path / "nats", "c") as server:
            log = await JetStreamLog.connect(server.url, "c", name="control/a")
            await log.keep_texts()
            for event in read_history(Path("x.ndjson")).events:
                fence = await log.last_control_seq() if ".control." in event.subject else None
                await log.append(event.subject, event.data, event.id, fence=fence)
            at = await place(log)
            arguments = ("traceback", at, "--cluster", "c", "--log", server.reader_url)
            before = await asyncio.to_thread(cli, *arguments)
            subject = subjects.text("c", "n1", text.sha256, 0)
            await log.connection.request(subject, data, limit_s=5)
            after = await asyncio.to_thread(cli, *arguments)
            await log.close()
            return before, after

    before, after = asyncio.run(main())
    assert (before.exit_code, before.stdout) == (1, "short\n"), before.output
    assert "aren't beside the log" in before.stderr
    assert (after.exit_code, after.stderr, after.stdout) == (0, "", whole + "\n")
    assert seq
