"""What a change costs, worked out by hand: F(t, x) * D_transition / D_running."""

from __future__ import annotations

import pytest

from tests.planner.cases import change, layout, linear, node, problem, running, slots, with_task
from unicron.planner import Assignment, LayoutOption, PlanProblem, Slot, TaskDemand
from unicron.planner.pricing import evaluate, ground, price, receivers, standing, transition_ms

# Weight 2, 400 GFLOP/s on 4 devices; 30 s of change-over and 10 GB a rank at 4 GB/s: 2.5 s each.
TASK = running(
    "a",
    (*linear(8), *linear(4, tp=2, gflops=90)),
    slots("n0/0-1", "n1/0-1"),
    weight_milli=2000,
    transition_ms=30_000,
    state_bytes=10_000_000_000,
    max_devices=8,
)
BASE = change(
    problem([node("n0", 4), node("n1", 4)], [TASK], expected_run_ms=1_000_000),
    link_bytes_per_s=4_000_000_000,
)
LOST = 2000 * 400


def cost(base: PlanProblem, new, held: tuple[Slot, ...], kind: str = "") -> int:
    return price(base, base.tasks[0], Assignment(task="a", layout=new, kind=kind, slots=held))


def seconds(milliseconds: int) -> int:
    """The price of a change-over that takes so long."""
    return LOST * milliseconds // 1_000_000


def test_who_keeps_what_it_has_pays_nothing_and_who_is_hit_pays_for_the_restart():
    assert cost(BASE, layout(4), TASK.placement) == 0
    hit = with_task(BASE, "a", hit=True)
    assert cost(hit, layout(4), TASK.placement) == seconds(30_000) == 24_000


@pytest.mark.parametrize(
    "devices, rounds",
    [(1, 0), (3, 0), (5, 1), (8, 1)],
    ids=["shrinks to one", "shrinks", "grows by one", "doubles: each sends to one"],
)
def test_new_devices_are_served_by_those_that_are_there(devices, rounds):
    held = slots("n0/0-3", "n1/0-3")[:devices]
    assert cost(BASE, layout(devices), held) == seconds(30_000 + rounds * 2500)


def test_one_survivor_sends_to_one_new_device_after_the_other():
    """n1 is gone, and a device of n0: one holder is left for three receivers."""
    alone = change(BASE, nodes=(change(node("n0", 1), devices=(1,)), node("n2", 4)))
    assert cost(alone, layout(4), slots("n0/1", "n2/0-2")) == seconds(30_000 + 3 * 2500)
    assert cost(alone, layout(1), slots("n0/1")) == seconds(30_000)


def test_without_survivors_all_read_from_storage_at_once():
    gone = change(BASE, nodes=(node("n2", 8),))
    assert cost(gone, layout(8), slots("n2/0-7")) == seconds(30_000 + 2500)


def test_another_tensor_parallel_size_is_sent_to_everybody():
    """4 senders, 4 receivers: one round; 8 receivers: two."""
    assert cost(BASE, layout(2, tp=2), slots("n0/0-3")) == seconds(30_000 + 2500)
    assert cost(BASE, layout(4, tp=2), slots("n0/0-3", "n1/0-3")) == seconds(30_000 + 5000)


def test_parking_moves_no_state():
    assert cost(BASE, None, ()) == seconds(30_000)


def test_the_same_layout_elsewhere_moves_one_device_at_least():
    assert cost(BASE, layout(4), slots("n0/0-3")) == seconds(30_000 + 2500)


def test_workers_on_a_draining_node_send_but_are_not_kept():
    """Four holders, two of whom have to leave: two receivers, served at once."""
    drained = change(BASE, nodes=(node("n0", 4), change(node("n1", 4), draining=True)))
    assert cost(drained, layout(4), slots("n0/0-3")) == seconds(30_000 + 2500)
    assert cost(drained, layout(2), slots("n0/0-1")) == seconds(30_000)
    now = standing(TASK, ground(drained))
    assert (now.alive, now.keeps(""), now.intact, now.settled) == (4, 2, True, False)


def test_devices_on_a_node_to_be_avoided_are_not_kept():
    picky = with_task(BASE, "a", avoid=("n1", "elsewhere"))
    assert cost(picky, layout(4), slots("n0/0-3")) == seconds(30_000 + 2500)
    now = standing(picky.tasks[0], ground(picky))
    assert (now.alive, now.keeps(""), now.intact) == (4, 2, False)


def test_another_kind_of_device_is_sent_to_everybody():
    options = tuple(
        LayoutOption(layout=layout(n), throughput_gflops=100 * n, kind=kind)
        for n in range(1, 9)
        for kind in ("old", "new")
    )
    base = change(
        with_task(BASE, "a", options=options, current_kind="old"),
        nodes=(node("n0", 4, "old"), node("n1", 4, "old"), node("n2", 8, "new")),
    )
    # 4 senders: 8 receivers of the new kind, or 4 more of the old one.
    assert cost(base, layout(8), slots("n2/0-7"), "new") == seconds(30_000 + 5000)
    assert cost(base, layout(8), slots("n0/0-3", "n1/0-3"), "old") == seconds(30_000 + 2500)
    # Even with as many devices it isn't what it was.
    assert cost(base, layout(4), slots("n2/0-3"), "new") == seconds(30_000 + 2500)


def test_milliseconds_are_rounded_up_and_prices_down():
    """7 bytes at 3 a second: 2333.3 ms."""
    odd = change(with_task(BASE, "a", state_bytes=7), link_bytes_per_s=3, expected_run_ms=999_983)
    task = odd.tasks[0]
    now = standing(task, ground(odd))
    assert receivers(task, now, layout(5), "") == 1
    assert transition_ms(odd, task, now, 1) == 30_000 + 2334
    assert cost(odd, layout(5), slots("n0/0-3", "n1/0")) == LOST * 32_334 // 999_983
    free = change(odd, link_bytes_per_s=0)
    assert transition_ms(free, task, now, 8) == 30_000


def test_a_value_is_the_sum_over_tasks_of_throughput_less_price():
    other = TaskDemand(task="b", weight_milli=500, min_devices=0, max_devices=8, options=linear(8))
    base = change(BASE, tasks=(TASK, other))
    given = [
        Assignment(task="a", layout=layout(2), slots=slots("n0/0-1")),
        Assignment(task="b", layout=layout(4), slots=slots("n1/0-3")),
    ]
    waf = 2000 * 200 + 500 * 400
    assert evaluate(base, given) == (waf - seconds(30_000), waf)
