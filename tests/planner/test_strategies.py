"""Allocations that don't look at the value."""

import msgspec
import pytest
from hypothesis import given

from tests.planner.cases import QUICK, linear, node, problem, problems, running, slots, task
from unicron.planner import check, local_plan
from unicron.planner.cpsat import solve
from unicron.planner.strategies import STRATEGIES

TWO_RICH = problem(
    [node(f"n{i}", 4) for i in range(3)],
    [
        task("heavy", linear(12, gflops=200), weight_milli=3000, max_devices=12, state_bytes=100),
        task("light", linear(12), max_devices=12, state_bytes=300),
    ],
)


def sizes(plan):
    return {a.task: len(a.slots) for a in plan.assignments}


@pytest.mark.parametrize(
    "name,expected",
    [
        ("equal", {"heavy": 6, "light": 6}),
        ("weighted", {"heavy": 9, "light": 3}),
        ("sized", {"heavy": 3, "light": 9}),
        ("current", {"heavy": 0, "light": 0}),
    ],
)
def test_devices_are_divided_as_the_name_says(name, expected):
    plan = STRATEGIES[name](TWO_RICH)
    assert sizes(plan) == expected


def test_without_bytes_of_state_a_model_is_as_large_as_its_smallest_layout():
    tasks = [
        task("big", linear(12)[5:], min_devices=6, max_devices=12),
        task("small", linear(12)[1:], min_devices=2, max_devices=12),
    ]
    plan = STRATEGIES["sized"](problem([node(f"n{i}", 4) for i in range(4)], tasks))
    assert sizes(plan) == {"big": 12, "small": 4}


def test_floors_come_first_and_what_cannot_grow_leaves_the_rest_to_others():
    tasks = [
        task("a", linear(12)[7:], min_devices=8, max_devices=12),
        task("b", linear(2), max_devices=2),
        task("c", linear(12), max_devices=12),
    ]
    plan = STRATEGIES["equal"](problem([node(f"n{i}", 4) for i in range(4)], tasks))
    assert sizes(plan) == {"a": 8, "b": 2, "c": 6}


def test_the_current_allocation_changes_only_who_was_hit():
    base = problem(
        [node("n1", 4), node("n2", 2)],
        [
            running("a", linear(4), slots("n0/0-1", "n1/0-1"), hit=True),
            running("b", linear(4), slots("n1/2-3")),
        ],
    )
    assert STRATEGIES["current"](base) == local_plan(base)


@QUICK
@given(problems((1, 2)))
def test_their_plans_can_be_applied_and_are_never_better_than_the_best(base):
    best = solve(base)
    for strategy in STRATEGIES.values():
        plan = strategy(base)
        named = {v.kind for v in check(base, plan)}
        assert named == set()
        if len(plan.relaxed) <= len(best.relaxed):
            assert plan.value_gflops_milli <= best.value_gflops_milli
        assert msgspec.json.decode(msgspec.json.encode(plan), type=type(plan)) == plan
