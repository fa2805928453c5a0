"""What other schedulers got wrong about places (`S-01`, `S-03`, `S-04`, `S-09`)."""

from __future__ import annotations

import pytest

from tests.planner.cases import change, linear, node, of, problem, running, slots, task
from unicron.planner import BadProblem, Plan, PlanProblem, check, digest, local_plan
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.whatif import drained, failed, unit

GLOBAL = [dynamic_plan, solve]


def nodes_of(plan: Plan, name: str) -> set[str]:
    return {slot.node for slot in of(plan, name).slots}


def cluster(**fields: object) -> PlanProblem:
    """Two segments of two racks of two nodes, and one task on both nodes of the first rack."""
    nodes = [change(node(f"n{i}", 2), rack=f"r{i // 2}", segment=f"s{i // 4}") for i in range(8)]
    held = running("a", linear(4), slots("n0/0-1", "n1/0-1"), transition_ms=1, **fields)
    return problem(nodes, [held], expected_run_ms=10**9)


def carried_out(base: PlanProblem, plan: Plan) -> PlanProblem:
    """The problem once the plan is."""
    given = {a.task: a for a in plan.assignments}
    return change(
        base,
        computed_at=base.computed_at + 1,
        tasks=tuple(
            change(t, current=given[t.task].layout, placement=given[t.task].slots, hit=False)
            for t in base.tasks
        ),
    )


@pytest.mark.parametrize("answer", GLOBAL)
def test_a_plan_that_is_refused_names_why_and_the_next_one_avoids_the_node(answer):
    """S-01: a node that fits in the plan is refused where it counts. The plan says what it was
    made from, so that it is refused once; the task then avoids the node, and that ends."""
    base = failed(cluster(), "n1")
    refused: list[str] = []
    for _ in range(len(base.nodes)):
        plan = answer(base)
        assert check(base, plan) == ()
        taken = sorted(nodes_of(plan, "a") - {"n0"} - {"n7"})
        if not taken:
            break
        refused.append(taken[0])
        newer = change(
            base,
            computed_at=base.computed_at + 1,
            tasks=tuple(change(t, avoid=(*t.avoid, taken[0])) for t in base.tasks),
        )
        found = {violation.kind for violation in check(newer, plan)}
        assert {"computed-at", "problem-digest", "node-avoided"} <= found
        assert plan.problem_digest == digest(base) != digest(newer)
        base = newer
    assert nodes_of(plan, "a") == {"n0", "n7"} and len(set(refused)) == len(refused) == 5


@pytest.mark.parametrize("answer", GLOBAL)
def test_a_faulted_node_is_not_used_until_it_is_back(answer):
    """S-03, S-04: the replacement must not land on the node that failed, time and again."""
    base = cluster()
    now = failed(base, "n1")
    for _ in range(3):
        plan = answer(now)
        assert check(now, plan) == ()
        assert len(of(plan, "a").slots) == 4 and "n1" not in nodes_of(plan, "a")
        now = carried_out(now, plan)
    sick = drained(base, "n1")
    plan = answer(sick)
    assert check(sick, plan) == () and "n1" not in nodes_of(plan, "a")
    again = change(sick, nodes=base.nodes)
    assert nodes_of(answer(again), "a") == {"n0", "n1"}, "mended: nothing needs to move"


@pytest.mark.parametrize("answer", GLOBAL)
def test_a_rack_or_a_segment_is_left_as_a_whole(answer):
    """S-09: an unhealthy NVLink domain is no place for anybody, though each node looks well."""
    base = cluster()
    for members in (unit(base, rack="r0"), unit(base, segment="s0")):
        out = drained(base, *members)
        plan = answer(out)
        assert check(out, plan) == ()
        assert len(of(plan, "a").slots) == 4
        assert nodes_of(plan, "a").isdisjoint(members)
        assert {t.origin.node for t in plan.transfers} == {"n0", "n1"}, "it still gives its state"
        gone = failed(base, *members)
        plan = answer(gone)
        assert check(gone, plan) == () and nodes_of(plan, "a").isdisjoint(members)
        assert {t.origin for t in plan.transfers} == {None}, "no copy is left"
    assert unit(base, segment="s0") == ("n0", "n1", "n2", "n3")
    for wrong in ({"rack": "r9"}, {"segment": "r0"}, {}):
        with pytest.raises(BadProblem):
            unit(base, **wrong)


@pytest.mark.parametrize("answer", GLOBAL)
def test_the_loss_of_a_rack_leaves_a_copy_of_what_was_placed_freely(answer):
    base = change(cluster(), tasks=(task("a", linear(4)[3:]),))
    plan = answer(base)
    settled = carried_out(base, plan)
    racks = {n.rack for n in base.nodes if n.node in nodes_of(plan, "a")}
    assert len(racks) == 2
    for rack in racks:
        after = failed(settled, *unit(settled, rack=rack))
        assert local_plan(after).relaxed == ("a",), "all four or nothing is on offer"
        again = answer(after)
        assert len(of(again, "a").slots) == 4
        assert all(transfer.origin is not None for transfer in again.transfers)
