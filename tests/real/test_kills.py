"""Workers really killed, at every place where it could matter; what was trained must not differ
by one bit from a run that nothing happened to."""

import pytest

from tests.real.world import World
from unicron.controlplane.local.faults import Fault
from unicron.controlplane.local.injector import Trap
from unicron.controlplane.local.reference import Reference
from unicron.worker_shim.page import Phase

pytestmark = pytest.mark.real


@pytest.mark.parametrize("worker", ["n1/0", "n2/1"])  # rank 0, and the last rank
@pytest.mark.parametrize(
    "phase",
    [Phase.FORWARD, Phase.BACKWARD, Phase.REDUCTION, Phase.VOTE, Phase.VOTED, Phase.STEP],
    ids=lambda p: p.label,
)
async def test_killed_in(world: World, reference: Reference, phase: Phase, worker: str) -> None:
    done = 1 if phase in (Phase.FORWARD, Phase.BACKWARD) else -1
    shot = await world.spring(world.trap(worker, phase, iteration=4, done=done))
    assert (shot.phase, shot.iteration) == (phase.label, 4)
    state = await world.finish(reference)
    (incident,) = state.incidents.values()
    assert incident.severity == 2
    assert incident.worker == worker


async def test_two_killed_in_one_iteration(world: World, reference: Reference) -> None:
    first = world.trap("n2/1", Phase.FORWARD, iteration=4, done=1)
    second = world.trap("n1/1", Phase.FORWARD, iteration=4, generation=2)
    await world.spring(first)
    shot = await world.spring(second)
    assert shot.iteration == 4
    await world.finish(reference)


async def test_killed_during_a_transition(world: World, reference: Reference) -> None:
    """A survivor dies while the next generation is being formed: amended, same incident."""
    first = world.trap("n2/1", Phase.FORWARD, iteration=4, done=1)
    second = world.trap("n1/1", Phase.REGROUP, generation=2)
    await world.spring(first)
    await world.spring(second)
    state = await world.finish(reference)
    assert len(state.incidents) == 1


async def test_survivor_killed_while_it_is_awaited(world: World, reference: Reference) -> None:
    """Its exit counts as its answer."""
    first = world.trap("n2/1", Phase.FORWARD, iteration=4, done=1)
    second = world.trap("n2/0", Phase.QUIESCED)
    await world.spring(first)
    await world.spring(second)
    await world.finish(reference)


async def test_donor_killed_during_the_transfer(world: World, reference: Reference) -> None:
    """The replica on the joiner's own node gives it the state, and dies doing so."""
    donor = world.trap("n2/0", Phase.TRANSFER)
    await world.spring(world.trap("n2/1", Phase.FORWARD, iteration=4, done=1))
    shot = await world.spring(donor)
    assert shot.phase == "transfer"
    await world.finish(reference)


async def test_joiner_killed_during_the_transfer(world: World, reference: Reference) -> None:
    await world.spring(world.trap("n2/1", Phase.FORWARD, iteration=4, done=1))
    await world.cluster.until(
        "the joiner is there", lambda s: s.workers["n2/1"].incarnation == 2, 20.0
    )
    shot = await world.spring(world.trap("n2/1", Phase.TRANSFER))
    assert shot.phase == "transfer"
    await world.finish(reference)


async def test_node_killed(world: World, reference: Reference) -> None:
    """Agent and both workers at once: SEV1, and the survivors go on."""
    world.cluster.kill_node("n2")
    state = await world.cluster.until("DP 2", lambda s: world.members(s) == 2)
    assert state.nodes["n2"].status == "isolated"
    state = await world.finish(reference)
    assert [i.severity for i in state.incidents.values()] == [1]


async def test_third_node_joins(world: World, reference: Reference) -> None:
    """A planned growth: nobody stops for it, and no incident is opened."""
    fault = Fault(kind="slow", target="n1/0", iteration=6, phase=Phase.FORWARD, argument_ms=400)
    slowed = Trap(world.cluster, fault)  # so that the joiners come before the task is over
    try:
        assert await slowed.sprung(40.0)
        slowed.shoot()
    finally:
        slowed.close()
    await world.cluster.start_agent("n3")
    await world.cluster.until("DP 6", lambda s: world.members(s) == 6)
    state = await world.finish(reference)
    assert not state.incidents
