"""The prior of T(t, x) against the formulas it quotes."""

from __future__ import annotations

import pytest

from tests.planner.cases import change, layout
from unicron.planner import BadProblem
from unicron.planner.cost import (
    GPTShape,
    model_flops_per_microbatch,
    options_for,
    parameters,
    step_seconds,
)

# GPT-3 as in table 1 of Narayanan et al.: 96 layers, hidden 12288, 96 heads, 174.6 billion.
GPT3 = GPTShape(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200, micro_batch=1)
SMALL = GPTShape(layers=24, hidden=2048, heads=16, sequence=2048, vocabulary=51200, micro_batch=4)


@pytest.mark.parametrize("shape", [GPT3, SMALL])
def test_flops_are_equation_3(shape):
    B, s, l, h, V = (  # noqa: E741
        shape.micro_batch,
        shape.sequence,
        shape.layers,
        shape.hidden,
        shape.vocabulary,
    )
    with_recompute = 96 * B * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h))
    assert model_flops_per_microbatch(shape, recompute=True) == pytest.approx(with_recompute)
    once = 72 * B * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))
    assert model_flops_per_microbatch(shape) == pytest.approx(once)


def test_parameters_are_equation_2():
    l, h, V, s = GPT3.layers, GPT3.hidden, GPT3.vocabulary, GPT3.sequence  # noqa: E741
    formula = 12 * l * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * l * h))
    assert parameters(GPT3) == pytest.approx(formula)
    assert round(parameters(GPT3) / 1e8) == 1746


def test_one_device_achieves_what_it_is_said_to():
    (alone,) = options_for(SMALL, 8, 1, 120_000)
    assert alone.layout == layout(1) and alone.throughput_gflops == 120_000


def test_every_size_up_to_one_micro_batch_each_is_offered():
    sizes = [o.layout.dp for o in options_for(SMALL, 6, 32, 120_000)]
    assert sizes == [1, 2, 3, 4, 5, 6]
    assert [o.layout.dp for o in options_for(SMALL, 64, 32, 1000, tp=2, pp=4)] == [1, 2, 3, 4]
    assert [o.layout.dp for o in options_for(SMALL, 9, 4, 1000, min_devices=3)] == [3, 4]
    assert options_for(SMALL, 8, 3, 1000, tp=4) == ()


def test_uneven_shares_wait_for_the_slowest_replica():
    """7 micro-batches over 4 replicas take as long as 8 would, and less gets done."""
    seven = step_seconds(SMALL, layout(4), 7, 120_000)
    assert seven == step_seconds(SMALL, layout(4), 8, 120_000)
    gflops = {o.layout.dp: o.throughput_gflops for o in options_for(SMALL, 7, 7, 120_000)}
    assert gflops[5] < gflops[4] < gflops[7]


def test_the_gradient_exchange_costs_and_a_faster_link_costs_less():
    slow, fast = (
        options_for(SMALL, 8, 8, 120_000, link_bytes_per_s=link)[-1].throughput_gflops
        for link in (10**9, 10**12)
    )
    assert slow < fast < 8 * 120_000
    exchange = step_seconds(SMALL, layout(2), 2, 120_000) - step_seconds(
        SMALL, layout(1), 1, 120_000
    )
    assert exchange == pytest.approx(parameters(SMALL) * 4 / 20e9)


def test_a_pipeline_has_its_bubble():
    """8 micro-batches through 4 stages take 11 stage times instead of 8."""
    whole = step_seconds(SMALL, layout(1), 8, 120_000)
    split = step_seconds(SMALL, layout(1, pp=4), 8, 120_000)
    assert split == pytest.approx(whole / 4 * 11 / 8)


@pytest.mark.parametrize(
    "field, value",
    [("layers", 0), ("hidden", -1), ("sequence", float("nan")), ("micro_batch", True)],
)
def test_shapes_that_make_no_sense_are_refused(field, value):
    with pytest.raises(BadProblem, match=field):
        options_for(change(SMALL, **{field: value}), 8, 8, 1000)


@pytest.mark.parametrize(
    "arguments", [{"tp": 3}, {"pp": 5}, {"tp": 0}, {"device_gflops": 0}, {"micro_batches": 0}]
)
def test_layouts_that_do_not_divide_the_model_are_refused(arguments):
    with pytest.raises(BadProblem):
        options_for(
            **{"shape": SMALL, "micro_batches": 8, "max_devices": 8, "device_gflops": 1000}
            | arguments
        )


def test_results_are_integers_and_at_least_one():
    tiny = GPTShape(layers=2, hidden=8, heads=2, sequence=8, vocabulary=16, micro_batch=1)
    for option in options_for(tiny, 4, 4, 1):
        assert type(option.throughput_gflops) is int and option.throughput_gflops >= 1
