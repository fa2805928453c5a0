"""The objective's arithmetic, worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.planner.cases import (
    QUICK,
    change,
    layout,
    linear,
    node,
    of,
    problem,
    problems,
    running,
    slots,
    task,
    with_task,
)
from unicron.planner import Assignment, LayoutOption, Slot, local_plan, validate
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.objective import TIERS, board
from unicron.planner.pricing import evaluate, price
from unicron.planner.scores import packed, stages
from unicron.planner.validation import EXACT_MAX

# Weight 1.5, 200 GFLOP/s on two devices, 30 s of change-over, 1000 s to run.
TASK = running(
    "a", linear(3), slots("n0/0-1"), weight_milli=1500, transition_ms=30_000, min_devices=0
)
BASE = problem([node("n0", 4)], [TASK], expected_run_ms=1_000_000)
PRICE = 1500 * 200 * 30_000 // 1_000_000


def costs(base, name="a", **fields):
    """The price of changing the task over to an assignment with these fields."""
    demand = next(t for t in base.tasks if t.task == name)
    return price(base, demand, Assignment(task=name, **fields))


def test_the_price_of_a_change_is_lost_throughput_over_the_expected_run():
    assert costs(BASE) == PRICE == 9_000
    assert costs(BASE, layout=layout(2), slots=slots("n0/0-1")) == 0
    # Rounded down by less than one unit: 1 x 100 x 1 / 1_000_000.
    small = running("a", linear(1), slots("n0/0"), weight_milli=1, transition_ms=1)
    assert costs(problem([node("n0", 4)], [small])) == 0
    # F(t, x) of a task that doesn't run, or runs outside its limits, is nothing.
    parked = problem([node("n0", 4)], [task("a", linear(3), transition_ms=30_000)])
    assert costs(parked, layout=layout(1), slots=slots("n0/0")) == 0
    assert costs(with_task(BASE, "a", options=linear(1), max_devices=1)) == 0


@pytest.mark.parametrize(
    "case",
    [
        # what is done, is it hit, value, WAF
        ((2, "n0/0-1"), False, 300_000, 300_000),
        ((2, "n0/0-1"), True, 300_000 - PRICE, 300_000),
        ((2, "n0/1-2"), False, 300_000 - PRICE, 300_000),
        ((3, "n0/0-2"), False, 450_000 - PRICE, 450_000),
        ((1, "n0/0"), False, 150_000 - PRICE, 150_000),
        (None, False, -PRICE, 0),
        (None, True, -PRICE, 0),
    ],
)
def test_value_is_throughput_less_the_price_if_anything_changes(case):
    done, hit, value, waf = case
    base = with_task(BASE, "a", hit=hit)
    assignment = Assignment(task="a")
    if done:
        size, held = done
        assignment = Assignment(task="a", layout=linear(3)[size - 1].layout, slots=slots(held))
    assert evaluate(base, [assignment]) == (value, waf)


def test_the_board_prices_choices_as_the_plan_will_be():
    row = board(BASE).choices[0]
    assert [(c.devices, c.stays, c.tiers[0]) for c in row] == [
        (0, False, -PRICE),
        (1, False, 150_000 - PRICE),
        (2, True, 300_000),
        (3, False, 450_000 - PRICE),
    ]
    # One device taken anew for the third; nothing touched only where it stays.
    assert [c.tiers[1:3] for c in row] == [(-1, 0), (-1, 0), (0, 0), (-1, -1)]
    # Devices to the lowest name: those of the second task count against it.
    two = board(change(BASE, tasks=(task("b", linear(2)), TASK)))
    assert [c.tiers[4] for c in two.choices[0]] == [0, 0, 0, 0]
    assert [c.tiers[4] for c in two.choices[1]] == [0, -1, -2]


def test_dominated_layouts_are_dropped_but_never_the_one_that_stays():
    options = linear(4)
    flat = tuple(
        type(o)(layout=o.layout, throughput_gflops=g)
        for o, g in zip(options, (100, 90, 90, 130), strict=True)
    )
    base = problem([node("n0", 4)], [running("a", flat, slots("n0/0-2"), transition_ms=0)])
    assert [c.devices for c in board(base).choices[0]] == [0, 1, 3, 4]


def test_a_layout_in_larger_groups_does_not_make_one_in_smaller_groups_superfluous():
    """4 devices in one group are worth more than 5 single ones, but may fit nowhere."""
    options = (
        LayoutOption(layout=layout(1, tp=4), throughput_gflops=100),
        LayoutOption(layout=layout(5), throughput_gflops=90),
        LayoutOption(layout=layout(3, tp=2), throughput_gflops=80),
    )
    row = board(problem([node("n0", 8)], [task("a", options)])).choices[0]
    assert [choice.devices for choice in row] == [0, 4, 5]


@QUICK
@given(problems((1, 2, 4)))
def test_packed_scores_stay_exact_and_compare_like_the_lists(base):
    prepared = board(base)
    groups = stages(prepared)
    assert [first for first, _ in groups] == [0, *[last for _, last in groups[:-1]]]
    assert groups[-1][1] == TIERS
    for first, last in groups:
        scores, bound = packed(prepared, first, last)
        assert bound < EXACT_MAX
        assert sum(max(map(abs, row)) for row in scores) <= bound
        for row, choices in zip(scores, prepared.choices, strict=True):
            order = sorted(range(len(row)), key=lambda k: choices[k].tiers[first:last])
            assert [row[k] for k in order] == sorted(row)


def test_values_near_the_limit_take_several_stages_and_stay_exact():
    big = 2**44
    base = problem(
        [node("n0", 4), node("n1", 4)],
        [
            running("a", linear(8, gflops=big // 1000), slots("n0/0-3"), weight_milli=1000),
            running("b", linear(8, gflops=big // 1000 + 1), slots("n1/0-3"), weight_milli=1000),
        ],
    )
    validate(base)
    assert len(stages(board(base))) > 1
    exact, table = solve(base), dynamic_plan(base)
    assert exact.value_gflops_milli == table.value_gflops_milli
    assert dict(exact.statistics)["stages"] > 1
    assert exact.value_gflops_milli == 1000 * (7 * (big // 1000 + 1) + big // 1000)


# --- ties ----------------------------------------------------------------------------------------


def equal_tasks(count: int, size: int, nodes: int):
    """Equal tasks that hold `size` devices each, one node after the other, none to spare."""
    held = [Slot(node=f"n{i}", device=d) for i in range(nodes) for d in range(4)]
    return [
        running(f"t{i}", linear(8), tuple(held[i * size : (i + 1) * size])) for i in range(count)
    ]


@pytest.mark.parametrize("answer", [dynamic_plan, solve])
def test_equal_tasks_are_left_alone(answer):
    """Any split of 8 devices is worth the same; only one of them touches nobody."""
    base = problem([node("n0", 4), node("n1", 4)], equal_tasks(4, 2, 2))
    plan = answer(base)
    assert [a.slots for a in plan.assignments] == [t.placement for t in base.tasks]


@pytest.mark.parametrize("answer", [local_plan, dynamic_plan, solve])
def test_among_equal_tasks_only_the_hit_one_changes(answer):
    tasks = equal_tasks(4, 3, 3)
    base = with_task(problem([node("n0", 3), node("n1", 4), node("n2", 4)], tasks), "t1", hit=True)
    plan = answer(base)
    # n0/3 is gone; it was the first device of t1.
    assert of(plan, "t1").slots == slots("n1/0-1")
    for name in ("t0", "t2", "t3"):
        assert of(plan, name).slots == next(t for t in tasks if t.task == name).placement


@pytest.mark.parametrize("answer", [dynamic_plan, solve])
def test_the_last_tie_goes_to_the_lowest_name(answer):
    """One device, two equal tasks that don't run yet."""
    base = problem([node("n0", 1)], [task(n, linear(2), min_devices=0) for n in ("b", "a")])
    assert of(answer(base), "a").slots == slots("n0/0")
    assert of(answer(base), "b").layout is None


@pytest.mark.parametrize("answer", [dynamic_plan, solve])
def test_a_change_that_does_not_pay_is_not_made(answer):
    """An idle device is worth 100; the change-over costs 200 x 60 s / 100 s = 120."""
    held = running("a", linear(3), slots("n0/0-1"), transition_ms=60_000)
    dear = problem([node("n0", 3)], [held], expected_run_ms=100_000)
    assert of(answer(dear), "a").slots == slots("n0/0-1")
    cheap = problem([node("n0", 3)], [held], expected_run_ms=200_000)
    assert of(answer(cheap), "a").slots == slots("n0/0-2")
