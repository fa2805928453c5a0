"""Parameters and operations of a model, against published counts and the equations quoted."""

from __future__ import annotations

import pytest

from tests.planner.cases import change
from tests.planner.costcases import GATED, GPT3, GPT7, LLAMA70, llama
from unicron.planner import BadProblem
from unicron.planner.cost import Transformer, flops_per_sample, parameter_count
from unicron.planner.cost.model import check_model, padded_vocabulary
from unicron.planner.cost.published import rows


@pytest.mark.parametrize("row", [r for r in rows() if r.billions], ids=lambda r: f"{r.billions}B")
def test_published_counts_come_out_to_the_printed_digit(row):
    assert round(parameter_count(row.model) / 1e9, 1) == row.billions


@pytest.mark.parametrize(
    "model, count",
    [
        (llama(32, 4096, 32, 0, 11008, 32000), 6_738_415_616),
        (llama(40, 5120, 40, 0, 13824, 32000), 13_015_864_320),
        (LLAMA70, 68_976_648_192),
        (llama(32, 4096, 32, 8, 14336, 128256, 8192), 8_030_261_248),
        (
            Transformer(layers=48, hidden=1600, heads=25, sequence=1024, vocabulary=50257),
            1_557_611_200,
        ),
    ],
    ids=["Llama-2 7B", "Llama-2 13B", "Llama-2 70B", "Llama-3 8B", "GPT-2 XL"],
)
def test_released_models_have_exactly_their_parameters(model, count):
    assert parameter_count(model) == count


@pytest.mark.parametrize("model", [GPT3, GPT7])
def test_a_plain_model_follows_equations_2_and_3(model):
    l, h, s, V = model.layers, model.hidden, model.sequence, model.vocabulary  # noqa: E741
    final_norm = 2 * h
    equation_2 = 12 * l * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * l * h))
    assert parameter_count(model) - final_norm == pytest.approx(equation_2, rel=1e-12)
    equation_3 = 96 * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h))
    assert flops_per_sample(model, recompute=True) == pytest.approx(equation_3, rel=1e-12)
    once = 72 * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))
    assert flops_per_sample(model) == pytest.approx(once, rel=1e-12)


def test_operations_of_a_gated_grouped_layer_by_hand():
    """h 8, 4 heads in 2 groups (keys of width 4), MLP of width 12 with a gate, 4 tokens, 10 words:
    a token's matrices hold 8*8 + 2*8*4 + 8*8 + 2*8*12 + 12*8 = 480 weights, two operations each."""
    model = change(GATED, vocabulary=10)
    layer = 2 * 480 + 4 * 4 * 8
    assert flops_per_sample(model) == 4 * (3 * layer + 3 * 2 * 8 * 10)


def test_the_vocabulary_is_padded_as_megatron_does():
    assert padded_vocabulary(change(GPT3, vocabulary=50257)) == 50304
    assert padded_vocabulary(change(GPT3, vocabulary=50257), 8) == 51200
    assert padded_vocabulary(GPT3, 8) == 51200


@pytest.mark.parametrize(
    "field, value, fix",
    [
        ("layers", 0, "positive"),
        ("hidden", -4, "positive"),
        ("sequence", float("nan"), "positive"),
        ("vocabulary", 1.5, "positive"),
        ("heads", True, "positive"),
        ("heads", 7, "divisor"),
        ("query_groups", 5, "divisor"),
        ("query_groups", -1, "0 or more"),
        ("ffn_hidden", float("inf"), "0 or more"),
        ("swiglu", 1, "true or false"),
    ],
)
def test_models_that_make_no_sense_are_refused(field, value, fix):
    with pytest.raises(BadProblem, match=fix) as caught:
        check_model(change(GPT7, **{field: value}))
    assert caught.value.field == field
