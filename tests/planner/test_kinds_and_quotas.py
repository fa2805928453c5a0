"""Kinds of device, quotas, floors by speed, drains: small cases whose answer is plain."""

from __future__ import annotations

import pytest

from tests.planner.cases import change, layout, linear, node, of, problem, running, slots, task
from unicron.planner import LayoutOption, NodeSupply, TenantQuota, check, local_plan, validate
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan

both = pytest.mark.parametrize("answer", [dynamic_plan, solve])
all_three = pytest.mark.parametrize("answer", [local_plan, dynamic_plan, solve])


def on(largest: int, **speeds: int) -> tuple[LayoutOption, ...]:
    """dp = 1 .. largest on each kind named, with so many GFLOP/s a device."""
    return tuple(
        LayoutOption(layout=layout(n), throughput_gflops=gflops * n, kind=kind)
        for n in range(1, largest + 1)
        for kind, gflops in speeds.items()
    )


def draining(name: str, devices: int) -> NodeSupply:
    return change(node(name, devices), draining=True)


def sound(base, plan):
    validate(base)
    assert check(base, plan) == ()
    return plan


@both
def test_each_task_gets_the_kind_on_which_it_gains_most(answer):
    """Both are faster on new devices, but b gains twice as much from them."""
    nodes = [node("n0", 4, "new"), node("n1", 4, "old")]
    tasks = [task("a", on(4, new=110, old=100)), task("b", on(4, new=200, old=100))]
    plan = sound(problem(nodes, tasks), answer(problem(nodes, tasks)))
    assert [of(plan, name).kind for name in "ab"] == ["old", "new"]
    assert [len(of(plan, name).slots) for name in "ab"] == [4, 4]


@both
def test_a_task_is_on_one_kind_or_on_any(answer):
    nodes = [node("n0", 2, "new"), node("n1", 2, "old")]
    base = problem(nodes, [task("a", on(4, new=100, old=100)), task("b", linear(4, gflops=1))])
    plan = sound(base, answer(base))
    assert len(of(plan, "a").slots) == 2 and len(of(plan, "b").slots) == 2
    mixed = problem(nodes, [task("b", linear(4))])
    assert len(of(sound(mixed, answer(mixed)), "b").slots) == 4


@both
def test_a_task_moves_to_another_kind_only_if_that_pays(answer):
    nodes = [node("n0", 4, "old"), node("n1", 4, "new")]
    held = running("a", on(4, old=100), slots("n0/0-3"), current_kind="old", transition_ms=60_000)
    held = change(held, options=on(4, old=100, new=110))
    dear = problem(nodes, [held], expected_run_ms=100_000)  # 400 x 0.6 is more than 40
    assert of(sound(dear, answer(dear)), "a").slots == slots("n0/0-3")
    cheap = problem(nodes, [held], expected_run_ms=10_000_000)
    assert of(sound(cheap, answer(cheap)), "a").slots == slots("n1/0-3")


@both
def test_a_quota_bounds_its_tenant_and_nobody_else(answer):
    tasks = [
        task("a", linear(8, gflops=900), tenant="x"),
        task("b", linear(8, gflops=800), tenant="x"),
        task("c", linear(8, gflops=1)),
    ]
    base = change(problem([node("n0", 8)], tasks), quotas=(TenantQuota(tenant="x", max_devices=3),))
    plan = sound(base, answer(base))
    assert [len(of(plan, name).slots) for name in "abc"] == [2, 1, 5]
    none = change(base, quotas=(TenantQuota(tenant="x", max_devices=0),))
    plan = sound(none, answer(none))
    assert [len(of(plan, name).slots) for name in "abc"] == [0, 0, 8]
    assert plan.relaxed == ("a", "b")


@both
def test_a_quota_of_one_kind_leaves_the_others(answer):
    nodes = [node("n0", 4, "new"), node("n1", 4, "old")]
    base = change(
        problem(nodes, [task("a", on(4, new=100, old=10), tenant="x")]),
        quotas=(TenantQuota(tenant="x", kind="new", max_devices=0),),
    )
    plan = sound(base, answer(base))
    assert of(plan, "a").kind == "old" and len(of(plan, "a").slots) == 4


@all_three
def test_who_is_above_a_quota_gives_devices_back_the_least_important_first(answer):
    tasks = [
        running("a", linear(4), slots("n0/0-3"), tenant="x", priority=1),
        running("b", linear(4), slots("n1/0-3"), tenant="x"),
    ]
    base = change(
        problem([node("n0", 4), node("n1", 4)], tasks),
        quotas=(TenantQuota(tenant="x", max_devices=6),),
    )
    plan = sound(base, answer(base))
    assert [len(of(plan, name).slots) for name in "ab"] == [4, 2]


