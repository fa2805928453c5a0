"""What is too long for the log lies beside it: written once, bounded, read by its digest."""

import asyncio
import contextlib

import pytest

from tests.contract.worlds import CLUSTER
from tests.support.agents import connected_agent
from unicron.controlplane.runtime.jetstream import JetStreamLog, NoAnswer, connect, texts
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import ConfigError, LongText, subjects
from unicron.events.texts import PART_BYTES, TEXT_MAX_BYTES
from unicron.worker_shim.longtext import LongTexts, keep, waiting

pytestmark = pytest.mark.real

TEXT = "frame\n" * (PART_BYTES // 4)  # two parts


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as made:
        yield made


def node(server):
    """An agent's transport, with the rights of a node."""
    return connected_agent(server.node_url, CLUSTER)


async def delivered(transport, folder):
    """Whatever waits in the folder is there."""

    async def put(sha256, part, data):
        return await transport.put(subjects.text(CLUSTER, "n1", sha256, part), data)

    running = asyncio.create_task(LongTexts(str(folder), put).run())
    try:
        async with asyncio.timeout(20):
            while waiting(str(folder)):
                await asyncio.sleep(0.02)
    finally:
        running.cancel()
        await asyncio.wait({running})


@pytest.fixture
async def stored(server, tmp_path):
    """The text, which an agent has put there."""
    log = await JetStreamLog.connect(server.url, CLUSTER, name="control/a")
    await log.keep_texts()
    await log.close()
    folder = tmp_path / "n1"
    folder.mkdir()
    text = keep(str(folder), TEXT)
    async with node(server) as transport:
        await delivered(transport, folder)
    return text


@contextlib.asynccontextmanager
async def reader(server):
    log = await JetStreamLog.connect(server.reader_url, CLUSTER, name="cli/reader", create=False)
    try:
        yield log
    finally:
        await log.close()


async def test_who_reads_the_log_reads_it(server, stored):
    async with reader(server) as log:
        assert await log.text("n1", stored) == TEXT
        assert await log.text("n2", stored) is None
        assert await log.text("n1", LongText(sha256="0" * 64, size=5)) is None
        assert await log.text("n1", LongText(sha256=stored.sha256, size=stored.size + 1)) is None
        assert await log.text("n1", LongText(sha256="0" * 64, size=TEXT_MAX_BYTES + 1)) is None


async def test_it_is_written_once(server, stored):
    """Whoever comes again with it is told that it is there, and changes nothing."""
    async with node(server) as transport:
        subject = subjects.text(CLUSTER, "n1", stored.sha256, 0)
        assert await transport.put(subject, b"something else") == ""
    async with reader(server) as log:
        assert await log.text("n1", stored) == TEXT


async def test_what_lacks_a_part_is_not_there(server, stored):
    control = await connect(server.url, name="control/x")
    name = subjects.text_stream(CLUSTER)
    await control.api(
        f"STREAM.PURGE.{name}", {"filter": subjects.text(CLUSTER, "n1", stored.sha256, 1)}, dict
    )
    await control.close()
    async with reader(server) as log:
        assert await log.text("n1", stored) is None


async def test_readers_and_nodes_can_remove_nothing(server, stored):
    for url in (server.reader_url, server.node_url):
        connection = await connect(url, name="x/y")
        with pytest.raises((ConfigError, NoAnswer)):
            await connection.api(
                f"STREAM.PURGE.{subjects.text_stream(CLUSTER)}", {}, dict, limit_s=0.5
            )
        await connection.close()
    async with reader(server) as log:
        assert await log.text("n1", stored) == TEXT


async def test_without_a_stream_it_waits_and_facts_are_not_held_up(server, tmp_path):
    text = keep(str(tmp_path), TEXT)
    async with node(server) as transport:
        subject = subjects.text(CLUSTER, "n1", text.sha256, 0)
        assert await transport.put(subject, b"x") != ""
        log = await JetStreamLog.connect(server.url, CLUSTER, name="control/a")
        await log.keep_texts()
        await log.keep_texts()  # another instance
        await delivered(transport, tmp_path)
        assert await log.text("n1", text) == TEXT
        await log.close()


async def test_it_is_bounded(server, stored):
    control = await connect(server.url, name="control/x")
    info = await control.api(f"STREAM.INFO.{subjects.text_stream(CLUSTER)}", None, dict)
    config = info["config"]
    assert (config["max_bytes"], config["max_age"]) == (texts.MAX_BYTES, texts.MAX_AGE_S * 10**9)
    assert config["discard_new_per_subject"]
    await control.close()
