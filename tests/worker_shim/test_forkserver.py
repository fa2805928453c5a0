"""The fork server, really forking; nothing imported beforehand except where torch is the point."""

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

import pytest

from tests.worker_shim.nats_server import alive_with, until
from unicron.events import ConfigError, GPTSpec, OptimizerSpec, TaskSpec
from unicron.worker_shim import forkprotocol
from unicron.worker_shim.forkclient import ForkClient, ForkServerError, start_server
from unicron.worker_shim.forksocket import listen
from unicron.worker_shim.launch import WorkerLaunch, title, worker_files
from unicron.worker_shim.process import is_running

pytestmark = pytest.mark.real

STUBS = "tests.worker_shim.stubs"


def spec(task="t"):
    model = GPTSpec(
        num_layers=1,
        hidden_size=8,
        num_attention_heads=1,
        seq_length=8,
        vocab_size=256,
        micro_batch_size=1,
    )
    optimizer = OptimizerSpec(lr_ppb=1, min_lr_ppb=1)
    return TaskSpec(task=task, iterations=1, micro_batches=1, model=model, optimizer=optimizer)


def launch(folder, task="t", device=0, incarnation=1, **more):
    files = worker_files(str(folder), device, incarnation)
    return WorkerLaunch(
        cluster="c",
        spec=spec(task),
        worker=f"n1/{device}",
        incarnation=incarnation,
        node="n1",
        device=device,
        nats_url="nats://127.0.0.1:1",
        page_path=files.page,
        journal_path=files.journal,
        log_path=files.log,
        **more,
    )


class Served:
    """A fork server of this test and the exits its client heard of."""

    def __init__(self, folder, **options):
        self.path = str(folder / "fork.sock")
        self.exits = []
        self.title = f"unicron: fork server {folder.name}"
        self.process = start_server(
            self.path,
            self.title,
            entry=f"{STUBS}:run",
            log_path=str(folder / "fork.log"),
            die_with_parent=True,
            **{"preload": "none", "store_entry": f"{STUBS}:host_store", **options},
        )

    async def connect(self):
        return await ForkClient.connect(
            self.path, self.exits.append, limit_s=60, server=self.process
        )

    async def exit_of(self, pid):
        return await until(
            lambda: next((e for e in self.exits if e.pid == pid), None), what=f"exit of {pid}"
        )


@asynccontextmanager
async def serving(folder, **options):
    served = Served(folder, **options)
    client = None
    try:
        client = await served.connect()
        yield served, client
    finally:
        if client is not None:
            await client.shutdown()
        served.process.terminate()
        served.process.wait(10)


async def test_a_worker_is_forked_titled_logged_and_its_death_reported(folder):
    async with serving(folder) as (served, client):
        order = launch(folder)
        pid = await client.start_worker(order)
        assert await client.start_worker(order) == pid  # the same order again starts nothing
        await until(lambda: alive_with(title(order)) == [pid], what="the title")
        log = folder / "w0.1.log"
        await until(lambda: log.exists() and "stub n1/0 1" in log.read_text())
        await client.kill(pid, signal.SIGKILL)
        exited = await served.exit_of(pid)
        assert (exited.code, exited.signal) == (None, signal.SIGKILL)
        assert (exited.kind, exited.name, exited.incarnation) == ("worker", "n1/0", 1)
        status = forkprotocol.decode_message((folder / f"{pid}.status").read_bytes())
        assert status == exited
        await client.kill(pid, signal.SIGKILL)  # it has gone: no error
    assert {*os.listdir(folder)} == {"fork.log", "w0.1.log", "w0.1.page"}


@pytest.mark.parametrize("task,code,said", [("exit-7", 7, ""), ("raise", 1, "the stub fails")])
async def test_exit_codes(folder, task, code, said):
    async with serving(folder) as (served, client):
        pid = await client.start_worker(launch(folder, task))
        exited = await served.exit_of(pid)
        assert (exited.code, exited.signal) == (code, None)
        assert said in (folder / "w0.1.log").read_text()


async def test_a_function_is_called_in_a_clean_process(folder):
    async with serving(folder) as (served, client):
        path = str(folder / "out")
        pid = await client.call(
            f"{STUBS}:write_environment", "unicron: reference", path + ".log", path=path, x=[1]
        )
        exited = await served.exit_of(pid)
        assert (exited.code, exited.kind) == (3, "call"), (folder / "out.log").read_text()
        found = json.loads((folder / "out").read_text())
        assert found["descriptors"][:3] == [0, 1, 2] and len(found["descriptors"]) <= 5
        assert (found["threads"], found["omp"], found["session"]) == (1, "1", True)
        assert (found["torch"], found["blocked"], found["more"]) == (False, [], {"x": [1]})


async def test_a_client_that_comes_back_is_told_who_lives_and_who_ended(folder):
    async with serving(folder, grace_s=30.0) as (served, client):
        lives = await client.start_worker(launch(folder, device=0))
        dies = await client.start_worker(launch(folder, device=1, incarnation=4))
        await client.close()
        os.kill(dies, signal.SIGKILL)
        await until((folder / f"{dies}.status").exists)
        assert is_running(lives)
        again = await served.connect()
        assert [(c.pid, c.name, c.incarnation) for c in again.hello.children] == [
            (lives, "n1/0", 1)
        ]
        assert [(e.pid, e.name, e.incarnation, e.signal) for e in again.hello.exits] == [
            (dies, "n1/1", 4, signal.SIGKILL)
        ]
        await again.close()
        third = await served.connect()
        assert third.hello.exits == ()  # told once
        await third.shutdown()
        assert not is_running(lives)


