"""Workers killed at moments nobody chose; whatever phase that hits, the result is the same."""

import asyncio
import random

import pytest

from tests.real.world import World
from unicron.controlplane.local import processes
from unicron.controlplane.local.reference import Reference

pytestmark = pytest.mark.real


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_kills(world: World, reference: Reference, seed: int) -> None:
    chance = random.Random(seed)
    state = world.cluster.state
    kills = 0
    while kills < 4 and state.tasks[world.spec.task].phase != "completed":
        await asyncio.sleep(chance.uniform(0.02, 0.6))
        state = world.cluster.state
        alive = sorted(
            w.worker
            for w in state.workers.values()
            if w.status in ("member", "prepared") and state.nodes[w.node].status == "healthy"
        )
        if len(alive) > 1:
            victim = chance.choice(alive)
            kills += processes.kill(world.cluster.worker_pid(victim))
    assert kills
    await world.finish(reference)
