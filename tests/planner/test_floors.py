"""Minimum sizes: hard, and given up by priority only when they can't all be met."""

from __future__ import annotations

import pytest

from tests.planner.cases import linear, node, of, problem, running, slots, task
from unicron.planner import check
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan

both = pytest.mark.parametrize("answer", [dynamic_plan, solve])


def needs(name: str, least: int, **fields):
    return task(name, linear(8)[least - 1 :], min_devices=least, **fields)


@both
def test_a_light_task_gets_its_minimum_before_a_heavy_one_gets_more(answer):
    base = problem([node("n0", 8)], [needs("a", 3, weight_milli=1), needs("b", 1)])
    plan = answer(base)
    assert [len(of(plan, name).slots) for name in "ab"] == [3, 5]
    assert plan.relaxed == ()


@both
@pytest.mark.parametrize("priorities", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_the_lowest_priority_gives_way_and_the_plan_says_so(answer, priorities):
    """Three tasks that need 3 of 7 devices each: one parks, never the one with priority."""
    tasks = [needs(n, 3, priority=p) for n, p in zip("abc", priorities, strict=True)]
    plan = answer(problem([node("n0", 7)], tasks))
    assert len(plan.relaxed) == 1
    assert of(plan, plan.relaxed[0]).layout is None
    kept = "abc"[priorities.index(1)]
    assert kept not in plan.relaxed and of(plan, kept).layout is not None


@both
def test_at_equal_priority_those_that_run_now_are_kept(answer):
    runs = running("z", linear(8)[2:], slots("n0/0-2"), hit=True, min_devices=3)
    plan = answer(problem([node("n0", 4)], [needs("a", 3, weight_milli=9000), runs]))
    assert plan.relaxed == ("a",)


@both
def test_a_smaller_minimum_behind_one_that_does_not_fit_is_still_met(answer):
    base = problem([node("n0", 4)], [needs("a", 8, priority=5), needs("b", 2)])
    plan = answer(base)
    assert plan.relaxed == ("a",) and len(of(plan, "b").slots) == 4


@both
def test_a_task_without_minimum_may_be_parked_and_that_relaxes_nothing(answer):
    base = problem(
        [node("n0", 2)],
        [task("a", linear(2), min_devices=0, weight_milli=1), task("b", linear(2))],
    )
    plan = answer(base)
    assert of(plan, "a").layout is None and plan.relaxed == ()


@both
@pytest.mark.parametrize(
    "case",
    [
        ([], [], ()),
        ([node("n0", 4)], [], ()),
        ([], [needs("a", 1)], ("a",)),
        ([node("n0", 0)], [needs("a", 1)], ("a",)),
        ([node("n0", 4)], [needs("a", 8)], ("a",)),
        ([node("n0", 4)], [task("a", (), min_devices=1, max_devices=8)], ("a",)),
        ([node("n0", 3), node("n1", 3)], [task("a", linear(1, tp=4))], ("a",)),
    ],
    ids=["nothing", "no-tasks", "no-nodes", "no-devices", "too-big", "no-options", "split"],
)
def test_edges(answer, case):
    nodes, tasks, relaxed = case
    base = problem(nodes, tasks)
    plan = answer(base)
    assert plan.relaxed == relaxed and check(base, plan) == ()
    assert plan.value_gflops_milli == 0


def test_with_mixed_group_sizes_feasibility_is_decided_by_packing():
    """8 devices on four nodes of 2: a group of 4 fits nowhere, however few are in use."""
    nodes = [node(f"n{i}", 2) for i in range(4)]
    tasks = [task("a", linear(1, tp=4), priority=9), task("b", linear(2, tp=2)), needs("c", 1)]
    base = problem(nodes, tasks)
    for answer in (dynamic_plan, solve):
        assert check(base, answer(base)) == ()
    plan = solve(base)
    assert plan.relaxed == ("a",)
    assert dict(plan.statistics)["optimal"] == 1
