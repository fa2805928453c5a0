"""Random histories: whatever goes wrong and whenever, the invariants hold, and once nothing more
goes wrong every task runs to its end and every incident is over."""

import msgspec
import pytest

from tests.core import faults
from tests.core.story import SPEC, Story
from tests.core.world import World
from unicron import events as ev
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState

ONE = msgspec.structs.replace(SPEC, iterations=10)
MIXES = {
    "one task": [ONE],
    "one that needs three devices": [replace(ONE, min_devices=3)],
    "two": [
        ONE,
        replace(ONE, task=ev.TaskId("bert"), min_devices=2, weight_milli=1500, tenant="lab"),
    ],
    "three": [
        ONE,
        replace(ONE, task=ev.TaskId("small"), weight_milli=300, min_devices=0),
        replace(ONE, task=ev.TaskId("odd"), max_devices=2, micro_batches=5),
    ],
}
SEEDS = 8
SEEN: dict[str, int] = {}
DECISIONS = {"all": 0, "overtaken": 0, "void": 0}


def history(seed: int, specs, *, rate: float) -> World:
    world = World(seed, specs)
    world.begin(1 + seed % 5)
    if seed % 3:  # else faults come while everything is still to begin
        world.until_it_trains()
    world.run(400, faults.anything, rate)
    faults.repair(world)
    world.heal()
    return world


@pytest.mark.parametrize("rate", [0.02, 0.08])
@pytest.mark.parametrize("mix", MIXES)
def test_any_history_keeps_the_invariants_and_comes_to_an_end(mix, rate):
    for seed in range(SEEDS):
        try:
            world = history(seed, MIXES[mix], rate=rate)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for what, count in world.watch.seen.items():
            SEEN[what] = SEEN.get(what, 0) + count
        DECISIONS["all"] += world.decided
        DECISIONS["overtaken"] += world.foreign
        DECISIONS["void"] += world.watch.void
        for task in world.state.tasks.values():
            assert task.phase == "completed" or task.outcome


def test_an_undisturbed_run_has_no_incident():
    for seed in range(10):
        world = World(seed, [ONE])
        world.begin(2)
        while not world.ended():
            assert world.quiet_step() or world.let_time_pass()
        assert not world.state.incidents
        assert world.state.void == 0
        assert set(world.watch.commits) == {("gpt", n) for n in range(1, 11)}


def test_the_histories_were_not_empty():
    """At least a tenth of the decisions had facts between their basis and themselves; every fault
    was tried, and what is hard to get at happened."""
    if len(SEEN) < 10:
        pytest.skip("the histories weren't run")
    assert DECISIONS["overtaken"] >= 0.1 * DECISIONS["all"], DECISIONS
    assert 0 < DECISIONS["void"] < 0.02 * DECISIONS["all"], DECISIONS
    wanted = {fault.__name__ for fault in faults.WEIGHTS}
    wanted |= {"keeps", "step_forward", "again", "planned", "bridge", "close: the plan parks th"}
    wanted |= {"IncidentEscalated", "NodeIsolated", "TaskFailed", "PlanDropped"}
    assert wanted <= set(SEEN), wanted - set(SEEN)


def test_the_same_seed_gives_the_same_history():
    one, other = (history(3, MIXES["two"], rate=0.03) for _ in range(2))
    assert [r.data for r in one.log] == [r.data for r in other.log]
    assert one.chains == other.chains


def test_a_history_folds_to_the_same_states_again():
    world = history(4, MIXES["two"], rate=0.03)
    state = ClusterState()
    for recorded, expected in zip(world.log, world.states[1:], strict=True):
        state = fold(state, recorded)
        assert state == expected


def rest_of(world: World, seq: int) -> int:
    """How many decisions follow from a state when nothing else happens any more."""
    story = Story()
    story.log, story.states = world.log[:seq], world.states[: seq + 1]
    story.chains, story.state = world.chains[: seq + 1], world.states[seq]
    leader = story.state.sources["control/i1"]
    story.counters = {("control/i1", leader.incarnation): leader.counter}
    while story.step() is not None:
        assert len(story.log) < seq + 100, [type(r.envelope.body) for r in story.log[-10:]]
    assert story.state.void == world.states[seq].void
    return len(story.log) - seq


@pytest.mark.parametrize("seed", range(4))
def test_decide_comes_to_rest_from_any_state(seed):
    """And none of its decisions is void when no fact came in between."""
    world = history(seed, MIXES["three"], rate=0.05)
    rests = [rest_of(world, seq) for seq in range(1, len(world.log), 3)]
    assert 3 < max(rests) < 40
