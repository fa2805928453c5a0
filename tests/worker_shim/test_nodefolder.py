"""The folder of a node: one agent's alone; full, removed or impossible, it costs a message."""

import asyncio
import os
import shutil
import signal

import pytest

from tests.worker_shim.nats_server import alive_with, is_alive
from tests.worker_shim.test_agent import running_node
from unicron.worker_shim.agent import main

pytestmark = pytest.mark.real


@pytest.fixture
async def node(folder, log_server):
    async with running_node(folder, log_server) as node:
        yield node


async def test_a_second_agent_of_the_node_is_refused_and_the_first_goes_on(node):
    await node.start_worker()
    worker = (await node.fact("worker.started"))["pid"]
    first = node.process
    second = node.start().process
    node.process = first
    assert await asyncio.to_thread(second.wait, 30) == 2
    assert f"another agent of node {node.name} runs already (E-NODE-IN-USE)" in node.log()
    assert f"process {first.pid} holds {node.home}" in node.log()
    assert is_alive(worker) and first.poll() is None
    assert [b["type"] for b in await node.facts()] == ["agent.started.v1", "worker.started.v1"]


async def test_an_agent_whose_folder_is_full_starts_and_tells_of_its_stores(folder, log_server):
    """Its state file can't be written: that is complained about, and keeps nobody from training."""
    (folder / "run" / folder.name / "agent.json.new").mkdir(parents=True)
    (folder / "run" / folder.name).chmod(0o700)
    async with running_node(folder, log_server) as node:
        assert "agent.json can't be written" in node.log()
        [store] = alive_with(f"unicron: store {node.name}")
        os.kill(store, signal.SIGKILL)
        bound = await node.fact("store.bound")
        [started] = await node.facts("agent.started")
        assert bound["store_port"] != started["store_port"]


async def test_an_agent_whose_folder_was_removed_ends_in_order(node):
    shutil.rmtree(node.home)
    assert node.stop() == 0
    assert "Traceback" not in node.log()
    assert (await node.facts())[-1]["type"] == "agent.stopped.v1"


@pytest.mark.parametrize("made", ["a file", "a link to nowhere"])
def test_a_folder_that_cannot_be_made_is_one_clear_message(tmp_path, monkeypatch, capsys, made):
    monkeypatch.setenv("UNICRON_NATS", "nats://127.0.0.1:4222")
    if made == "a file":
        (tmp_path / "run").write_text("")
    else:
        (tmp_path / "run").symlink_to(tmp_path / "none")
    given = ["--cluster", "c", "--node", "n1", "--devices", "1", "--run-dir", f"{tmp_path}/run"]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert f"the node's folder {tmp_path}/run/n1 can't be used (E-NODE-FOLDER)" in said
