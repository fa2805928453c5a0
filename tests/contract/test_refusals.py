"""Servers and streams that can't be the log: one clear message with the fix, within seconds."""

import asyncio
import json
import subprocess

import pytest

from tests.contract.worlds import CLUSTER, ClusterWorld
from unicron.controlplane.runtime.jetstream import JetStreamLog, connect
from unicron.controlplane.runtime.natsserver import find_nats_server
from unicron.events import ConfigError, LogMismatch, LogTooOld, subjects

pytestmark = pytest.mark.real


async def refusal(url, cluster=CLUSTER, **options):
    """The error that opening the log ends in."""
    with pytest.raises((ConfigError, LogTooOld, LogMismatch)) as raised:
        await JetStreamLog.connect(url, cluster, name="control/test", **options)
    assert raised.value.fix
    return raised.value


async def test_an_address_where_nobody_listens(unused_tcp_port):
    error = await refusal(f"nats://user:secret@127.0.0.1:{unused_tcp_port}")
    assert error.code == "E-NATS-ADDRESS"
    assert f"127.0.0.1:{unused_tcp_port}" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize("url", ["nats://no-such-host.invalid:4222", "nats://:x", "http//", ""])
async def test_an_address_that_is_none(url):
    assert (await refusal(url)).code == "E-NATS-ADDRESS"


async def speaking(line):
    """A server on a free port that says `line` to everyone."""

    async def serve(reader, writer):
        writer.write(line)
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_something_else_listens_there():
    server, url = await speaking(b"SSH-2.0-OpenSSH_9.2\r\n")
    async with server:
        assert (await refusal(url)).code == "E-NATS-ADDRESS"


async def test_something_silent_listens_there():
    server, url = await speaking(b"")
    async with server:
        with pytest.raises(ConfigError) as raised:
            await connect(url, name="control/test", limit_s=0.3)
    assert raised.value.code == "E-NATS-ADDRESS"


@pytest.mark.parametrize("version", ["2.9.10", "2.11.99", "1.4.1"])
async def test_a_server_that_is_too_old(version):
    info = {"server_id": "N", "version": version, "max_payload": 1048576, "jetstream": True}

    async def serve(reader, writer):
        writer.write(f"INFO {json.dumps(info)}\r\n".encode())
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await refusal(f"nats://127.0.0.1:{port}")
    assert isinstance(error, LogTooOld)
    assert version in error.what
    assert "2.12" in error.what


async def test_wrong_credentials(nats):
    port = nats.server.url.rpartition(":")[2]
    error = await refusal(f"nats://control:wrong@127.0.0.1:{port}")
    assert error.code == "E-NATS-CREDENTIALS"
    assert "wrong" not in str(error)


async def test_a_server_without_jetstream(tmp_path, unused_tcp_port):
    process = subprocess.Popen(
        [find_nats_server(), "-a", "127.0.0.1", "-p", str(unused_tcp_port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        error = await refusal(f"nats://127.0.0.1:{unused_tcp_port}")
    finally:
        process.kill()
        process.wait()
    assert error.code == "E-NATS-NO-JETSTREAM"


async def test_an_account_without_jetstream(nats):
    assert (await refusal(nats.server.system_url)).code == "E-NATS-NO-JETSTREAM"


async def test_no_log_of_that_cluster(nats):
    await nats.open()
    error = await refusal(nats.server.url, "prod", create=False)
    assert error.code == "E-LOG-NONE"
    assert error.why == f"it has logs of: {CLUSTER}"
    assert (await refusal(nats.server.url, "a.b")).code == "E-CONFIG-CLUSTER"


async def make_stream(nats, **config):
    connection = await nats.connection()
    name = config.setdefault("name", subjects.stream_name(CLUSTER))
    config.setdefault("subjects", subjects.stream_subjects(CLUSTER))
    await connection.api(f"STREAM.CREATE.{name}", config, dict)


async def test_the_stream_of_another_cluster(nats):
    await make_stream(nats, metadata={"unicron.cluster": "prod"})
    error = await refusal(nats.server.url)
    assert (error.code, error.why) == ("E-LOG-MISMATCH", "it belongs to prod")


async def test_a_stream_that_someone_made_by_hand(nats):
    await make_stream(nats)
    assert "wasn't made by unicron" in (await refusal(nats.server.url)).why


async def test_a_stream_that_would_forget(nats):
    await make_stream(nats, metadata={"unicron.cluster": CLUSTER}, max_age=10**12)
    error = await refusal(nats.server.url)
    assert error.code == "E-LOG-CONFIG"
    for wrong in ("max_age", "deny_delete", "deny_purge", "allow_atomic", "republish"):
        assert wrong in error.why


async def test_another_stream_on_our_subjects(nats):
    await make_stream(nats, name="MINE", subjects=["unicron.>"])
    assert "stores the subjects" in (await refusal(nats.server.url)).what


async def test_two_instances_may_make_the_stream_at_once(nats):
    logs = await asyncio.gather(*(nats.open() for _ in range(4)))
    births = {await log.birth() for log in logs}
    assert len(births) == 1


async def test_a_refused_connection_is_closed(nats):
    first = await nats.open()
    tail = first.read(1)
    with pytest.raises(LogMismatch):
        await JetStreamLog.connect(nats.server.url, "prod", name="control/x", create=False)
    ends = []
    while not ends:
        body = (await anext(tail)).envelope.body
        ends += [body] if type(body).__name__ == "ConnectionClosed" else []
    assert ends[0].client == "control/x"


async def test_more_replicas_than_servers(nats, trio):
    async with ClusterWorld(trio):  # they know who leads them
        for url, replicas in ((nats.server.url, 3), (trio.url, 5)):
            connection = await nats.connection(url)
            with pytest.raises(ConfigError, match=f"can't be kept by {replicas}") as raised:
                await JetStreamLog.open(connection, "many", replicas=replicas)
            assert raised.value.code == "E-NATS-REPLICAS"