async def test_without_a_client_it_ends_its_children_and_itself(folder):
    async with serving(folder, grace_s=0.3) as (served, client):
        pid = await client.start_worker(launch(folder, "stubborn"))
        assert is_running(pid)
        await client.close()
        await until(lambda: served.process.poll() is not None, what="the end of the grace")
        assert served.process.returncode == 0
        assert not is_running(pid)
        assert not os.path.exists(served.path)


async def test_sigterm_ends_it_with_its_children(folder):
    async with serving(folder) as (served, client):
        pid = await client.start_worker(launch(folder, "stubborn"))
        served.process.terminate()
        await client.wait_closed()
        assert served.process.wait(10) == 0
        assert not is_running(pid)
        with pytest.raises(ForkServerError, match="gone"):
            await client.start_worker(launch(folder))


async def test_a_template_forks_fork_servers_that_live_on_their_own(folder):
    async with serving(folder) as (served, client):
        (folder / "n1").mkdir(mode=0o700)
        path, name = str(folder / "n1" / "fork.sock"), f"unicron: fork server n1 {folder.name}"
        pid = await client.start_fork_server(path, name, grace_s=20.0)
        exits = []
        own = await ForkClient.connect(path, exits.append, limit_s=1)
        assert (own.hello.pid, own.hello.title) == (pid, name)
        assert alive_with(name) == [pid]
        worker = await own.start_worker(launch(folder))
        # Its template goes: it and its worker stay.
        served.process.terminate()
        await client.wait_closed()
        assert is_running(pid) and is_running(worker)
        os.kill(worker, signal.SIGKILL)
        await until(lambda: [e.pid for e in exits] == [worker])
        await own.shutdown()
        await until(lambda: not is_running(pid))


async def test_a_store_reports_its_port_and_is_restartable(folder):
    async with serving(folder) as (served, client):
        pid, port = await client.start_store("n1", "127.0.0.1", f"unicron: store {folder.name}")
        assert alive_with(f"unicron: store {folder.name}") == [pid]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await client.kill(pid, signal.SIGKILL)
        assert (await served.exit_of(pid)).kind == "store"
        again, _ = await client.start_store("n1", "127.0.0.1", f"unicron: store {folder.name}")
        assert again != pid


async def test_a_child_that_fails_before_it_is_ready_is_an_error(folder):
    async with serving(folder, store_entry=f"{STUBS}:broken_store") as (_, client):
        with pytest.raises(ForkServerError, match="before it was ready"):
            await client.start_store("n1", "192.0.2.1", "unicron: store n1")
        with pytest.raises(ForkServerError, match="before it was ready"):
            await client.start_fork_server("/nowhere/" + "x" * 200, "unicron: fork server")
    assert "isn't an address of this host" in (folder / "fork.log").read_text()


async def test_what_cannot_be_read_is_answered_and_hurts_nobody(folder):
    async with serving(folder) as (served, client):
        reader, writer = await asyncio.open_unix_connection(served.path)
        await reader.readline()
        writer.write(b'{"id": 1, "cmd": "dance"}\n' + b"x" * 200_000 + b"\n")
        for _ in range(2):
            reply = forkprotocol.decode_message(await reader.readline())
            assert "can't be read" in reply.error
        writer.close()
        assert await client.start_worker(launch(folder)) > 0


async def test_torch_is_imported_once_and_forks_stay_single_threaded(folder):
    """The real template: Megatron imported, real store. Slow, so all in one test."""
    async with serving(folder, preload="megatron", store_entry="") as (served, client):
        path = str(folder / "out")
        pid = await client.call(f"{STUBS}:write_environment", "x", path + ".log", path=path)
        await served.exit_of(pid)
        found = json.loads((folder / "out").read_text())
        assert (found["torch"], found["threads"]) == (True, 1)
        _, port = await client.start_store("n1", "127.0.0.1", "unicron: store n1")
        pid = await client.call(f"{STUBS}:use_store", "x", path + ".log", port=port)
        assert (await served.exit_of(pid)).code == 0, (folder / "out.log").read_text()
        pid = await client.start_fork_server(str(folder / "two.sock"), "unicron: second")
        second = await ForkClient.connect(str(folder / "two.sock"), served.exits.append)
        await second.shutdown()
        await served.exit_of(pid)


def test_a_missing_library_is_one_clear_line(folder, monkeypatch):
    (folder / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    server = start_server(str(folder / "fork.sock"), "x", log_path=str(folder / "log"))
    assert server.wait(60) == 2
    said = (folder / "log").read_text()
    assert "the module torch isn't installed" in said and "unicron-controlplane[worker]" in said
    assert "Traceback" not in said


def test_an_unfit_place_for_the_socket_is_refused(folder):
    with pytest.raises(ConfigError, match="shorter"):
        listen(str(folder / ("x" * 120)))
    (folder / "open").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        listen(str(folder / "open" / "s"))
    listener = listen(str(folder / "s"))
    assert os.stat(folder / "s").st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="another fork server"):
        listen(str(folder / "s"))
    listener.close()
    listen(str(folder / "s")).close()  # what a killed one left is replaced
