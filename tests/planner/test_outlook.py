"""What would be done next, for each single event after a plan."""

from __future__ import annotations

import sys

import msgspec
import pytest

from tests.planner.cases import linear, node, problem, running, slots, task
from unicron.planner import BadProblem, TenantQuota, build_table, outlook
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.whatif import carried_out, failed, finished, joined

SIX = problem(
    [node(f"n{i}", 4) for i in range(6)],
    [
        running("a", linear(12), slots("n0/0-3", "n1/0-3"), max_devices=12),
        running("b", linear(8), slots("n2/0-3"), weight_milli=2500, max_devices=8),
        running("c", linear(6), slots("n3/0-1"), min_devices=1, max_devices=6),
    ],
    expected_run_ms=10**9,
)


def fresh(event, name, then):
    happens = {"loss": failed, "join": joined, "finish": finished}[event]
    return dynamic_plan(happens(then, name))


def _agrees_with_fresh_plans(asked):
    plan = dynamic_plan(asked)
    then = carried_out(asked, plan)
    found = outlook(asked, plan)
    before = {a.task: len(a.slots) for a in plan.assignments}
    for case in found:
        best = fresh(case.event, case.names[0], then)
        assert case.waf_milli == best.waf_milli
        assert case.change_milli == best.waf_milli - plan.waf_milli
        after = {a.task: len(a.slots) for a in best.assignments}
        assert case.sizes == tuple(
            (t, before[t], after[t]) for t in sorted(after) if after[t] != before[t]
        )
    return found


def test_every_case_is_what_a_fresh_plan_would_be():
    found = _agrees_with_fresh_plans(SIX)
    losses = [case for case in found if case.event == "loss"]
    assert sorted(name for case in losses for name in case.names) == [n.node for n in SIX.nodes]
    assert all(case.optimal for case in found)
    changes = [case.change_milli for case in losses]
    assert changes == sorted(changes) and changes[0] < 0, "the worst first"
    assert [case.names for case in found if case.event == "join"] == [("gpu",)]
    assert [case.names for case in found if case.event == "finish"] == [("a",), ("b",), ("c",)]


def test_what_the_table_leaves_to_the_local_answer_is_planned_anew():
    bound = msgspec.structs.replace(
        SIX,
        tasks=tuple(msgspec.structs.replace(t, tenant="x") for t in SIX.tasks),
        quotas=(TenantQuota(tenant="x", max_devices=17),),
    )
    assert build_table(bound, 1).failed(1, "n0").local
    assert len(_agrees_with_fresh_plans(bound)) >= 3


def test_beyond_the_bound_it_says_that_it_was_not_worked_out(monkeypatch):
    bound = msgspec.structs.replace(
        SIX,
        tasks=tuple(msgspec.structs.replace(t, tenant="x") for t in SIX.tasks),
        quotas=(TenantQuota(tenant="x", max_devices=17),),
    )
    module = sys.modules["unicron.planner.outlook"]  # the function has its name
    monkeypatch.setattr(module, "ANEW_MAX", 24)  # one case on 24 devices
    found = outlook(bound, dynamic_plan(bound))
    worked_out = [case for case in found if case.waf_milli is not None]
    assert len(worked_out) == 1 < len(found)
    assert found[0] is worked_out[0], "what isn't known stands last"
    assert all(case.change_milli is None and case.sizes == () for case in found[1:])


def test_no_nodes_and_no_tasks():
    empty = problem([], [])
    assert outlook(empty, dynamic_plan(empty)) == ()
    alone = problem([node("n0", 2)], [])
    assert [case.event for case in outlook(alone, dynamic_plan(alone))] == ["loss", "join"]


def test_a_table_of_nonsense_is_refused():
    twice = msgspec.structs.replace(SIX, nodes=(*SIX.nodes, SIX.nodes[0]))
    with pytest.raises(BadProblem, match="n0"):
        build_table(twice, 1)
    with pytest.raises(BadProblem):
        build_table(SIX, 1, [task("a", linear(2))])
