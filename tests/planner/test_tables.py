"""Plans that are ready before anything happens."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.cases import QUICK, linear, node, problem, problems, running, slots, task
from unicron.planner import NodeSupply, TenantQuota, check, local_plan
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.families import Family
from unicron.planner.knapsack import best_options
from unicron.planner.tables import Table, build_table, fill_table
from unicron.planner.whatif import arrived, drained, failed, finished, joined

DAY_MS = 86_400_000
THREE = msgspec.structs.replace(
    problem(
        [node(f"n{i}", 4) for i in range(5)],
        [
            running("a", linear(12), slots("n0/0-3", "n1/0-3"), max_devices=12),
            running("b", linear(8), slots("n2/0-3"), weight_milli=2500, max_devices=8),
            running("c", linear(8), slots("n3/0-1"), min_devices=1, max_devices=8),
        ],
        expected_run_ms=18 * DAY_MS,
    ),
    node_mtbf_ms=90 * DAY_MS,
)
THREE = msgspec.structs.replace(
    THREE,
    tasks=tuple(msgspec.structs.replace(t, transition_ms=600_000) for t in THREE.tasks),
)
FOURTH = task("d", linear(6), weight_milli=3000, max_devices=6)


def agrees(entry, after):
    """The entry is worth what a fresh plan is, and becomes a plan that can be applied."""
    fresh = dynamic_plan(after)
    plan = entry.plan(after)
    assert not entry.local
    assert entry.value_milli == fresh.value_gflops_milli == plan.value_gflops_milli
    assert check(after, plan) == ()


def test_every_next_event_is_worth_what_a_fresh_plan_is():
    table = build_table(THREE, 7, [FOURTH])
    assert table.complete
    for n in THREE.nodes:
        agrees(table.failed(7, n.node), failed(THREE, n.node))
    agrees(table.joined(7, "gpu"), joined(THREE, "gpu"))
    for t in THREE.tasks:
        agrees(table.finished(7, t.task), finished(THREE, t.task))
    agrees(table.arrived(7, "d"), arrived(THREE, FOURTH))


def test_a_node_more_makes_room_for_layouts_that_were_too_large():
    """Six devices fit nowhere on four: they do when a node joins."""
    grows = problem([node("n0", 4)], [task("a", linear(6)[-1:], max_devices=6)])
    assert dynamic_plan(grows).value_gflops_milli == 0
    agrees(build_table(grows, 7).joined(7, "gpu"), joined(grows, "gpu"))
    after = build_table(grows, 7).joined(7, "gpu").plan(joined(grows, "gpu"))
    assert [len(a.slots) for a in after.assignments] == [6]


def test_a_node_like_one_that_is_draining_makes_room_too():
    empty = drained(problem([node("n0", 4)], [task("a", linear(4), max_devices=4)]), "n0")
    agrees(build_table(empty, 7).joined(7, "gpu"), joined(empty, "gpu"))


def test_every_pair_of_failures_too():
    table = build_table(THREE, 7)
    for one, other in itertools.combinations([n.node for n in THREE.nodes], 2):
        agrees(table.failed(7, one, other), failed(THREE, one, other))
        assert table.failed(7, other, one) is table.failed(7, one, other)


def test_a_node_that_is_named_twice_fails_once():
    table = build_table(THREE, 7)
    assert table.failed(7, "n0", "n0") is table.failed(7, "n0")


def test_an_entry_of_another_version_is_never_given():
    table = build_table(THREE, 7, [FOURTH])
    assert table.failed(8, "n0") is None and table.joined(6, "gpu") is None
    assert table.finished(8, "a") is None and table.arrived(8, "d") is None


def test_what_is_not_prepared_is_none():
    table = build_table(THREE, 7)
    assert table.failed(7, "n9") is None and table.failed(7, "n0", "n9") is None
    assert table.joined(7, "tpu") is None and table.arrived(7, "d") is None
    assert table.failed(7, "n0", "n1", "n2") is None


def test_it_fills_step_by_step_and_is_of_use_meanwhile():
    table = Table(3)
    steps = fill_table(table, THREE)
    next(steps)
    assert len(table) == 1 and not table.complete
    ready = [n.node for n in THREE.nodes if table.failed(3, n.node) is not None]
    assert ready
    agrees(table.failed(3, ready[0]), failed(THREE, ready[0]))
    for _ in steps:
        pass
    assert table.complete and len(table) == len(build_table(THREE, 3))


def test_pairs_are_left_out_where_there_are_many_tasks(monkeypatch):
    monkeypatch.setattr("unicron.planner.tables.PAIR_TASKS_MAX", 2)
    table = build_table(THREE, 1)
    assert table.complete and table.failed(1, "n0") is not None
    assert table.failed(1, "n0", "n1") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"quotas": (TenantQuota(tenant="t", max_devices=3),)},
        {"nodes": (*THREE.nodes, NodeSupply(node="n5", kind="gpu", devices=(0, 1, 2)))},
    ],
)
def test_where_constraints_do_not_decompose_entries_are_local_and_hold(changed):
    base = msgspec.structs.replace(THREE, **changed)
    if "quotas" in changed:
        tasks = tuple(msgspec.structs.replace(t, tenant="t") for t in base.tasks)
        base = msgspec.structs.replace(base, tasks=tasks)
    if "nodes" in changed:  # two sizes of groups, and a node that doesn't divide
        tasks = (*base.tasks, task("e", linear(2, tp=2), max_devices=4))
        base = msgspec.structs.replace(base, tasks=tasks)
    table = build_table(base, 1)
    entry = table.failed(1, "n0")
    assert entry.local
    after = failed(base, "n0")
    assert entry.plan(after) == local_plan(after) and check(after, entry.plan(after)) == ()


def test_choices_that_no_longer_fit_become_the_local_answer():
    table = build_table(THREE, 7)
    entry = table.failed(7, "n0")
    other = failed(THREE, "n0", "n2", "n4")  # more has happened than was said
    plan = entry.plan(other)
    assert plan == local_plan(other) and check(other, plan) == ()


@QUICK
@given(problems((1,)))
def test_entries_equal_fresh_plans_on_small_clusters(base):
    table = build_table(base, 1)
    for n in base.nodes:
        entry, after = table.failed(1, n.node), failed(base, n.node)
        plan = entry.plan(after)
        assert check(after, plan) == ()
        if not entry.local:
            assert entry.value_milli == dynamic_plan(after).value_gflops_milli
            assert plan.value_gflops_milli == entry.value_milli


ROW = st.lists(st.tuples(st.integers(0, 8), st.integers(-20, 60)), min_size=1, max_size=5)


@QUICK
@given(st.lists(ROW, min_size=1, max_size=6), st.integers(0, 24), st.data())
def test_a_family_finds_what_each_knapsack_would(rows, capacity, data):
    family = Family(rows, capacity)
    many = data.draw(st.integers(0, min(3, len(rows))))
    places = data.draw(st.permutations(range(len(rows))))[:many]
    instead = {i: data.draw(ROW) for i in places}
    room = max(0, capacity + data.draw(st.integers(-4, 4)))
    replaced = [instead.get(i, row) for i, row in enumerate(rows)]
    expected = best_options(replaced, room)
    found = family.solve(room, instead)
    assert (found is None) == (expected is None)
    if found is not None:
        picked = [row[k] for row, k in zip(replaced, found, strict=True)]
        best = [row[k] for row, k in zip(replaced, expected.options, strict=True)]
        assert sum(size for size, _ in picked) <= room
        assert sum(score for _, score in picked) == sum(score for _, score in best)
