"""What other schedulers got wrong about places (`S-01`, `S-03`, `S-04`, `S-09`)."""

from __future__ import annotations

import pytest

from tests.planner.cases import change, linear, node, of, problem, running, slots, task
from tests.planner.placing import Wish, World, assert_right, taken_anew
from unicron.planner import (
    BadProblem,
    Layout,
    Plan,
    PlanProblem,
    TaskDemand,
    check,
    digest,
    local_plan,
)
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.placement import place
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


def test_in_a_large_cluster_a_lost_node_moves_its_own_devices_and_nothing_else():
    """4,000 devices, 24 tasks of all sizes: as many devices are taken anew as were lost."""
    nodes = tuple(
        change(node(f"n{i:03}", 8), rack=f"r{i // 16:02}", segment=f"s{i // 64}")
        for i in range(500)
    )
    shapes = [(8, 2, 8), (4, 3, 12), (2, 1, 60), (1, 4, 40), (1, 1, 150), (8, 4, 6)]
    wishes = [Wish(Layout(tp=tp, pp=pp, dp=dp)) for tp, pp, dp in shapes] * 4
    tasks = tuple(
        TaskDemand(task=f"t{i:02}", weight_milli=1, min_devices=0, max_devices=9999, options=())
        for i in range(len(wishes))
    )
    case = World(change(problem([], []), nodes=nodes, tasks=tasks), wishes)
    placed = place(case.problem, tasks, wishes)
    assert placed is not None
    assert_right(case, placed)
    for lost in (placed[0][0].node, placed[3][5].node, placed[11][-1].node):
        held = tuple(
            change(t, current=wish.layout, placement=slots)
            for t, wish, slots in zip(tasks, wishes, placed, strict=True)
        )
        again = [
            Wish(wish.layout, "", stays=all(slot.node != lost for slot in slots))
            for wish, slots in zip(wishes, placed, strict=True)
        ]
        left = tuple(n for n in nodes if n.node != lost)
        after = World(change(case.problem, nodes=left, tasks=held), again)
        moved = place(after.problem, held, again)
        assert moved is not None
        assert_right(after, moved)
        gone = sum(slot.node == lost for slots in placed for slot in slots)
        assert taken_anew(after, moved) == gone > 0
