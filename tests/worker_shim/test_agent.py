"""An agent from end to end: real processes, a real log; the workers are stubs."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.worker_shim.nats_server import CLUSTER, alive_with, is_alive, until
from tests.worker_shim.test_forkserver import Served, spec
from unicron.events import ConfigError, WorkerStartOrdered, WorkerStopOrdered, codec, subjects
from unicron.events.envelope import Envelope, Source
from unicron.worker_shim.agent import parse
from unicron.worker_shim.breakpoint import Breakpoint
from unicron.worker_shim.page import Phase

pytestmark = pytest.mark.real

STUBS = "tests.worker_shim.stubs"


class Node:
    """An agent's process, and the leader that gives it orders."""

    def __init__(self, folder, server, **options):
        self.folder = folder
        self.name = folder.name  # no other test's node is called so
        self.home = folder / "run" / self.name
        self.server = server
        self.counter = 0
        self.options = options
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "unicron.worker_shim.agent"]
        command += ["--cluster", CLUSTER, "--node", self.name, "--devices", "2"]
        command += ["--run-dir", str(self.folder / "run"), "--die-with-parent", str(os.getpid())]
        command += ["--entry", f"{STUBS}:run", "--store-entry", f"{STUBS}:host_store"]
        command += ["--preload", "none", "--grace-s", "5", "--fault-injection"]
        for name, value in self.options.items():
            command += [f"--{name}", value]
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=os.environ | {"UNICRON_NATS": self.server.url},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def stop(self):
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(20)

    def log(self):
        return (self.folder / "agent.log").read_text()

    @property
    def state(self):
        return json.loads((self.home / "agent.json").read_text())

    async def order(self, body, term=1):
        self.counter += 1
        source = Source(who="control/x", incarnation=1, counter=self.counter)
        envelope = Envelope(
            id=f"control/x:1:{self.counter}", source=source, written_at_ns=0, body=body, term=term
        )
        return await self.server.order("node", self.name, envelope)

    async def start_worker(self, incarnation=1, device=0, task="t"):
        """Order it; the order's sequence."""
        return await self.order(
            WorkerStartOrdered(
                task=task,
                worker=f"{self.name}/{device}",
                incarnation=incarnation,
                node=self.name,
                device=device,
                spec=spec(task),
                reason="test",
                agent=self.state["incarnation"],
            )
        )

    async def stop_worker(self, incarnation=1, grace_ms=0, task="t"):
        return await self.order(
            WorkerStopOrdered(
                task=task,
                worker=f"{self.name}/0",
                incarnation=incarnation,
                node=self.name,
                grace_ms=grace_ms,
                reason="test",
            )
        )

    async def facts(self, kind=None):
        """Bodies of the agent's facts in the log, in order; of one kind if given."""
        stored = await self.server.stored(subjects.fact(CLUSTER, self.name))
        bodies = [body["body"] for _, body in stored]
        return [b for b in bodies if kind is None or b["type"] == f"{kind}.v1"]

    async def fact(self, kind, count=1):
        """The count-th fact of the kind, once it is there."""

        async def there():
            found = await self.facts(kind)
            return found[count - 1] if len(found) >= count else None

        return await until(there, what=f"{kind} number {count}; {self.log()[-1500:]}")


@contextlib.asynccontextmanager
async def running_node(folder, server):
    """It ends in order, unless the test ended it, and leaves nothing."""
    node = Node(folder, server).start()
    await node.fact("agent.started")
    yield node
    if node.process.poll() is None:
        assert node.stop() == 0, node.log()
    assert left_over(node) == []


@pytest.fixture
async def node(folder, log_server):
    async with running_node(folder, log_server) as node:
        yield node


def left_over(node):
    """Processes of the test's node that still run."""
    kinds = ("agent", "fork server", "store", "worker")
    return [pid for kind in kinds for pid in alive_with(f"unicron: {kind} {node.name}")]


