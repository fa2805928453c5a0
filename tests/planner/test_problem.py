"""Problems: their digest, and what is refused with whose name on it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from tests.planner.cases import (
    QUICK,
    change,
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
from unicron.planner import BadProblem, PlanProblem, TenantQuota, digest, encode, validate

GOOD = problem(
    [node("n0", 4), node("n1", 4)],
    [
        running("a", linear(6), slots("n0/0-3")),
        task("b", linear(3), transition_ms=500),
    ],
)


def test_a_good_problem_is_accepted():
    validate(GOOD)
    validate(problem([], []))


@pytest.mark.parametrize(
    "case",
    [
        (change(GOOD, computed_at=-1), "computed_at"),
        (change(GOOD, computed_at=True), "computed_at"),
        (change(GOOD, expected_run_ms=0), "expected_run_ms"),
        (change(GOOD, expected_run_ms=float("nan")), "expected_run_ms"),
        (change(GOOD, nodes=list(GOOD.nodes)), "nodes"),
        (change(GOOD, nodes=(*GOOD.nodes, node("n0", 1))), "nodes"),
        (change(GOOD, nodes=(node("", 1),)), "nodes[0].node"),
        (change(GOOD, nodes=(change(node("x", 1), devices=(0, 0)),)), "nodes[0].devices"),
        (change(GOOD, nodes=(change(node("x", 1), devices=(-1,)),)), "nodes[0].devices[0]"),
        (change(GOOD, tasks=(GOOD.tasks[1], GOOD.tasks[1])), "tasks"),
        (with_task(GOOD, "b", task=""), "tasks[1].task"),
        (with_task(GOOD, "b", weight_milli=0), "tasks[1].weight_milli"),
        (with_task(GOOD, "b", weight_milli=-1000), "tasks[1].weight_milli"),
        (with_task(GOOD, "b", weight_milli=1.5), "tasks[1].weight_milli"),
        (with_task(GOOD, "b", weight_milli=float("nan")), "tasks[1].weight_milli"),
        (with_task(GOOD, "b", min_devices=4), "tasks[1].min_devices"),
        (with_task(GOOD, "b", min_devices=-1), "tasks[1].min_devices"),
        (with_task(GOOD, "b", min_devices=2), "tasks[1].options[0].layout"),
        (with_task(GOOD, "b", max_devices=2), "tasks[1].options[2].layout"),
        (with_task(GOOD, "b", max_devices=0), "tasks[1].max_devices"),
        (with_task(GOOD, "b", transition_ms=-1), "tasks[1].transition_ms"),
        (with_task(GOOD, "b", priority="high"), "tasks[1].priority"),
        (with_task(GOOD, "b", hit=1), "tasks[1].hit"),
        (with_task(GOOD, "b", options=linear(2) + linear(1)), "tasks[1].options"),
        (with_task(GOOD, "b", options=linear(2, gflops=0)), "tasks[1].options[0]"),
        (with_task(GOOD, "b", options=linear(2, gflops=-5)), "tasks[1].options[0]"),
        (with_task(GOOD, "a", placement=slots("n0/0-2")), "tasks[0].placement"),
        (with_task(GOOD, "a", current=None), "tasks[0].placement"),
        (with_task(GOOD, "b", placement=slots("n1/0")), "tasks[1].placement"),
        (
            with_task(GOOD, "b", current=layout(1), placement=slots("n0/3")),
            "tasks[1].placement[0]",
        ),
        (with_task(GOOD, "b", current=layout(0)), "tasks[1].current.dp"),
        (with_task(GOOD, "b", options=linear(1, tp=2)), None),
        (
            change(
                with_task(GOOD, "b", options=linear(1, tp=2)),
                tasks=(
                    task("b", linear(1, tp=2)),
                    task("c", linear(1, tp=3)),
                ),
            ),
            "tasks.options.layout.tp",
        ),
        (with_task(GOOD, "b", weight_milli=2**52), "tasks[1].weight_milli"),
        (
            change(with_task(GOOD, "a", transition_ms=2**50), expected_run_ms=1),
            "tasks[0].weight_milli",
        ),
    ],
    ids=lambda case: str(case[1]),
)
def test_nonsense_is_refused_by_name(case):
    bad, field = case
    if field is None:
        validate(bad)
        return
    with pytest.raises(BadProblem) as caught:
        validate(bad)
    assert caught.value.field.startswith(field)
    assert caught.value.reason and caught.value.fix
    assert str(caught.value).startswith(field)


NAN = float("nan")
QUOTA = TenantQuota(tenant="x", max_devices=4)


@pytest.mark.parametrize(
    "case",
    [
        (change(GOOD, node_mtbf_ms=-1), "node_mtbf_ms"),
        (change(GOOD, repair_ms=NAN), "repair_ms"),
        (change(GOOD, link_bytes_per_s=-1), "link_bytes_per_s"),
        (change(GOOD, nodes=(change(node("n0", 1), draining=1),)), "nodes[0].draining"),
        (change(GOOD, nodes=(change(node("n0", 1), rack=None),)), "nodes[0].rack"),
        (
            change(
                GOOD,
                nodes=(
                    change(node("n0", 1), rack="r", segment="s"),
                    change(node("n1", 1), rack="r", segment="t"),
                ),
            ),
            "nodes[1].segment",
        ),
        (with_task(GOOD, "b", min_gflops=NAN), "tasks[1].min_gflops"),
        (with_task(GOOD, "b", min_gflops=-1), "tasks[1].min_gflops"),
        (with_task(GOOD, "b", state_bytes=0.5), "tasks[1].state_bytes"),
        (with_task(GOOD, "b", tenant=None), "tasks[1].tenant"),
        (with_task(GOOD, "b", avoid=("n0", "n0")), "tasks[1].avoid"),
        (with_task(GOOD, "b", avoid=["n0"]), "tasks[1].avoid"),
        (with_task(GOOD, "b", current_kind="gpu"), "tasks[1].current_kind"),
        (
            with_task(GOOD, "b", options=(change(linear(1)[0], kind="gpu"), linear(2)[1])),
            "tasks[1].options",
        ),
        (change(GOOD, quotas=(QUOTA, QUOTA)), "quotas"),
        (change(GOOD, quotas=(change(QUOTA, tenant=""),)), "quotas[0].tenant"),
        (change(GOOD, quotas=(change(QUOTA, max_devices=-1),)), "quotas[0].max_devices"),
        (
            change(with_task(GOOD, "b", tenant="x"), quotas=(change(QUOTA, kind="gpu"),)),
            "tasks[1].options",
        ),
        # One holder left to send 2**52 bytes to five others, a byte a second.
        (
            change(with_task(GOOD, "a", state_bytes=2**52), link_bytes_per_s=1, expected_run_ms=1),
            "tasks[0].weight_milli",
        ),
    ],
    ids=lambda case: str(case[1]),
)
def test_nonsense_in_what_is_optional_is_refused_by_name_too(case):
    test_nonsense_is_refused_by_name(case)


def test_the_digest_is_of_the_canonical_bytes():
    same = msgspec.json.decode(encode(GOOD), type=PlanProblem)
    assert same == GOOD and digest(same) == digest(GOOD)
    # A change of this value is a change of the wire format: old plans no longer match.
    assert digest(GOOD) == "e2ca519c7879a711ddaa9ff8c681736605025cd63a063d0ca4bbbbf2f5541b02"


@QUICK
@given(problems((1, 2, 4)))
def test_the_digest_survives_the_wire(random_problem):
    again = msgspec.json.decode(encode(random_problem), type=PlanProblem)
    assert again == random_problem and digest(again) == digest(random_problem)
    assert digest(change(again, computed_at=again.computed_at + 1)) != digest(again)
