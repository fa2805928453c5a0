"""What the engineer reads the morning after."""

from __future__ import annotations

import msgspec
from hypothesis import given

from tests.planner.cases import (
    QUICK,
    linear,
    node,
    problem,
    problems,
    running,
    slots,
    task,
    with_task,
)
from unicron.planner import explain, explain_data, local_plan
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan

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
    head, a, b, bound, runner_up = explain(BASE, solve(BASE))
    assert head == (
        "plan by cpsat at sequence 42: weighted throughput 800.000 -> 1000.000 GFLOP/s, "
        "changes cost 8.000"
    )
    assert a == (
        "a: hit, tp 1 pp 1 dp 4 -> tp 1 pp 1 dp 2 (devices: 2 kept, 2 lost), "
        "400.000 -> 200.000 GFLOP/s, change costs 4.000"
    )
    assert b == (
        "b: tp 1 pp 1 dp 2 -> tp 1 pp 1 dp 4 (devices: 2 kept, 2 gained), "
        "400.000 -> 800.000 GFLOP/s, change costs 4.000"
    )
    assert bound == "bound by: every healthy device is used (6 of 6 devices used)"
    assert runner_up == "runner-up: local, worth 396.000 GFLOP/s less"


def test_the_same_as_data():
    data = explain_data(BASE, solve(BASE))
    assert data["waf_before_milli"] == 800_000 and data["waf_after_milli"] == 1_000_000
    assert data["change_cost_milli"] == 8_000
    assert data["tasks"][0] == {
        "task": "a",
        "hit": True,
        "changed": True,
        "layout_before": "tp 1 pp 1 dp 4",
        "layout_after": "tp 1 pp 1 dp 2",
        "devices_before": 4,
        "devices_after": 2,
        "kept": 2,
        "gained": 0,
        "lost": 2,
        "released": 0,
        "cost_milli": 4_000,
        "waf_before_milli": 400_000,
        "waf_after_milli": 200_000,
    }
    assert data["runner_up"] == {
        "source": "local",
        "waf_milli": 600_000,
        "value_milli": 596_000,
        "loss_milli": 396_000,
        "relaxed": [],
    }


def test_a_local_answer_says_what_could_be_better():
    lines = explain(BASE, local_plan(BASE))
    assert "b: goes on as it is, tp 1 pp 1 dp 2" in lines
    assert lines[-2] == (
        "bound by: only hit tasks may change, and only on devices they hold (4 of 6 devices used)"
    )
    assert lines[-1] == "runner-up: dp, worth 396.000 GFLOP/s more"


def test_a_minimum_given_up_is_named():
    base = with_task(BASE, "a", options=linear(4)[2:], min_devices=3)
    base = with_task(base, "b", options=linear(4)[3:], min_devices=4, current=None, placement=())
    lines = explain(base, dynamic_plan(base))
    assert "b: stays parked" in lines
    assert "bound by: minimum sizes can't all be met: b parked (4 of 6 devices used)" in lines
    assert any("but parks a" in line for line in explain(base, dynamic_plan(base)))


def test_nothing_to_say_is_said():
    empty = problem([], [])
    assert explain(empty, local_plan(empty))[-1].startswith("runner-up: none")
    full = problem([node("n0", 3)], [running("a", linear(2), slots("n0/0-1"))])
    assert "bound by: every task has its largest layout (2 of 3 devices used)" in explain(
        full, local_plan(full)
    )
    tight = problem([node("n0", 2)], [task("a", linear(2)[:1]), task("b", linear(1))])
    assert "(2 of 2 devices used)" in explain(tight, solve(tight))[-2]


@QUICK
@given(problems((1, 2)))
def test_every_plan_can_be_explained_in_integers(base):
    for plan in (local_plan(base), dynamic_plan(base), solve(base)):
        lines, data = explain(base, plan), explain_data(base, plan)
        assert len(lines) == len(base.tasks) + 3 and all(lines)
        assert "." not in msgspec.json.encode(data).decode().replace("GFLOP", "")
        assert data["change_cost_milli"] == sum(each["cost_milli"] for each in data["tasks"])
        assert data["waf_after_milli"] == sum(each["waf_after_milli"] for each in data["tasks"])