async def test_a_worker_is_started_once_killed_and_reported(node):
    began = await node.fact("agent.started")
    assert (began["devices"], began["store_port"] > 0) == (2, True)
    at = await node.start_worker()
    started = await node.fact("worker.started")
    for _ in range(200):  # a process names itself a moment after it was started
        if alive_with(f"unicron: worker {node.name}/0 t"):
            break
        await asyncio.sleep(0.05)
    assert alive_with(f"unicron: worker {node.name}/0 t") == [started["pid"]]
    with Breakpoint(str(node.home / "w0.1.page")) as injector:
        injector.arm(Phase.FORWARD)
        assert injector.wait_hit(10) is not None
    os.kill(started["pid"], signal.SIGKILL)
    exited = await node.fact("worker.exited")
    assert (exited["signal"], exited["exit_code"], exited["ordered"]) == (9, None, False)
    assert (exited["phase"], exited["micro_batches_done"]) == ("forward", 2)
    assert exited["iteration"] >= 0
    # The same order again starts nothing; the next incarnation starts.
    await node.start_worker()
    await node.start_worker(incarnation=2)
    assert (await node.fact("worker.started", 2))["incarnation"] == 2
    stored = await node.server.stored(subjects.fact(CLUSTER, node.name))
    ids = [message_id for message_id, _ in stored]
    assert [i.rpartition(":")[2] for i in ids] == [str(n) for n in range(1, len(ids) + 1)]
    assert stored[1][1]["cause"] == [at]


async def test_a_newer_incarnation_replaces_a_living_one(node):
    await node.start_worker(task="stubborn")
    first = await node.fact("worker.started")
    await node.start_worker(incarnation=2)
    await node.fact("worker.started", 2)
    kinds = [f["type"] for f in await node.facts()]
    assert kinds[1:] == ["worker.started.v1", "worker.exited.v1", "worker.started.v1"]
    assert (await node.fact("worker.exited"))["ordered"] is True
    assert not is_alive(first["pid"])


async def test_an_order_to_an_earlier_life_is_not_obeyed_by_the_next(node):
    at = await node.start_worker()
    await node.fact("worker.started")
    assert node.stop() == 0
    node.start()
    await node.fact("agent.started", 2)
    order = await node.server.say_again(at)  # as a leader does that was frozen meanwhile
    assert codec.decode(*order).body.incarnation == 1
    later = await node.start_worker(incarnation=2)
    assert later > at
    # Orders are heard one after the other: had the old one been obeyed, its worker came first.
    await node.fact("worker.started", 2)
    assert [f["incarnation"] for f in await node.facts("worker.started")] == [1, 2]
    assert not (node.home / "w0.1.page").exists()


async def test_stops_with_and_without_grace(node):
    await node.start_worker()
    await node.fact("worker.started")
    await node.stop_worker(grace_ms=20_000)
    assert (await node.fact("worker.exited"))["signal"] == signal.SIGTERM
    await node.start_worker(incarnation=2, task="stubborn")
    await node.fact("worker.started", 2)
    await until((node.home / "w0.2.page").exists)
    await node.stop_worker(incarnation=2, grace_ms=100, task="stubborn")
    exited = await node.fact("worker.exited", 2)
    assert (exited["signal"], exited["ordered"]) == (signal.SIGKILL, True)


async def test_exit_codes_and_impossible_starts_are_reported(node):
    await node.start_worker(task="exit-7")
    assert (await node.fact("worker.exited"))["exit_code"] == 7
    await node.start_worker(device=5)
    assert "no device 5" in (await node.fact("worker.start_failed"))["error"]


async def test_beats_carry_the_pages(node):
    beats = []
    observer = await node.server.connect()

    async def on_beat(message):
        beats.append(codec.decode_beat(message.data))

    try:
        await observer.subscribe(subjects.beat(CLUSTER, node.name), cb=on_beat)
        await node.start_worker()
        await node.fact("worker.started")
        seen = await until(
            lambda: next((b for b in beats if b.workers and b.workers[0].iteration > 5), None)
        )
        (worker,) = seen.workers
        assert (worker.worker, worker.incarnation, worker.phase) == (
            f"{node.name}/0",
            1,
            "forward",
        )
        numbers = [b.number for b in beats]
        assert numbers == sorted(numbers) and seen.incarnation == node.state["incarnation"]
    finally:
        await observer.close()


async def test_beats_tell_how_many_facts_wait_for_the_log(node):
    spools = []
    observer = await node.server.connect()

    async def on_beat(message):
        spools.append(codec.decode_beat(message.data).spool)

    try:
        await node.start_worker()
        await node.fact("worker.started")
        await observer.subscribe(subjects.beat(CLUSTER, node.name), cb=on_beat)
        await until(lambda: 0 in spools)
        await observer.jetstream().delete_stream(subjects.stream_name(CLUSTER))
        os.kill(node.state["store"], signal.SIGKILL)
        assert await until(lambda: next((s for s in spools if s), None)) == 1
    finally:
        await observer.close()


async def test_the_store_is_replaced_when_it_dies(node):
    before = node.state
    os.kill(before["store"], signal.SIGKILL)
    bound = await node.fact("store.bound")
    assert bound["store_port"] != before["store_port"]
    await until(lambda: node.state["store_port"] == bound["store_port"])


