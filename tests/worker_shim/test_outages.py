"""Real processes and a real log that is killed: what anybody has taken reaches it, in order, once.

The workers are stubs that talk: each gives its transport some 200 facts a second and notes in a
file how many were taken.
"""

import asyncio
import contextlib
import os
import signal
from collections import defaultdict

import pytest

from tests.worker_shim.nats_server import CLUSTER, NatsServer, is_alive, until
from tests.worker_shim.test_agent import running_node
from tests.worker_shim.test_publisher import peer_error
from unicron.events import codec, subjects
from unicron.worker_shim.identity import worker_identity
from unicron.worker_shim.spool import SpoolFile, decode
from unicron.worker_shim.transport import Transport

pytestmark = pytest.mark.real


@pytest.fixture
async def node(folder, log_server):
    async with running_node(folder, log_server) as node:
        yield node
    assert [name for name in os.listdir(node.home) if "spool" in name] == []


async def talker(node, device=0, incarnation=1, *, number):
    """Start one; its pid. `number`: as how-manieth worker of the agent."""
    await node.start_worker(incarnation=incarnation, device=device, task="talk")
    started = await node.fact("worker.started", number)
    await until(lambda: taken(node, device, incarnation) > 50, what="facts")
    return started["pid"]


def taken(node, device=0, incarnation=1):
    """How many facts a talker's transport has taken."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.getsize(node.home / f"w{device}.{incarnation}.journal.taken")
    return 0


async def more(node, count, device=0, incarnation=1):
    """Wait until a talker has said so much more."""
    goal = taken(node, device, incarnation) + count
    await until(lambda: taken(node, device, incarnation) >= goal, what="more facts")


async def history(node):
    """All facts of the node in the log, in its order, and their numbers by source and life. Checks
    that each is there once, and that no source's numbers have a hole or another order."""
    stored = await node.server.stored(subjects.fact(CLUSTER, node.name))
    ids = [message_id for message_id, _ in stored]
    assert len(set(ids)) == len(ids)
    counters = defaultdict(list)
    for _, event in stored:
        source = event["source"]
        counters[source["who"], source["incarnation"]].append(source["counter"])
    for numbers in counters.values():
        assert numbers == list(range(1, len(numbers) + 1))
    return [event for _, event in stored], {name: len(n) for name, n in counters.items()}


def place(events, kind, count=1):
    """Index of the count-th event of this kind."""
    return [i for i, e in enumerate(events) if e["body"]["type"] == f"{kind}.v1"][count - 1]


def last_of(events, who, incarnation=1):
    """Index of the last event of this source and life."""
    source = (who, incarnation)
    return max(
        i
        for i, e in enumerate(events)
        if (e["source"]["who"], e["source"]["incarnation"]) == source
    )


async def test_the_server_is_killed_again_and_again_under_load(node):
    for device in (0, 1):
        await talker(node, device, number=device + 1)
    for _ in range(3):
        node.server.kill()
        os.kill(node.state["store"], signal.SIGKILL)  # the agent has something to say as well
        await more(node, 100)
        node.server.start()
        await more(node, 100)
    await node.fact("store.bound", 3)
    pids = [(await node.fact("worker.started", n))["pid"] for n in (1, 2)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await node.fact("worker.exited", 2)
    events, said = await history(node)
    for device in (0, 1):
        worker = f"worker/{node.name}/{device}"
        assert said[worker, 1] in (taken(node, device), taken(node, device) + 1)
        assert said[worker, 1] > 600
        ends = [place(events, "worker.exited", n) for n in (1, 2)]
        assert last_of(events, worker) < next(
            at for at in ends if events[at]["body"]["worker"] == f"{node.name}/{device}"
        )


async def test_a_killed_worker_leaves_its_facts_to_the_agent(node):
    pid = await talker(node, number=1)
    node.server.kill()
    await more(node, 200)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))
    spool = node.home / "w0.1.spool"
    assert len(decode(spool.read_bytes()).facts) > 100
    node.server.start()
    await node.fact("worker.exited")
    events, said = await history(node)
    worker = f"worker/{node.name}/0"
    assert said[worker, 1] in (taken(node), taken(node) + 1)
    assert last_of(events, worker) < place(events, "worker.exited")
    await until(lambda: not spool.exists())
    # The next one of this worker is heard after that, and all of it.
    os.kill(await talker(node, incarnation=2, number=2), signal.SIGKILL)
    await node.fact("worker.exited", 2)
    _, said = await history(node)
    assert said[worker, 2] in (taken(node, incarnation=2), taken(node, incarnation=2) + 1)