@both
def test_a_floor_by_speed_takes_what_it_needs_from_a_heavier_task(answer):
    slow = task("a", linear(8), weight_milli=1, min_devices=0, min_gflops=450)
    base = problem([node("n0", 8)], [slow, task("b", linear(8), min_devices=0)])
    plan = sound(base, answer(base))
    assert [len(of(plan, name).slots) for name in "ab"] == [5, 3]
    assert plan.relaxed == ()


@both
def test_a_floor_by_speed_that_cannot_be_met_is_given_up_and_the_task_may_run_slower(answer):
    """The one of lower priority; the other's 500 leave 3 devices."""
    tasks = [
        task("a", linear(8), min_devices=0, min_gflops=500),
        task("b", linear(8), min_devices=0, min_gflops=500, priority=1),
    ]
    base = problem([node("n0", 8)], tasks)
    plan = sound(base, answer(base))
    assert plan.relaxed == ("a",)
    assert (
        len(of(plan, "b").slots) >= 5 and len(of(plan, "a").slots) + len(of(plan, "b").slots) == 8
    )


@all_three
def test_a_speed_beyond_every_layout_is_said_to_be_unmet(answer):
    held = running("a", linear(4), slots("n0/0-3"), min_devices=0, min_gflops=10**9)
    base = problem([node("n0", 4)], [held])
    plan = sound(base, answer(base))
    assert plan.relaxed == ("a",) and of(plan, "a").slots == slots("n0/0-3")


@both
def test_who_holds_devices_of_a_draining_node_moves_off_and_nobody_moves_on(answer):
    held = running("a", linear(4), slots("n0/0-1", "n1/0-1"))
    base = problem([draining("n0", 4), node("n1", 4)], [held, task("b", linear(4), min_devices=0)])
    plan = sound(base, answer(base))
    assert {s.node for a in plan.assignments for s in a.slots} == {"n1"}
    assert of(plan, "a").slots[:2] == slots("n1/0-1")


def test_the_local_answer_leaves_a_drain_alone():
    held = running("a", linear(4), slots("n0/0-1", "n1/0-1"))
    base = problem([draining("n0", 4), node("n1", 4)], [held])
    assert of(sound(base, local_plan(base)), "a").slots == held.placement
    # A device of n1 is lost: the drained ones are as good as any until they are given back.
    hit = problem([draining("n0", 4), node("n1", 1)], [change(held, hit=True)])
    assert of(sound(hit, local_plan(hit)), "a").slots == slots("n0/0-1", "n1/0")


@both
def test_if_everything_drains_everybody_parks(answer):
    held = running("a", linear(4), slots("n0/0-3"))
    base = problem([draining("n0", 4), draining("n1", 4)], [held, task("b", linear(2))])
    plan = sound(base, answer(base))
    assert all(a.layout is None for a in plan.assignments) and plan.relaxed == ("a", "b")


@all_three
def test_a_task_leaves_the_nodes_it_is_to_avoid(answer):
    held = running("a", linear(4), slots("n0/0-1", "n1/0-1"), avoid=("n0",))
    base = problem([node("n0", 4), node("n1", 2)], [held])
    assert of(sound(base, answer(base)), "a").slots == slots("n1/0-1")


def test_a_task_makes_room_for_one_that_can_go_nowhere_else():
    """Only n0 is left for b, which is worth a's move. Counting doesn't see that."""
    a = running("a", linear(4)[3:], slots("n0/0-3"), transition_ms=1)
    b = task("b", linear(4, gflops=900)[3:], avoid=("n1",))
    base = problem([node("n0", 4), node("n1", 4)], [a, b])
    sound(base, dynamic_plan(base))
    plan = sound(base, solve(base))
    assert of(plan, "b").slots == slots("n0/0-3") and of(plan, "a").slots == slots("n1/0-3")


@both
def test_two_nodes_lost_at_once_cost_the_light_task_first(answer):
    """8 of 16 devices remain; the heavy one had them all lost, the light one none."""
    heavy = running("a", linear(8), slots("n0/0-3", "n1/0-3"), hit=True, weight_milli=9000)
    light = running("b", linear(8), slots("n2/0-3", "n3/0-3"), min_devices=1)
    base = problem([node("n2", 4), node("n3", 4)], [heavy, light])
    plan = sound(base, answer(base))
    assert [len(of(plan, name).slots) for name in "ab"] == [7, 1]
    assert of(sound(base, local_plan(base)), "b").slots == light.placement


@both
def test_weights_that_differ_by_a_million_are_told_apart(answer):
    tasks = [
        task("a", linear(8), weight_milli=1, min_devices=0),
        task("b", linear(8), weight_milli=1_000_000, min_devices=0),
        task("c", linear(2), weight_milli=2, min_devices=0),
    ]
    base = problem([node("n0", 8), node("n1", 4)], tasks)
    plan = sound(base, answer(base))
    assert [len(of(plan, name).slots) for name in "abc"] == [2, 8, 2]
    assert plan.value_gflops_milli == 1 * 200 + 1_000_000 * 800 + 2 * 200
