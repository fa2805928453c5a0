"""Whether it pays to leave a node free."""

import msgspec
import pytest

from tests.planner.cases import linear, node, problem, running, slots
from unicron.planner import LayoutOption, check, spares
from unicron.planner.best import best_plan
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.explain import explain
from unicron.planner.local import local_plan
from unicron.planner.problem import Layout, TenantQuota
from unicron.planner.spares import free_nodes, with_spare
from unicron.planner.whatif import carried_out, failed

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def cluster(tasks, nodes=5, *, repair_ms=DAY_MS, run_ms=DAY_MS):
    base = problem([node(f"n{i}", 2) for i in range(nodes)], tasks, expected_run_ms=run_ms)
    return msgspec.structs.replace(base, repair_ms=repair_ms)


def rigid(name, devices, held, **fields):
    """One size or none."""
    layout = Layout(tp=1, pp=1, dp=devices)
    option = LayoutOption(layout=layout, throughput_gflops=100 * devices)
    return running(name, (option,), held, min_devices=0, max_devices=devices, **fields)


def test_who_gains_by_every_device_is_not_worth_a_spare():
    base = cluster([running("a", linear(10), slots("n0/0-1", "n1/0-1", "n2/0-1"), max_devices=10)])
    best, other = with_spare(base, dynamic_plan)
    assert (best.spare, len(best.plan.assignments[0].slots)) == ("", 10)
    assert other.spare and len(other.plan.assignments[0].slots) == 8
    # 1,000 for a day, then 800 less its change-over; a spare: 800 now and 800 then.
    assert best.now_milli > other.now_milli and best.total_milli > other.total_milli


def rigid_and_light():
    """The heavy one needs eight devices or stands still. The light one has the last node; when one
    of the heavy one's fails, it would have to give it up, and both change over for long."""
    tasks = [
        rigid("heavy", 8, slots("n0/0-1", "n1/0-1", "n2/0-1", "n3/0-1"), weight_milli=10_000),
        running(
            "light",
            linear(2, gflops=1),
            slots("n4/0-1"),
            weight_milli=1_000,
            min_devices=0,
            max_devices=2,
            transition_ms=12 * HOUR_MS,
        ),
    ]
    return cluster(tasks, repair_ms=30 * DAY_MS)


def test_a_rigid_task_beside_one_of_little_value_is():
    worths = with_spare(rigid_and_light(), dynamic_plan)
    assert {each.spare for each in worths} == {"", "n4"}
    by_spare = {each.spare: each for each in worths}
    assert by_spare[""].now_milli > by_spare["n4"].now_milli
    assert by_spare["n4"].after_milli >= by_spare[""].after_milli
    for each in worths:
        expected = (each.now_milli + 30 * each.after_milli) // 31
        assert each.total_milli == expected
    assert worths[0].spare == "n4"
    # A node that is back within a day isn't worth the wait.
    soon = msgspec.structs.replace(rigid_and_light(), repair_ms=DAY_MS)
    assert with_spare(soon, dynamic_plan)[0].spare == ""


def test_a_plan_that_leaves_a_node_free_anyway_has_its_spare():
    base = cluster([rigid("a", 4, slots("n0/0-1", "n1/0-1"))], nodes=3)
    (only,) = with_spare(base, dynamic_plan)
    assert only.spare == "" and check(base, only.plan) == ()


def test_a_spare_never_costs_a_floor():
    base = cluster(
        [
            running(
                "a",
                linear(10)[9:],
                slots(*(f"n{i}/0-1" for i in range(5))),
                min_devices=10,
                max_devices=10,
            )
        ]
    )
    (only,) = with_spare(base, dynamic_plan)
    assert only.spare == ""


def test_both_plans_can_be_applied():
    base = cluster([running("a", linear(10), slots("n0/0-1", "n1/0-1", "n2/0-1"), max_devices=10)])
    for each in with_spare(base, dynamic_plan):
        assert check(base, each.plan) == ()


def test_without_a_time_of_repair_nobody_can_say():
    base = msgspec.structs.replace(cluster([]), repair_ms=0)
    with pytest.raises(ValueError, match="repair_ms"):
        with_spare(base, dynamic_plan)


def test_the_best_plan_leaves_a_node_free_where_that_pays_and_says_so():
    base = rigid_and_light()
    plan = best_plan(base)
    assert check(base, plan) == ()
    assert free_nodes(base, plan) == ("n4",)
    assert dict(plan.statistics)["spare"] == 1
    said = "bound by: n4 is left free, to stand in when another node fails (8 of 10 devices used)"
    assert said in explain(base, plan)


def test_nothing_is_left_free_where_nobody_knows_how_long_a_node_is_away():
    base = msgspec.structs.replace(rigid_and_light(), repair_ms=0)
    plan = best_plan(base)
    assert free_nodes(base, plan) == ()
    assert plan == dynamic_plan(base)
    assert "left free" not in " ".join(explain(base, plan))


def test_when_a_node_fails_the_spare_takes_over():
    base = rigid_and_light()
    then = failed(carried_out(base, best_plan(base)), "n1")
    plan = best_plan(then)
    heavy = next(a for a in plan.assignments if a.task == "heavy")
    assert {slot.node for slot in heavy.slots} == {"n0", "n2", "n3", "n4"}


def test_free_nodes_and_nodes_alike_of_a_large_cluster_are_looked_at_once(monkeypatch):
    # A quota makes every loss one for the local answer, which looks at the whole cluster.
    tasks = [running("a", linear(6), slots("n0/0-1", "n1/0-1"), max_devices=6, tenant="lab")]
    base = msgspec.structs.replace(
        cluster(tasks, nodes=40), quotas=(TenantQuota(tenant="lab", max_devices=4),)
    )
    looked: list[int] = []

    def counted(problem):
        looked.append(len(problem.nodes))
        return local_plan(problem)

    monkeypatch.setattr(spares, "local_plan", counted)
    (exact,) = with_spare(base, dynamic_plan)
    assert exact.after_milli == mean_of_local_answers(base, exact.plan)
    assert looked == [39] * 3, "n0, n1, and one for all that are free"
    monkeypatch.setattr(spares, "_ONE_BY_ONE_MAX", 40 * 80 - 1)
    looked.clear()
    (roughly,) = with_spare(base, dynamic_plan)
    assert looked == [39] * 2, "n0 for n1 too"
    assert roughly == exact


def mean_of_local_answers(base, plan):
    then = carried_out(base, plan)
    values = [local_plan(failed(then, n.node)).value_gflops_milli for n in then.nodes]
    return sum(values) // len(values)
