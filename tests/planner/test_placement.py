"""From sizes to devices."""

from __future__ import annotations

import pytest

from tests.planner.cases import (
    layout,
    linear,
    names,
    node,
    of,
    problem,
    running,
    slots,
    task,
    with_task,
)
from unicron.planner import LayoutOption, check
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.objective import board
from unicron.planner.placement import place


def placed(base, **devices: int) -> dict[str, list[str]]:
    """Place the choice that takes so many devices for each task named, staying where it may."""
    prepared = board(base)
    picks = [
        next(c for c in row if c.devices == devices[t.task])
        for t, row in zip(prepared.tasks, prepared.choices, strict=True)
    ]
    found = place(base, prepared.tasks, picks)
    assert found is not None
    return {t.task: names(held) for t, held in zip(prepared.tasks, found, strict=True)}


def test_survivors_keep_their_slots_and_order_and_new_ones_follow():
    held = running("a", linear(6), slots("n1/3", "n0/0", "n2/1", "n0/2"), hit=True)
    base = problem([node("n0", 4), node("n1", 4)], [held])
    assert placed(base, a=5)["a"][:3] == ["n1/3", "n0/0", "n0/2"]
    assert placed(base, a=2)["a"] == ["n1/3", "n0/0"]


def test_half_of_the_replicas_at_most_on_one_node_the_rest_together():
    """The node with the least room that will do, then the lowest name."""
    nodes = [node("n0", 4), node("n1", 4), node("n2", 2), node("n3", 3)]
    base = problem(nodes, [task("a", linear(6))])
    assert placed(base, a=4)["a"] == ["n2/0", "n3/0", "n2/1", "n3/1"]
    assert placed(base, a=6)["a"] == ["n3/0", "n0/0", "n3/1", "n0/1", "n3/2", "n0/2"]
    alone = problem([node("n0", 8)], [task("a", linear(6))])
    assert placed(alone, a=6)["a"] == [f"n0/{i}" for i in range(6)], "one node is better than none"


def test_a_growing_task_prefers_its_own_kind_of_device():
    held = running("a", linear(4), slots("n0/0-1"))
    nodes = [node("n0", 2, "old"), node("n1", 8, "new"), node("n2", 1, "old")]
    assert placed(problem(nodes, [held]), a=3)["a"] == ["n0/0", "n0/1", "n2/0"]


@pytest.mark.parametrize("tp, groups", [(2, 6), (4, 2)])
def test_groups_never_leave_their_node(tp, groups):
    """7 devices hold three groups of 2, or one of 4."""
    base = problem([node("n0", 7), node("n1", 7)], [task("a", linear(6, tp=tp))])
    for answer in (dynamic_plan, solve):
        plan = answer(base)
        assert of(plan, "a").layout == layout(groups, tp=tp)
        assert check(base, plan) == ()


def test_nodes_hold_whole_groups_only():
    """Counting 6 devices says three groups of 2, but nodes of 3 hold one each."""
    tasks = [
        task("a", linear(3, tp=2)[1:], weight_milli=9000),
        task("b", linear(1), min_devices=0),
    ]
    plan = dynamic_plan(problem([node("n0", 3), node("n1", 3)], tasks))
    assert plan.source == "dp" and of(plan, "a").layout == layout(2, tp=2)
    assert dict(plan.statistics)["optimal"] == 1


def test_what_is_left_of_a_broken_group_is_used_again():
    """n0/0 is gone; the group is formed anew beside its survivor, not elsewhere."""
    held = running("a", linear(2, tp=2), slots("n0/0-1"), hit=True)
    base = problem([node("n0", 4), node("n1", 8)], [held])
    base = with_task(base, "a", placement=slots("n0/4", "n0/1"))
    assert placed(base, a=2)["a"] == ["n0/0", "n0/1"]


def test_small_groups_give_way_to_large_ones():
    """b's two survivors sit on one node each; a needs a whole node, so one of them moves."""
    b = running("b", linear(3), slots("n0/0", "n1/0", "n2/0"), hit=True)
    base = problem([node("n0", 2), node("n1", 2)], [task("a", linear(1, tp=2)), b])
    got = placed(base, a=2, b=2)
    assert {name[:2] for name in got["a"]} != {name[:2] for name in got["b"]}
    assert all(len({name[:2] for name in held}) == 1 for held in got.values())


def test_a_running_task_moves_only_if_that_makes_room_worth_its_price():
    """Without a's move, b's group of two has no node; the move costs a 50 x price."""
    options = tuple(LayoutOption(layout=layout(n), throughput_gflops=50 * n) for n in (1, 2))
    a = running("a", options, slots("n0/0", "n1/0"), transition_ms=500, min_devices=2)
    a = with_task(problem([], [a]), "a", options=options[1:]).tasks[0]
    b = task("b", linear(1, tp=2, gflops=20), min_devices=0)
    nodes = [node("n0", 2), node("n1", 2)]
    cheap = problem(nodes, [a, b], expected_run_ms=10_000)
    plan = solve(cheap)
    assert of(plan, "b").layout == layout(1, tp=2)
    assert len({s.node for s in of(plan, "a").slots}) == 1
    dear = problem(nodes, [a, b], expected_run_ms=1_000)
    assert of(solve(dear), "b").layout is None
    assert of(solve(dear), "a").slots == a.placement
