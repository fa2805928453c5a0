"""Every way to spoil a good plan is found, and called by its name."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

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
from unicron.planner import Assignment, Plan, check, digest
from unicron.planner.cpsat import solve

BASE = problem(
    [node("n0", 4), node("n1", 4)],
    [
        running("a", linear(2, tp=2), slots("n0/0-3"), transition_ms=1000, min_devices=2),
        task("b", linear(1, tp=2), min_devices=2, max_devices=6),
        task("c", linear(3), min_devices=0, max_devices=3, weight_milli=10),
        task("d", linear(1), min_devices=0, max_devices=1, weight_milli=1),
    ],
)
GOOD = solve(BASE)


def put(plan: Plan, name: str, **fields) -> Plan:
    """The plan with some fields of one assignment changed."""
    return change(
        plan,
        assignments=tuple(change(a, **fields) if a.task == name else a for a in plan.assignments),
    )


# What is done to the plan -> what must be found. Figures follow from the assignments, so spoiling
# these may spoil those as well.
MUTATIONS = {
    "task-unknown": lambda p: change(p, assignments=(*p.assignments, Assignment(task="x"))),
    "task-duplicate": lambda p: change(p, assignments=(*p.assignments, p.assignments[0])),
    "task-missing": lambda p: change(p, assignments=p.assignments[1:]),
    "slot-shared": lambda p: put(p, "b", slots=of(p, "a").slots[:2]),
    "slot-unhealthy": lambda p: put(p, "b", slots=slots("n1/0", "n1/7")),
    "node-unknown": lambda p: put(p, "b", slots=slots("n7/0-1")),
    "slot-count": lambda p: put(p, "b", slots=of(p, "b").slots[:1]),
    "layout-unknown": lambda p: put(p, "b", layout=layout(2)),
    "group-split": lambda p: put(p, "b", slots=(of(p, "b").slots[0], of(p, "a").slots[0])),
    "problem-digest": lambda p: change(p, problem_digest="0" * 64),
    "computed-at": lambda p: change(p, computed_at=p.computed_at + 1),
    "source": lambda p: change(p, source="guess"),
    "value": lambda p: change(p, value_gflops_milli=p.value_gflops_milli + 1),
    "waf": lambda p: change(p, waf_milli=p.waf_milli - 1),
    "relaxed": lambda p: change(p, relaxed=("a",)),
}


def kinds(plan: Plan, base=BASE) -> set[str]:
    return {violation.kind for violation in check(base, plan)}


def test_the_good_plan_is_good():
    assert check(BASE, GOOD) == ()
    assert len(of(GOOD, "a").slots) == 4 and len(of(GOOD, "b").slots) == 2
    assert of(GOOD, "d").layout is not None or of(GOOD, "c").layout is not None


@pytest.mark.parametrize("kind", sorted(MUTATIONS))
def test_a_spoiled_plan_is_found_out(kind):
    spoiled = MUTATIONS[kind](GOOD)
    assert spoiled != GOOD
    assert kind in kinds(spoiled)


def test_sizes_outside_the_limits_are_found_out():
    small = put(GOOD, "a", layout=layout(1), slots=slots("n0/0"))
    assert {"below-min", "layout-unknown"} <= kinds(small)
    large = put(GOOD, "c", layout=layout(4), slots=slots("n0/0-3"))
    assert {"above-max", "layout-unknown", "slot-shared"} <= kinds(large)


def test_parking_below_a_minimum_has_to_be_said():
    parked = put(GOOD, "b", layout=None, slots=())
    assert "relaxed" in kinds(parked)
    assert "relaxed" not in kinds(change(parked, relaxed=("b",)))
    assert "slot-count" in kinds(put(GOOD, "b", layout=None))


def test_the_same_slots_in_another_order_are_a_change():
    held = of(GOOD, "a").slots
    turned = put(GOOD, "a", slots=held[2:] + held[:2])
    assert kinds(turned) == {"value"}


def test_a_plan_for_another_problem_is_refused_whatever_it_says():
    later = change(BASE, computed_at=BASE.computed_at + 1)
    assert kinds(GOOD, later) == {"computed-at", "problem-digest"}
    heavier = with_task(BASE, "a", weight_milli=1001)
    assert "problem-digest" in kinds(GOOD, heavier)
    relabelled = change(GOOD, problem_digest=digest(heavier))
    assert kinds(relabelled, heavier) == {"value", "waf"}


def test_random_plans_do_not_survive_spoiling():
    seen: Counter[str] = Counter()

    @settings(QUICK, max_examples=40)
    @given(problems((1, 2)))
    def run(base):
        plan = solve(base)
        for assignment in plan.assignments:
            spoiled = []
            if assignment.slots:
                held = assignment.slots
                spoiled += [
                    put(plan, assignment.task, slots=held[:-1]),
                    put(plan, assignment.task, slots=(*held, held[0])),
                    put(plan, assignment.task, slots=held[:-1] + slots("n0/9")),
                    put(plan, assignment.task, layout=None),
                    put(plan, assignment.task, layout=None, slots=()),
                ]
            else:
                spoiled.append(put(plan, assignment.task, slots=slots("n0/0")))
            for bad in spoiled:
                found = check(base, bad)
                assert found, "nothing found wrong"
                seen.update(v.kind for v in found)

    run()
    assert {"slot-count", "slot-shared", "value", "waf", "relaxed"} <= set(seen)
    assert {"slot-unhealthy", "node-unknown"} & set(seen)
