"""What the engineer reads the morning after."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given

from tests.planner.cases import (
    QUICK,
    layout,
    linear,
    node,
    problem,
    problems,
    running,
    slots,
    task,
    with_task,
)
from unicron.planner import LayoutOption, TenantQuota, explain, explain_data, local_plan
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.explanation import explanation

# n0 is lost: a is hit; n2 is idle, and b with its higher weight makes most of it.
BASE = problem(
    [node("n1", 4), node("n2", 2)],
    [
        running("a", linear(4), slots("n0/0-1", "n1/0-1"), hit=True, transition_ms=60_000),
        running("b", linear(4), slots("n1/2-3"), weight_milli=2000, transition_ms=60_000),
    ],
    expected_run_ms=6_000_000,
)


def test_the_story_of_a_lost_node():
    head, a, b, failure, bound, more, runner_up = explain(BASE, solve(BASE))
    assert head == (
        "plan by cpsat at sequence 42: weighted throughput 800 -> 1,000 GFLOP/s, changes cost 8"
    )
    assert a == (
        "a: hit, tp 1 pp 1 dp 4 -> tp 1 pp 1 dp 2 (devices: 2 kept, 2 lost), "
        "400 -> 200 GFLOP/s, change costs 4"
    )
    # Leaving b alone, a could have the idle node: 400 + 400 - 4 = 796 against 992.
    assert b == (
        "b: tp 1 pp 1 dp 2 -> tp 1 pp 1 dp 4 (devices: 2 kept, 2 gained), "
        "400 -> 800 GFLOP/s, change costs 4; worth 196 more than leaving it as it is"
    )
    assert failure == "what failed costs no throughput once the changes are made"
    assert bound == (
        "bound by: 6 of 6 devices of gpu are used; b has its largest layout, 4 devices "
        "(6 of 6 devices used)"
    )
    # b can't grow any more; a makes 100 of each device up to its four.
    assert more == "more devices would bring, in GFLOP/s: 1 of gpu +100, 4 of gpu +200"
    assert runner_up == "runner-up: a 2 -> 3, b 4 -> 3; worth 100 GFLOP/s less"


def test_the_same_as_data():
    data = explain_data(BASE, solve(BASE))
    assert data["waf_before_milli"] == 800_000 and data["waf_after_milli"] == 1_000_000
    assert data["change_cost_milli"] == 8_000 and data["optimal"] is True
    assert data["tasks"][1] == {
        "task": "b",
        "hit": False,
        "changed": True,
        "before": {"tp": 1, "pp": 1, "dp": 2},
        "kind_before": "",
        "after": {"tp": 1, "pp": 1, "dp": 4},
        "kind_after": "",
        "devices_before": 2,
        "devices_after": 4,
        "kept": 2,
        "gained": 2,
        "released": 0,
        "lost": 0,
        "received": 2,
        "bytes": 0,
        "transition_ms": 60_000,
        "cost_milli": 4_000,
        "waf_before_milli": 400_000,
        "waf_after_milli": 800_000,
        "worth_milli": 196_000,
    }
    assert data["runner_up"] == {
        "changes": (("a", 2, 3), ("b", 4, 3)),
        "value_milli": 892_000,
        "waf_milli": 900_000,
        "loss_milli": 100_000,
        "relaxed": (),
    }
    assert json.loads(json.dumps(data))["tasks"] == list(data["tasks"])  # plain data


def test_a_local_answer_says_what_could_be_better():
    lines = explain(BASE, local_plan(BASE))
    assert "b: goes on as it is, tp 1 pp 1 dp 2" in lines
    assert "what failed costs 200 GFLOP/s (25.0 %) as long as it is away" in lines
    assert (
        "bound by: only hit tasks may change, and only on devices they hold (4 of 6 devices used)"
        in lines
    )
    assert lines[-1].startswith("runner-up: ") and lines[-1].endswith("GFLOP/s more")


def test_a_minimum_given_up_is_named():
    base = with_task(BASE, "a", options=linear(4)[2:], min_devices=3)
    base = with_task(base, "b", options=linear(4)[3:], min_devices=4, current=None, placement=())
    lines = explain(base, dynamic_plan(base))
    assert "b: stays parked" in lines
    assert "bound by: minimums can't all be met, b below the minimum (4 of 6 devices used)" in lines
    assert lines[-1].endswith("with a below the minimum")


def test_a_runner_up_of_the_same_size_says_that_its_layout_is_another():
    wide, deep = (
        LayoutOption(layout=layout(4), throughput_gflops=400),
        LayoutOption(layout=layout(2, tp=2), throughput_gflops=390),
    )
    base = problem([node("n0", 4)], [task("a", (wide, deep), min_devices=4)])
    lines = explain(base, dynamic_plan(base))
    assert "runner-up: a 4 laid out otherwise; worth 10 GFLOP/s less" in lines


def test_what_binds_is_named():
    base = problem(
        [node("n0", 4)],
        [
            task("a", linear(4), tenant="one", min_devices=0, max_devices=4),
            task("b", linear(4)[1:], tenant="two", min_devices=2, max_devices=4, weight_milli=1),
        ],
    )
    quota = TenantQuota(tenant="one", max_devices=1)
    base = msgspec.structs.replace(base, quotas=(quota,))
    told = explanation(base, dynamic_plan(base))
    assert [(b.what, b.name, b.used, b.limit) for b in told.bounds] == [
        ("devices", "gpu", 4, 4),
        ("quota", "one", 1, 1),
    ]


def test_nothing_to_say_is_said():
    empty = problem([], [])
    assert explain(empty, local_plan(empty))[-1] == "runner-up: none was found"
    full = problem([node("n0", 3)], [running("a", linear(2), slots("n0/0-1"))])
    assert any("a has its largest layout, 2 devices" in line for line in explain(full, solve(full)))
    # Taking more devices would be slower: nothing of it is worth a thing.
    slower = (*linear(1), msgspec.structs.replace(linear(2)[1], throughput_gflops=1))
    idle = problem([node("n0", 4)], [running("a", slower, slots("n0/0"), min_devices=0)])
    assert any(
        "no layout on offer makes idle devices worth their change (1 of 4 devices used)" in line
        for line in explain(idle, solve(idle))
    )


def test_large_figures_are_said_in_a_larger_unit():
    base = problem([node("n0", 2)], [running("a", linear(2, gflops=123_456), slots("n0/0-1"))])
    assert explain(base, local_plan(base))[0].endswith("246.912 -> 246.912 TFLOP/s, changes cost 0")


def test_without_alternatives_nothing_is_solved_again():
    told = explanation(BASE, solve(BASE), alternatives=False)
    assert told.runner_up is None and told.shadow_prices == ()
    assert all(each.worth_milli is None for each in told.tasks)


@QUICK
@given(problems((1, 2)))
def test_every_plan_can_be_explained_in_integers(base):
    for plan in (local_plan(base), dynamic_plan(base), solve(base)):
        lines, told = explain(base, plan), explanation(base, plan)
        assert len(lines) >= len(base.tasks) + 3 and all(lines)
        assert "." not in msgspec.json.encode(explain_data(base, plan)).decode()
        assert told.change_cost_milli == sum(each.cost_milli for each in told.tasks)
        assert told.waf_after_milli == sum(each.waf_after_milli for each in told.tasks)
        if plan.source == "cpsat" and told.runner_up is not None and told.optimal:
            met = len(told.runner_up.relaxed) > len(plan.relaxed)
            assert met or told.runner_up.loss_milli >= 0
