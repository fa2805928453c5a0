"""What a task could run: every layout, and those that are worth planning with."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.story import SPEC
from unicron import events as ev
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.offers import options_of, worthwhile_of
from unicron.planner.best import best_plan
from unicron.planner.problem import (
    Layout,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
)
from unicron.planner.whatif import failed

NOTHING = ev.Planning()
#: So large that rounding hides nothing.
LARGE = replace(SPEC, max_devices=12, model=replace(SPEC.model, hidden_size=4096, seq_length=1024))


def size(dp):
    return Layout(tp=1, pp=1, dp=dp)


def test_a_size_that_is_slower_than_a_smaller_one_is_not_worth_planning_with():
    """12 micro-batches take two rounds on 6 replicas, and on 11; more replicas exchange more."""
    every = {o.layout.dp: o.throughput_gflops for o in options_of(LARGE, "a100", NOTHING)}
    assert list(every) == list(range(1, 13))
    assert every[6] > every[7] > every[11] < every[12]
    found = worthwhile_of(LARGE, "a100", NOTHING, ())
    assert [o.layout.dp for o in found] == [1, 2, 3, 4, 6, 12]
    assert {o.kind for o in found} == {"a100"}


def test_what_a_task_runs_is_told_of_in_any_case():
    kept = worthwhile_of(LARGE, "a100", NOTHING, (size(7), size(6), size(40)))
    assert [o.layout.dp for o in kept] == [1, 2, 3, 4, 6, 7, 12]
    every = options_of(LARGE, "a100", NOTHING)
    assert all(option in every for option in kept)


@pytest.mark.parametrize("field", ["gflops", "link_bytes_per_s"])
def test_speeds_that_were_configured_take_the_place_of_what_is_assumed(field):
    """The model's exchange counts, and so does the link."""
    slow = ev.Planning(devices=(ev.DeviceSpeed(kind="a100", **{field: 1000}),))
    rates = {
        name: [o.throughput_gflops for o in options_of(LARGE, "a100", planning)]
        for name, planning in (("assumed", NOTHING), ("slow", slow))
    }
    assert all(s < a for s, a in list(zip(rates["slow"], rates["assumed"], strict=True))[1:])
    assert options_of(LARGE, "h100", slow) == options_of(LARGE, "h100", NOTHING)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.integers(2, 13), min_size=2, max_size=3),
    weights=st.lists(st.sampled_from([300, 1000, 1700]), min_size=3, max_size=3),
    nodes=st.integers(1, 4),
    lost=st.booleans(),
)
def test_plans_are_the_same_without_them(batches, weights, nodes, lost):
    """Of as much value, that is; also from what an earlier plan has left when a node is lost."""

    def problem(offers, before):
        tasks = []
        for i, count in enumerate(batches):
            spec = replace(SPEC, micro_batches=count, max_devices=13)
            held = before.get(i)
            options = offers(spec, "cpu", NOTHING, () if held is None else (held.layout,))
            tasks.append(
                TaskDemand(
                    task=f"t{i}",
                    weight_milli=weights[i],
                    min_devices=1,
                    max_devices=13,
                    options=options,
                    current=held.layout if held else None,
                    current_kind=held.kind if held else "",
                    placement=held.slots if held else (),
                    transition_ms=2000,
                    state_bytes=10**9,
                )
            )
        return PlanProblem(
            computed_at=1,
            nodes=tuple(
                NodeSupply(node=f"n{i}", kind="cpu", devices=(0, 1, 2, 3)) for i in range(nodes)
            ),
            tasks=tuple(tasks),
            expected_run_ms=10**6,
            link_bytes_per_s=10**9,
        )

    def every(spec, kind, planning, keep):
        return options_of(spec, kind, planning)

    first = best_plan(problem(every, {}))
    assert first.value_gflops_milli == best_plan(problem(worthwhile_of, {})).value_gflops_milli
    held = {i: a for i, a in enumerate(first.assignments) if a.layout is not None}
    then = [problem(offers, held) for offers in (every, worthwhile_of)]
    if lost:
        then = [failed(p, "n0") for p in then]
    assert Slot(node="n0", device=0) in {s for t in then[0].tasks for s in t.placement}
    full, few = (best_plan(p) for p in then)
    assert (full.value_gflops_milli, full.relaxed) == (few.value_gflops_milli, few.relaxed)
