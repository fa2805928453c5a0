"""Guarantee: the control plane's absence never stops a healthy task, nor does the log's."""

import asyncio
import os
import signal

import pytest

from tests.real.world import World
from unicron.controlplane.local import processes
from unicron.controlplane.local.reference import Reference
from unicron.worker_shim.page import PageReader

pytestmark = pytest.mark.real


async def _progress(world: World, iterations: int) -> None:
    """Wait until worker n1/0 has committed so many more iterations."""
    reader = PageReader(world.cluster.page_path("n1/0"))
    try:
        start = reader.read()
        assert start is not None
        for _ in range(2000):
            now = reader.read()
            assert now is not None
            if now.iteration >= start.iteration + iterations:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"no progress since iteration {start.iteration}")
    finally:
        reader.close()


async def test_control_plane_killed(world: World, reference: Reference) -> None:
    """It is away, a worker dies meanwhile, it comes back: the worker's death is dealt with."""
    await world.cluster.kill_control()
    await _progress(world, 2)
    processes.kill(world.cluster.worker_pid("n2/1"))
    await world.cluster.until(
        "the exit is in the log",
        lambda s: s.workers["n2/1"].status == "exited",
    )
    assert not world.cluster.state.incidents
    await world.cluster.start_control(when_nodes=2)
    await world.cluster.until("an incident", lambda s: len(s.incidents) == 1)
    state = await world.finish(reference)
    assert state.leader == "a"


async def test_log_killed(world: World, reference: Reference) -> None:
    """The server dies and comes back; then a worker dies. What was reported in between is there."""
    await world.cluster.kill_server()
    await _progress(world, 2)
    await world.cluster.restart_server()
    processes.kill(world.cluster.worker_pid("n2/1"))
    await world.cluster.until("an incident", lambda s: len(s.incidents) == 1)
    state = await world.finish(reference)
    assert [i.severity for i in state.incidents.values()] == [2]


async def test_log_away_for_long(world: World, reference: Reference) -> None:
    """Whoever tries again less and less often comes back up to a second later than the others: no
    node is taken for lost meanwhile."""
    await world.cluster.kill_server()
    await asyncio.sleep(4.0)
    await world.cluster.restart_server()
    state = await world.finish(reference)
    assert not state.incidents
    assert {n.status for n in state.nodes.values()} == {"healthy"}


async def test_worker_dies_while_the_log_is_away(world: World, reference: Reference) -> None:
    await world.cluster.kill_server()
    processes.kill(world.cluster.worker_pid("n1/1"))
    await asyncio.sleep(0.5)
    await world.cluster.restart_server()
    await world.cluster.until("an incident", lambda s: len(s.incidents) == 1)
    await world.finish(reference)


async def test_a_node_that_was_only_frozen_comes_back(world: World, reference: Reference) -> None:
    """All its processes stand still for so long that it is declared lost; the other node goes on.
    Thawed, its agent hears of it, ends what it still ran, and offers its devices anew."""
    cluster = world.cluster
    lives = cluster.state.nodes["n2"].incarnation
    old = [cluster.worker_pid(f"n2/{device}") for device in (0, 1)]
    cluster.signal_node("n2", signal.SIGSTOP)
    await cluster.until("n2 is lost", lambda s: s.nodes["n2"].status == "isolated", 20.0)
    await cluster.until("DP 2", lambda s: world.members(s) == 2, 20.0)
    cluster.signal_node("n2", signal.SIGCONT)
    state = await cluster.until("n2 is back", lambda s: s.nodes["n2"].status == "healthy", 30.0)
    assert state.nodes["n2"].incarnation > lives
    assert not set(old) & set(processes.descendants(os.getpid()))
    await world.finish(reference)
