"""The problem after one thing more has happened."""

import msgspec
import pytest

from tests.planner.cases import layout, linear, node, slots, task
from unicron.planner import (
    BadProblem,
    Planner,
    PlanProblem,
    check,
    explain,
    outlook,
    problem_from,
    validate,
)
from unicron.planner.whatif import (
    arrived,
    carried_out,
    drained,
    expected_run_ms,
    failed,
    finished,
    joined,
)

DAY_MS = 86_400_000
ONE = task("one", linear(8), current=layout(3), placement=slots("n0/0-1", "n1/0"), max_devices=8)
TWO = task("two", linear(4), current=layout(2), placement=slots("n2/0-1"), max_devices=4)
PROBLEM = PlanProblem(
    computed_at=5,
    nodes=(node("n0", 2), node("n1", 2), node("n2", 2)),
    tasks=(ONE, TWO),
    expected_run_ms=10 * DAY_MS,
    node_mtbf_ms=30 * DAY_MS,
)


def hit(problem):
    return [t.task for t in problem.tasks if t.hit]


def test_a_failed_node_hits_who_held_a_device_of_it():
    after = failed(PROBLEM, "n1")
    assert [n.node for n in after.nodes] == ["n0", "n2"]
    assert hit(after) == ["one"]
    assert after.tasks[0].placement == ONE.placement  # what it held, healthy or not
    assert after.expected_run_ms == 15 * DAY_MS  # two nodes fail less often than three
    validate(after)
    plan = Planner("local").solve(after)
    assert check(after, plan) == ()


def test_two_nodes_may_fail_at_once():
    assert hit(failed(PROBLEM, "n1", "n2")) == ["one", "two"]


def test_without_a_failure_rate_the_expected_run_stays():
    fixed = msgspec.structs.replace(PROBLEM, node_mtbf_ms=0)
    assert failed(fixed, "n1").expected_run_ms == 10 * DAY_MS


def test_nodes_that_join_are_like_those_of_their_kind():
    after = joined(PROBLEM, "gpu", 2)
    assert [len(n.devices) for n in after.nodes] == [2] * 5
    assert len({n.node for n in after.nodes}) == 5
    assert after.expected_run_ms == 6 * DAY_MS
    assert len(joined(after, "gpu").nodes) == 6
    validate(joined(after, "gpu"))


def test_draining_finishing_and_arriving():
    assert [n.draining for n in drained(PROBLEM, "n2").nodes] == [False, False, True]
    assert [t.task for t in finished(PROBLEM, "one").tasks] == ["two"]
    third = task("three", linear(2), max_devices=2)
    assert [t.task for t in arrived(PROBLEM, third).tasks] == ["one", "two", "three"]


@pytest.mark.parametrize(
    "change,words",
    [
        (lambda: failed(PROBLEM, "nn1"), "did you mean n1"),
        (lambda: drained(PROBLEM, "zz"), "known: n0, n1, n2"),
        (lambda: joined(PROBLEM, "h100"), "known: gpu"),
        (lambda: finished(PROBLEM, "tow"), "did you mean two"),
    ],
)
def test_what_is_not_there_is_said(change, words):
    with pytest.raises(BadProblem, match=words):
        change()


def test_the_rates_of_nodes_add_up():
    # 1,000 nodes that fail once in 1,000 days each: one failure a day.
    assert expected_run_ms(1_000, 1_000 * DAY_MS) == DAY_MS
    assert expected_run_ms(0, DAY_MS) == DAY_MS
    data = {
        "nodes": [{"node": "n[1-4]", "kind": "gpu", "devices": 1}],
        "tasks": [],
        "node_mtbf_ms": 4_000,
    }
    assert problem_from(data).expected_run_ms == 1_000
    assert problem_from({**data, "expected_run_ms": 7}).expected_run_ms == 7


def test_a_plan_of_another_problem_is_refused_with_what_to_give():
    nodes = [node("n0", 2)]
    mine = PlanProblem(
        computed_at=1, nodes=tuple(nodes), tasks=(task("a", linear(2)),), expected_run_ms=1000
    )
    other = msgspec.structs.replace(mine, tasks=())
    plan = Planner("dp").solve(mine)
    for asked in (outlook, explain, carried_out):
        with pytest.raises(BadProblem, match="the problem that the plan was made for"):
            asked(other, plan)
    assert carried_out(mine, plan).tasks[0].placement == plan.assignments[0].slots != ()