async def test_workers_are_killed_while_they_talk_and_the_log_is_there(node):
    for life in range(1, 6):
        os.kill(await talker(node, incarnation=life, number=life), signal.SIGKILL)
        await node.fact("worker.exited", life)
    events, said = await history(node)
    worker = f"worker/{node.name}/0"
    for life in range(1, 6):
        count = taken(node, incarnation=life)
        assert said[worker, life] in (count, count + 1)
        assert last_of(events, worker, life) < place(events, "worker.exited", life)


async def test_a_killed_agent_leaves_its_facts_to_the_next(node):
    first = node.state["incarnation"]
    pids = [await talker(node, device, number=device + 1) for device in (0, 1)]
    node.server.kill()
    stores = [node.state["store"]]
    os.kill(stores[0], signal.SIGKILL)
    await until(lambda: node.state["store"] not in (0, *stores))
    os.kill(pids[0], signal.SIGKILL)  # its facts and the news of its end are the agent's to tell
    await more(node, 100, device=1)
    os.kill(node.process.pid, signal.SIGKILL)
    node.process.wait(10)
    await more(node, 100, device=1)  # and this one has nobody to tell for it
    node.start()
    await until(lambda: node.state["incarnation"] != first, what="the next life")
    second = node.state["incarnation"]
    await until(lambda: not is_alive(pids[1]))
    node.server.start()
    await node.fact("agent.started", 2)
    events, said = await history(node)
    for device in (0, 1):
        worker = f"worker/{node.name}/{device}"
        assert said[worker, 1] in (taken(node, device), taken(node, device) + 1)
        assert last_of(events, worker) < place(events, "agent.started", 2)
    agent = f"agent/{node.name}"
    assert said[agent, first] == 5  # started, two workers, another store, a worker's end
    assert last_of(events, agent, first) < place(events, "agent.started", 2)
    assert events[-1]["source"]["incarnation"] == second


async def test_agents_that_come_and_go_while_the_log_is_away(node):
    lives = [node.state["incarnation"]]
    node.server.kill()
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        node.process.send_signal(how)
        node.process.wait(20)
        node.start()
        await until(
            lambda: (node.home / "agent.json").exists() and node.state["incarnation"] not in lives
        )
        lives.append(node.state["incarnation"])
        agent = node.home / f"agent.{lives[-1]}.spool"
        await until(agent.exists, what="its first fact")
    node.server.start()
    await node.fact("agent.started", 4)
    events, said = await history(node)
    told = [(e["source"]["incarnation"], e["body"]["type"]) for e in events]
    started, stopped = "agent.started.v1", "agent.stopped.v1"
    assert told == [
        *((lives[0], kind) for kind in (started, stopped)),
        (lives[1], started),
        *((lives[2], kind) for kind in (started, stopped)),
        (lives[3], started),
    ]
    assert said == {
        (f"agent/{node.name}", life): n for life, n in zip(lives, (2, 1, 2, 1), strict=True)
    }


async def test_beats_tell_what_waits_in_memory_and_on_disk(node):
    pid = await talker(node, number=1)
    observer = await node.server.connect()
    spools = []

    async def on_beat(message):
        spools.append(codec.decode_beat(message.data).spool)

    try:
        await observer.subscribe(subjects.beat(CLUSTER, node.name), cb=on_beat)
        await observer.jetstream().delete_stream(subjects.stream_name(CLUSTER))
        await more(node, 200)
        assert await until(lambda: spools and spools[-1] > 150)  # the worker's, which lives
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_alive(pid))
        waiting = taken(node)
        await asyncio.sleep(0.5)
        assert spools[-1] > 150 and spools[-1] <= waiting + 2  # and now the agent's
        await node.server.make_stream()
        await until(lambda: spools[-1] == 0, what="an empty spool")
    finally:
        await observer.close()


async def test_what_the_servers_limit_forbids_is_replaced(folder):
    (folder / "nats").mkdir()
    server = NatsServer(folder / "nats")
    server.extra = "max_payload: 2000\n"
    server.start()
    worker = worker_identity(CLUSTER, "n1/0", 5, "t")
    spool = SpoolFile(str(folder / "w.spool"), worker.owner)
    transport = Transport(worker, server.url, lambda *_: None, spool=spool)
    try:
        await server.make_stream()
        running = asyncio.create_task(transport.run())
        for number, length in enumerate((10, 3000, 10)):
            assert transport.publish(peer_error(number, "x" * length))
        assert await transport.flush(10)
        kinds = [event["body"]["type"] for _, event in await server.stored()]
        assert kinds == ["worker.peer_error.v1", "facts.dropped.v1", "worker.peer_error.v1"]
        running.cancel()
        await asyncio.wait([running])
        transport.facts.close()
        assert not (folder / "w.spool").exists()
    finally:
        server.kill()
