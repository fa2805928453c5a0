"""Several control planes in one simulated cluster, and what goes wrong between them."""

import pytest

from unicron import events as ev
from unicron.controlplane.core.digest import digest
from unicron.controlplane.testing import simulation, virtual
from unicron.controlplane.testing.options import Fault, NodeOptions, Options, Submission, task_spec
from unicron.controlplane.testing.seeds import options_of


def leaders(outcome):
    return [
        r.envelope.body.instance
        for r in outcome.log
        if r.envelope is not None and isinstance(r.envelope.body, ev.LeadershipTaken)
    ]


def options(*faults, instances=3):
    return Options(
        seed=1,
        nodes=tuple(NodeOptions(name=f"n{n}", devices=2) for n in (1, 2, 3)),
        tasks=(Submission(spec=task_spec("gpt", iterations=40, micro_batches=6)),),
        faults=faults,
        faults_ms=20_000,
        instances=instances,
    )


def run(*faults, instances=3):
    """All it ends with holds."""
    outcome = simulation.run(options(*faults, instances=instances))
    assert outcome.violations == ()
    assert outcome.stuck == ""
    assert [k for k in {f.kind for f in faults} if k not in outcome.fired] == []
    return outcome


def test_without_a_fault_one_leads_to_the_end():
    outcome = run()
    assert len(leaders(outcome)) == 1


#: The leader is `a`, who began first; `pick` 0 means it.
@pytest.mark.parametrize(
    "fault",
    [
        Fault(at_ms=5_000, kind="stop", pick=0, for_ms=6_000),
        Fault(at_ms=5_000, kind="cut-control", pick=0, for_ms=6_000),
        Fault(at_ms=5_000, kind="lease", detail="let go"),
    ],
    ids=lambda fault: fault.kind,
)
def test_another_one_leads_and_the_old_one_follows(fault):
    first, second = leaders(run(fault))
    assert first != second


@pytest.mark.parametrize("effects", range(7))
def test_the_leader_dies_at_any_of_its_effects(effects):
    pick = 15 * effects  # the first of three, and so many effects (modulo 7)
    first, second = leaders(run(Fault(at_ms=5_000, kind="crash", pick=pick)))
    assert first == "a"
    assert second in ("a", "b", "c")


def test_a_lease_that_its_keeper_lost_deposes_nobody():
    assert len(leaders(run(Fault(at_ms=5_000, kind="lease", detail="lost")))) == 1


def test_a_server_that_is_away_deposes_nobody():
    assert len(leaders(run(Fault(at_ms=5_000, kind="outage", for_ms=8_000)))) == 1


def test_whoever_is_stopped_before_every_turn_never_leads_twice_at_once():
    """The lease goes round; every decision stands under the newest term, none is made twice."""
    faults = [
        Fault(at_ms=at, kind="stop", pick=n, for_ms=3_500)
        for n, at in enumerate(range(3_000, 18_000, 1_500))
    ]
    outcome = run(*faults)
    assert len(set(leaders(outcome))) >= 2


def test_instances_hold_equal_states_in_the_end():
    async def main():
        sim = simulation.Simulation(options(Fault(at_ms=5_000, kind="stop", for_ms=6_000)))
        outcome = await sim.run()
        assert outcome.stuck == ""
        held = [digest(i.engine.state) for i in sim.instances if i.alive]
        return held, digest(outcome.state)

    states, last = virtual.run(main)
    assert states == [last] * 3


def test_seeds_have_one_or_several():
    assert {options_of(seed).instances for seed in range(40)} == {1, 2, 3}
