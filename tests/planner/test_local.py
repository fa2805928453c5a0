"""The local answer: only those that can't go on change, and only on what they hold."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.planner.cases import (
    QUICK,
    layout,
    linear,
    names,
    node,
    of,
    problem,
    problems,
    running,
    slots,
    task,
    with_task,
)
from unicron.planner import LayoutOption, check, local_plan
from unicron.planner.pricing import ground, standing

A = running("a", linear(4), slots("n0/0-1", "n1/0-1"), hit=True)
B = running("b", linear(4), slots("n1/2-3"))


def test_a_hit_task_shrinks_onto_its_survivors_in_rank_order():
    plan = local_plan(problem([node("n1", 4)], [A, B]))
    assert names(of(plan, "a").slots) == ["n1/0", "n1/1"]
    assert of(plan, "b").slots == B.placement
    assert plan.relaxed == ()


def test_a_hit_task_whose_devices_are_healthy_goes_on_in_place():
    plan = local_plan(problem([node("n0", 4), node("n1", 4)], [A, B]))
    assert of(plan, "a").layout == layout(4) and of(plan, "a").slots == A.placement


def test_in_place_means_the_same_layout_even_if_a_smaller_one_is_faster():
    uneven = (*linear(3), LayoutOption(layout=layout(4), throughput_gflops=10))
    base = with_task(problem([node("n0", 4), node("n1", 4)], [A, B]), "a", options=uneven)
    assert of(local_plan(base), "a").layout == layout(4)


def test_a_task_below_its_minimum_is_parked_and_said_so():
    need = with_task(problem([node("n1", 4)], [A, B]), "a", options=linear(4)[2:], min_devices=3)
    plan = local_plan(need)
    assert of(plan, "a").layout is None and of(plan, "a").slots == ()
    assert plan.relaxed == ("a",)
    assert check(need, plan) == ()


def test_idle_devices_are_not_touched():
    plan = local_plan(problem([node("n1", 4), node("n2", 4)], [A, B]))
    assert {s.node for a in plan.assignments for s in a.slots} == {"n1"}


def test_parked_tasks_stay_parked():
    plan = local_plan(problem([node("n1", 4)], [task("c", linear(2))]))
    assert of(plan, "c").layout is None and plan.relaxed == ("c",)


def test_whole_tensor_parallel_groups_survive_first():
    """Group n0/0-1 has lost a member; group n1/0-1 goes on with the same model parallelism."""
    options = (*linear(2, tp=2), LayoutOption(layout=layout(3), throughput_gflops=10_000))
    held = running("a", options, slots("n0/0-1", "n1/0-1"), hit=True)
    plan = local_plan(problem([node("n0", 1), node("n1", 2)], [held]))
    assert of(plan, "a").layout == layout(1, tp=2)
    assert names(of(plan, "a").slots) == ["n1/0", "n1/1"]


def test_other_model_parallelism_is_better_than_parking():
    options = linear(1, tp=2) + linear(1)
    held = running("a", options, slots("n0/0-1"), hit=True, max_devices=2)
    plan = local_plan(problem([node("n0", 1)], [held]))
    assert of(plan, "a").layout == layout(1) and names(of(plan, "a").slots) == ["n0/0"]


@pytest.mark.parametrize("gone", ["slot", "layout"])
def test_who_cannot_stay_counts_as_hit_even_if_nobody_said_so(gone):
    held = running("a", linear(4), slots("n0/0-2"))
    base = problem([node("n0", 2 if gone == "slot" else 4)], [held])
    if gone == "layout":
        base = with_task(base, "a", options=linear(2), max_devices=2)
    plan = local_plan(base)
    assert names(of(plan, "a").slots) == ["n0/0", "n0/1"]
    assert check(base, plan) == ()


@QUICK
@given(problems((1, 2, 4)))
def test_everybody_else_keeps_exactly_what_it_has(base):
    nodes, plan = ground(base), local_plan(base)
    for each in base.tasks:
        got = of(plan, each.task)
        assert set(got.slots) <= set(each.placement)
        if standing(each, nodes).intact or each.current is None:
            assert (got.layout, got.slots) == (each.current, each.placement)
