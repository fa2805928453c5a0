"""What the host's nodes have to tell outlives the embedding process, if it is given a folder."""

import asyncio

from tests.embed.host import TASK, Host, World
from unicron import controlplane as cp
from unicron import events as ev
from unicron.controlplane.embed import node as node_module
from unicron.controlplane.embed.node import NodeLife

LONG = ev.TaskSpec(
    **{f: getattr(TASK, f) for f in TASK.__struct_fields__} | {"iterations": 1_000_000}
)


class Away(cp.MemoryLog):
    """Takes no facts while `away`."""

    away = False

    async def append(self, subject, data, event_id, *, fence):
        if self.away and fence is None:
            raise ev.LogUnreachable("away")
        return await super().append(subject, data, event_id, fence=fence)


async def test_what_the_log_missed_comes_before_the_next_life(tmp_path, monkeypatch):
    monkeypatch.setattr(node_module, "_FLUSH_LIMIT_S", 0.2)
    world, host = World(), Host("n1")
    log = Away(world.stream)
    async with world.plane(host, log=log, spool=tmp_path) as plane:
        await plane.submit(LONG)
        await plane.until(lambda s: "gpt" in s.tasks and len(s.tasks["gpt"].committed) == 2)
        log.away = True
        host.withdraw("n1")
        while not list((tmp_path / "n1").iterdir()):
            await asyncio.sleep(0.01)
    assert world.bodies(ev.AgentStopped) == []
    async with world.plane(Host("n1"), spool=tmp_path) as plane:
        await plane.until(lambda s: s.nodes["n1"].status == "healthy")
        state = await plane.until(lambda s: s.tasks["gpt"].committed)
    told = [
        type(b).__name__ for b in world.bodies(ev.AgentStarted, ev.AgentStopped, ev.WorkerExited)
    ]
    ends = ["WorkerExited", "WorkerExited", "AgentStopped"]
    assert told[:5] == ["AgentStarted", *ends, "AgentStarted"]
    assert (state.gaps, state.duplicates) == (0, 0)
    assert list((tmp_path / "n1").iterdir()) == []


def life(number, store, folder):
    offer = cp.NodeOffered(node=ev.NodeId("n1"), devices=1)
    incarnation = ev.Incarnation(number)
    return NodeLife("c", offer, incarnation, Host(), store, lambda _: None, "", folder)


async def test_a_process_that_dies_leaves_its_facts(tmp_path):
    """It has no time to say anything."""
    stored = []

    async def away(*_):
        return "away"

    async def there(node, event_id, _):
        stored.append(event_id)
        return ev.Sequence(len(stored))

    running = asyncio.create_task(life(1, away, tmp_path / "n1").run())
    while not list(tmp_path.glob("n1/*.spool")):
        await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.wait({running})
    second = life(2, there, tmp_path / "n1")
    running = asyncio.create_task(second.run())
    while len(stored) < 2:
        await asyncio.sleep(0.005)
    second.withdraw(cp.NodeWithdrawn(node=ev.NodeId("n1"), reason="over"))
    assert await running is False
    assert stored == ["agent/n1:1:1", "agent/n1:2:1", "agent/n1:2:2"]
    assert list((tmp_path / "n1").iterdir()) == []


async def test_a_folder_that_cannot_be_made_costs_the_spool_only(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    stored = []

    async def there(node, event_id, _):
        stored.append(event_id)
        return ev.Sequence(len(stored))

    only = life(1, there, tmp_path / "file" / "n1")
    running = asyncio.create_task(only.run())
    while not stored:
        await asyncio.sleep(0.005)
    only.withdraw(cp.NodeWithdrawn(node=ev.NodeId("n1"), reason="over"))
    assert await running is False
    assert "is not delivered" in caplog.text