async def test_when_the_fork_server_dies_workers_go_on_and_are_still_watched(node):
    await node.start_worker()
    worker = await node.fact("worker.started")
    before = node.state
    os.kill(before["fork_server"], signal.SIGKILL)
    await until(lambda: node.state["fork_server"] not in (0, before["fork_server"]))
    assert is_alive(worker["pid"])
    assert node.state["store_port"] == before["store_port"]  # the store outlives it
    await node.start_worker(device=1)
    assert (await node.fact("worker.started", 2))["worker"] == f"{node.name}/1"
    os.kill(worker["pid"], signal.SIGKILL)
    exited = await node.fact("worker.exited")
    assert (exited["exit_code"], exited["signal"]) == (None, None)  # nobody knows any more
    await node.start_worker(incarnation=2)
    await node.fact("worker.started", 3)


async def test_facts_wait_for_a_log_that_is_away(node):
    await node.start_worker()
    worker = await node.fact("worker.started")
    node.server.kill()
    os.kill(worker["pid"], signal.SIGKILL)
    await until(lambda: not is_alive(worker["pid"]))
    node.server.start()
    assert (await node.fact("worker.exited"))["signal"] == 9


async def test_sigterm_leaves_nothing_and_says_so(node):
    await node.start_worker()
    await node.start_worker(device=1, task="stubborn")
    await node.fact("worker.started", 2)
    await until((node.home / "w1.1.page").exists)
    pids = [node.state[name] for name in ("pid", "fork_server", "store")]
    assert node.stop() == 0
    assert [p for p in pids if is_alive(p)] == [] and left_over(node) == []
    kinds = [f["type"] for f in await node.facts()]
    assert kinds[-1] == "agent.stopped.v1" and kinds.count("worker.exited.v1") == 2
    assert all(f["ordered"] for f in await node.facts("worker.exited"))
    kept = {name.rpartition(".")[2] for name in os.listdir(node.home)}
    assert kept <= {"page", "log", "journal"}


async def test_a_killed_agents_workers_live_on_until_another_one_comes(node):
    await node.start_worker()
    worker = await node.fact("worker.started")
    before = node.state
    node.process.kill()
    node.process.wait(10)
    assert is_alive(worker["pid"]) and is_alive(before["fork_server"])
    node.start()
    began = await node.fact("agent.started", 2)
    # The log holds the workers of the earlier life for gone, so they must be.
    await until(lambda: not is_alive(worker["pid"]))
    assert node.state["fork_server"] == before["fork_server"]
    assert began["store_port"] == before["store_port"]
    await node.start_worker(incarnation=2)
    await node.fact("worker.started", 2)


async def test_a_killed_agents_processes_end_after_the_grace(folder, log_server):
    node = Node(folder, log_server, **{"grace-s": "0.3"}).start()
    await node.fact("agent.started")
    await node.start_worker()
    await node.fact("worker.started")
    node.process.kill()
    node.process.wait(10)
    await until(lambda: not left_over(node), what="the end of all its processes")


async def test_a_template_gives_the_node_its_fork_server(folder, log_server):
    (folder / "t").mkdir(mode=0o700)
    template = Served(folder / "t")
    try:
        client = await template.connect()
        node = Node(folder, log_server, template=template.path).start()
        await node.fact("agent.started")
        assert alive_with(f"unicron: fork server {node.name}") == [node.state["fork_server"]]
        await node.start_worker()
        await node.fact("worker.started")
        assert node.stop() == 0
        await until(lambda: any(e.kind == "fork_server" for e in template.exits))
        assert left_over(node) == []
        await client.shutdown()
    finally:
        template.process.terminate()
        template.process.wait(10)


@pytest.mark.parametrize(
    "environment,word",
    [
        ({}, "UNICRON_NATS isn't set"),
        ({"UNICRON_NATS": "http://secret@x"}, "isn't the address of a NATS server"),
    ],
)
def test_a_wrong_address_is_one_clear_message(environment, word):
    arguments = ["--cluster", "c", "--node", "n1", "--devices", "1", "--run-dir", "x"]
    with pytest.raises(ConfigError, match=word) as raised:
        parse(arguments, environment)
    assert "secret" not in str(raised.value) and "fix:" in str(raised.value)
    with pytest.raises(ConfigError, match="can't name"):
        parse([*arguments[:3], "n.1", *arguments[4:]], {"UNICRON_NATS": "nats://x"})
