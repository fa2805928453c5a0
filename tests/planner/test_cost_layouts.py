"""The best layout of each size, against trying all of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.cases import QUICK, change
from tests.planner.costcases import GPT3, GPT7, LLAMA70
from unicron.planner import BadProblem, Layout
from unicron.planner.cost import (
    Choices,
    Execution,
    Training,
    Transformer,
    accelerator,
    best_layout,
    layout_table,
    layouts,
    memory_needed,
    options,
    pareto,
    step_time,
)
from unicron.planner.cost.layouts import assess

A100 = accelerator("a100")
H100 = accelerator("h100")
SMALL = Transformer(layers=24, hidden=2048, heads=16, sequence=2048, vocabulary=50257)
FEW = Choices(tp=(1, 2, 4), virtual=(1, 2), micro_batches=(1, 2))


def all_ways(model, training, choices, devices):
    for tp, pp, virtual, size, recompute, sharded in itertools.product(
        choices.tp,
        range(1, model.layers + 1),
        choices.virtual,
        choices.micro_batches,
        ("none", "selective", "full"),
        (False, True),
    ):
        if devices % (tp * pp) == 0:
            yield Execution(
                tp=tp,
                pp=pp,
                dp=devices // (tp * pp),
                virtual=virtual,
                micro_batch=size,
                recompute=recompute,
                sequence_parallel=tp > 1,
                distributed_optimizer=sharded,
            )


def tried(model, training, device, choices, devices):
    """Microseconds of the fastest way that is legal and fits, by trying all."""
    best = None
    for execution in all_ways(model, training, choices, devices):
        try:
            needed = memory_needed(model, training, execution)
            seconds = step_time(model, training, execution, device).total
        except BadProblem:
            continue
        if needed.total <= device.memory_bytes:
            best = min(best or seconds, seconds)
    return None if best is None else round(best * 1e6)


@pytest.mark.parametrize("memory_gb", [8, 16, 40])
@pytest.mark.parametrize(
    "training",
    [
        Training(global_batch=24),
        Training(global_batch=24, exact=False, fused_attention=False),
        Training(global_batch=20, exact=False, overlap=True),
    ],
)
def test_the_table_is_what_trying_all_layouts_finds(training, memory_gb):
    device = change(A100, memory_bytes=memory_gb * 10**9)
    table = {each.devices: each.step_us for each in layout_table(SMALL, training, device, 26, FEW)}
    expected = {devices: tried(SMALL, training, device, FEW, devices) for devices in range(1, 27)}
    assert table == {n: step for n, step in expected.items() if step is not None}
    assert table


def test_each_entry_is_what_the_model_says_of_it_and_fits():
    training = Training(global_batch=512, exact=False)
    table = layout_table(LLAMA70, training, A100, 256)
    assert [each.devices for each in table] == sorted({each.devices for each in table})
    for each in table:
        assert each == assess(LLAMA70, training, A100, each.execution)
        needed = memory_needed(LLAMA70, training, each.execution)
        assert each.memory_bytes == needed.total <= A100.memory_bytes
        assert each.state_bytes == needed.weights + needed.optimizer
        assert each == best_layout(LLAMA70, training, A100, each.devices)


def test_nearly_every_size_is_possible_for_a_model_that_fits_a_device():
    table = layout_table(GPT7, Training(global_batch=512, exact=False), A100, 512)
    assert [each.devices for each in table] == list(range(2, 513))
    with_tree = layout_table(SMALL, Training(global_batch=512), A100, 512)
    assert [each.devices for each in with_tree] == list(range(1, 513))


def test_a_model_too_large_for_the_devices_has_no_layout():
    assert layout_table(GPT3, Training(global_batch=64), A100, 16) == ()
    assert best_layout(GPT3, Training(global_batch=64), A100, 16) is None
    assert best_layout(GPT3, Training(global_batch=64), A100, 97) is None


def test_no_more_replicas_than_micro_batches():
    table = layout_table(SMALL, Training(global_batch=4), H100, 64, Choices(pp=(1,), tp=(1,)))
    assert [each.devices for each in table] == [1, 2, 3, 4]


def test_the_gradient_tree_asks_for_more_devices():
    exact = layout_table(GPT3, Training(global_batch=1024), A100, 1024)
    stock = layout_table(GPT3, Training(global_batch=1024, exact=False), A100, 1024)
    assert exact[0].devices > stock[0].devices
    by_size = {each.devices: each for each in stock}
    assert all(by_size[each.devices].step_us <= each.step_us for each in exact)


def test_a_fixed_micro_batch_and_tensor_size_stay_fixed():
    choices = Choices(tp=(4,), micro_batches=(2,), pp=(1, 2))
    for each in layout_table(GPT7, Training(global_batch=128), A100, 64, choices):
        assert (each.execution.tp, each.execution.micro_batch) == (4, 2)
        assert each.execution.pp in {1, 2}


def test_pareto_keeps_what_no_smaller_size_beats():
    table = layout_table(LLAMA70, Training(global_batch=1024, exact=False), A100, 512)
    kept = pareto(table)
    assert kept[0] == table[0]
    assert set(kept) < set(table)
    for smaller, larger in itertools.pairwise(kept):
        assert smaller.devices < larger.devices
        assert smaller.throughput_gflops < larger.throughput_gflops
    for each in set(table) - set(kept):
        assert any(
            other.devices <= each.devices and other.throughput_gflops >= each.throughput_gflops
            for other in kept
        )


def test_options_are_the_planners_and_one_a_layout():
    training = Training(global_batch=64)
    table = layout_table(SMALL, training, A100, 16)
    slower = assess(SMALL, training, A100, change(table[0].execution, recompute="full"))
    found = options((slower, *reversed(table)), "gpu")
    assert [each.layout.devices for each in found] == [each.devices for each in table]
    assert found[0].layout == Layout(tp=1, pp=1, dp=1)
    assert found[0].throughput_gflops == table[0].throughput_gflops > slower.throughput_gflops
    assert {each.kind for each in found} == {"gpu"}
    assert {each.kind for each in options(table)} == {""}


@QUICK
@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([A100, H100]))
def test_more_memory_never_slows_a_size_down(devices, batch, device):
    training = Training(global_batch=batch)
    found = best_layout(SMALL, training, device, devices, FEW)
    roomy = change(device, memory_bytes=2 * device.memory_bytes)
    better = best_layout(SMALL, training, roomy, devices, FEW)
    assert found is None or (better is not None and better.step_us <= found.step_us)


@pytest.mark.parametrize(
    "model, limit", [(GPT7, 512), (GPT3, 512), (LLAMA70, 512), (GPT3, 16384), (LLAMA70, 16384)]
)
def test_few_layouts_are_looked_at(model, limit, monkeypatch):
    """What takes long is counted, not timed: memory of ways that were fast enough to matter."""
    looked = []
    whole = layouts.tree_buffers
    monkeypatch.setattr(layouts, "tree_buffers", lambda *given: looked.append(1) or whole(*given))
    table = layout_table(model, Training(global_batch=1024, exact=False), A100, limit)
    assert len(table) < len(looked) < 15 * len(table) + 2000


@pytest.mark.parametrize(
    "choices, field",
    [
        (Choices(tp=()), "tp"),
        (Choices(tp=(2, 3)), "tp"),
        (Choices(tp=(0,)), r"tp\[0\]"),
        (Choices(pp=(1, -1)), r"pp\[1\]"),
        (Choices(virtual=(True,)), r"virtual\[0\]"),
        (Choices(micro_batches=(3,)), "micro_batches"),
        (Choices(recompute=()), "choices"),
        (Choices(recompute=("most",)), "recompute"),
        (Choices(distributed_optimizer=()), "choices"),
    ],
)
def test_choices_that_leave_nothing_are_refused(choices, field):
    with pytest.raises(BadProblem, match=f"^{field}"):
        layout_table(SMALL, Training(global_batch=64), A100, 16, choices)


@pytest.mark.parametrize(
    "most, least, field",
    [
        (0, 1, "max_devices"),
        (2.5, 1, "max_devices"),
        (2_000_000, 1, "max_devices"),
        (8, 0, "min_devices"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(most, least, field):
    with pytest.raises(BadProblem, match=field):
        layout_table(SMALL, Training(global_batch=64), A100, most, min_devices=least)


def test_a_model_or_a_batch_that_makes_no_sense_is_refused():
    with pytest.raises(BadProblem, match="hidden"):
        layout_table(change(SMALL, hidden=float("nan")), Training(global_batch=64), A100, 8)
    with pytest.raises(BadProblem, match="global_batch"):
        layout_table(SMALL, Training(global_batch=-8), A100, 8)
