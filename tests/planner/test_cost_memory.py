"""Memory against the statements of Korthikanti et al., worked examples, and the gradient tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.cases import QUICK, change
from tests.planner.costcases import GATED, GPT3, LLAMA70, cases, ideal
from unicron.events.gradient_tree import Node, Tree, assign
from unicron.planner.cost import Execution, Training, Transformer, memory_needed
from unicron.planner.cost.constants import shipped_constants
from unicron.planner.cost.memory import (
    footprints,
    layer_activations,
    stage_parameters,
    tree_buffers,
)
from unicron.planner.cost.published import rows
from unicron.planner.cost.training import share

GIB = 2**30
TABLE_5 = {
    row.name: row for row in rows() if row.paper == "korthikanti" and row.recompute == "full"
}


def of(name, recompute, *, sequence_parallel):
    row = TABLE_5[name]
    (execution,) = row.executions
    execution = change(execution, recompute=recompute, sequence_parallel=sequence_parallel)
    return row.model, row.training, execution


# Figure 1 as calculon-ai/calculon quotes it (calculon/llm/validation.py, seqsel_fig1).
@pytest.mark.parametrize(
    "name, state, stored, reduced",
    [
        ("22B", 45.5625, 59.25, 9.5625),
        ("175B", 45.5625, 66.84375, 12.3515625),
        ("530B", 31.640625, 114.0234375, 23.076171875),
        ("1T", 32.958984375, 131.25, 26.5625),
    ],
)
def test_figure_1_comes_out(name, state, stored, reduced):
    plain = memory_needed(*of(name, "none", sequence_parallel=False))
    assert plain.activations / GIB == pytest.approx(stored, rel=1e-9)
    saved = memory_needed(*of(name, "selective", sequence_parallel=True))
    assert saved.activations / GIB == pytest.approx(reduced, rel=1e-9)
    # The figure counts 18 bytes for each of 12 l h^2 parameters: no embeddings, biases, norms.
    parameters = plain.weights + plain.gradients + plain.optimizer
    assert 1 < parameters / GIB / state < 1.13


# Figure 7, from the same place: percent of what is kept with tensor
# parallelism alone, read off a chart.
@pytest.mark.parametrize(
    "name, sequence, selective, both, full",
    [
        ("22B", 66.84, 49.42, 16.18, 7.64),
        ("175B", 62.04, 56.53, 18.49, 8.71),
        ("530B", 58.31, 62.04, 20.27, 9.42),
        ("1T", 58.31, 62.04, 20.27, 9.42),
    ],
)
def test_figure_7_comes_out(name, sequence, selective, both, full):
    def percent(recompute, *, parallel):
        model, training, execution = of(name, recompute, sequence_parallel=parallel)
        all_kept = layer_activations(*of(name, "none", sequence_parallel=False))
        return 100 * layer_activations(model, training, execution) / all_kept

    assert percent("none", parallel=True) == pytest.approx(sequence, abs=0.15)
    assert percent("selective", parallel=False) == pytest.approx(selective, abs=0.15)
    assert percent("selective", parallel=True) == pytest.approx(both, abs=0.15)
    assert percent("full", parallel=False) == pytest.approx(full, abs=0.15)


@pytest.mark.parametrize("name", TABLE_5)
def test_80_gb_do_for_the_papers_way_and_not_for_keeping_everything(name):
    """Section 1: without recomputation these models don't fit; with the paper's way they do."""
    assert memory_needed(*of(name, "none", sequence_parallel=False)).total > 80e9
    assert memory_needed(*of(name, "selective", sequence_parallel=True)).total < 80e9
    assert memory_needed(*of(name, "full", sequence_parallel=False)).total < 80e9


def test_every_published_layout_fits_its_device():
    for row in rows():
        for execution in row.executions:
            assert memory_needed(row.model, row.training, execution).total < 80e9


def test_a_device_alone_by_hand():
    """Two layers of width 8 with 2 heads, 4 tokens, 128 words: 12*8*8 + 13*8 = 872 parameters a
    layer, 1024 for the words, 32 for positions, 16 for the norm: 2816 in all. A layer keeps
    34*8 + 5*2*4 = 312 bytes a token. Logits: 4*8 for the inputs and 4*128, each a token."""
    model = Transformer(layers=2, hidden=8, heads=2, sequence=4, vocabulary=100)
    training = Training(global_batch=3, exact=False, fused_attention=False)
    found = memory_needed(model, training, Execution(), ideal(fixed_memory_bytes=1000.0))
    assert (found.weights, found.gradients, found.optimizer) == (5632, 11264, 33792)
    assert found.activations == 2 * 4 * 312
    assert found.logits == 4 * (4 * 8 + 4 * 128)
    assert (found.tree, found.fixed) == (0, 1000)
    assert found.total == 5632 + 11264 + 33792 + 2496 + 2176 + 1000


def test_a_gated_grouped_layer_by_hand():
    """h 8, keys and values of 4, MLP of 12: a token keeps 10*8 + 4*8 + 4*4 + 6*12 = 200 bytes, with
    tp 2 the first 80 and half of the rest, with sequence parallelism half of all."""
    training = Training(global_batch=1)
    assert layer_activations(GATED, training, Execution()) == 4 * 200
    assert layer_activations(GATED, training, Execution(tp=2)) == 4 * (80 + 60)
    both = Execution(tp=2, sequence_parallel=True)
    assert layer_activations(GATED, training, both) == 4 * 100
    assert layer_activations(GATED, training, change(both, recompute="full")) == 4 * 8
    full = memory_needed(GATED, training, Execution(recompute="full"))
    assert full.activations == 4 * 2 * 8 + 4 * 200


def test_the_exact_sum_by_hand():
    """8 micro-batches, one replica: 8, 4+4, ... partial sums of at most 1 + log2(8) = 4 sizes. Two
    replicas with 4 each: 3, one set aside, one root received. Three with 3, 3, 2: 2, 1, 2 roots."""
    training = Training(global_batch=8)
    assert tree_buffers(training, Execution()) == 4
    assert tree_buffers(training, Execution(dp=2)) == 3 + 1 + 1
    assert tree_buffers(training, Execution(dp=3)) == 2 + 1 + 2
    assert tree_buffers(Training(global_batch=1), Execution()) == 0
    assert tree_buffers(change(training, exact=False), Execution(dp=2)) == 0
    needed = memory_needed(LLAMA70, training, Execution(tp=8, pp=8, dp=2))
    assert needed.tree == 5 * needed.gradients


def held_at_most(total, replicas):
    tree, most, roots = Tree(total), 0, 0
    for leaves in assign(total, replicas):
        held: set[Node] = set()
        for leaf in leaves:
            tree.fold(held, Node(0, leaf))
            most = max(most, len(held))
        roots = max(roots, len(held))
    return most, roots


def test_the_exact_sums_buffers_are_what_the_tree_really_holds():
    """Of all assignments of up to 64 micro-batches, two hold one buffer more than counted: shares
    that lie badly in the tree."""
    beyond = []
    for total in range(2, 65):
        for replicas in range(2, total + 1):
            held, roots = held_at_most(total, replicas)
            counted = tree_buffers(Training(global_batch=total), Execution(dp=replicas))
            if held + roots > counted:
                beyond.append((total, replicas, held + roots - counted))
    assert [(total, replicas) for total, replicas, _ in beyond] == [(50, 2), (51, 2)]
    assert all(more <= 2 for *_, more in beyond)


def test_an_interleaved_pipeline_keeps_more_at_its_start():
    """Korthikanti 4.2.3: 1 + (p - 1)/(p v) as much."""
    training = Training(global_batch=64, exact=False, fused_attention=False)
    execution = Execution(tp=8, pp=8, virtual=1)
    plain = memory_needed(GPT3, training, execution).activations
    interleaved = memory_needed(GPT3, training, change(execution, virtual=3)).activations
    assert interleaved / plain == pytest.approx(1 + 7 / 24)


def test_few_micro_batches_fill_a_pipeline_less():
    execution = Execution(tp=8, pp=8)
    full = memory_needed(GPT3, Training(global_batch=64, exact=False), execution)
    few = memory_needed(GPT3, Training(global_batch=2, exact=False), execution)
    assert few.activations * 4 == full.activations


def test_parameters_of_all_stages_are_those_of_the_model():
    """Two stages hold the model and, behind a pipeline, a second copy of a tied embedding."""
    words = 51200 * GPT3.hidden
    whole = stage_parameters(GPT3, Execution(), last=True)
    first, last = (stage_parameters(GPT3, Execution(pp=2), last=end) for end in (False, True))
    assert first + last == whole + words


@QUICK
@given(cases())
def test_memory_is_whole_and_adds_up(case):
    found = memory_needed(*case)
    parts = [getattr(found, field) for field in found.__struct_fields__]
    assert all(type(part) is int and part >= 0 for part in parts)
    assert found.total == sum(parts)
    model, training, execution = case
    shards = execution.dp if execution.distributed_optimizer else 1
    buffers, most = tree_buffers(training, execution), share(training, execution)
    stages = footprints(model, training, execution, shipped_constants())
    assert found.total == max(stage.total(most, buffers, shards) for stage in stages)
    assert len(stages) == (1 if execution.pp == 1 else 2)


@QUICK
@given(cases(), st.integers(2, 4))
def test_what_saves_memory_never_needs_more(case, factor):
    model, training, execution = case
    training = change(training, exact=False)
    total = memory_needed(model, training, execution).total

    def needs(**fields):
        return memory_needed(model, training, change(execution, **fields)).total

    assert needs(distributed_optimizer=True) <= needs(distributed_optimizer=False)
    if model.sequence % execution.tp == 0:
        assert needs(sequence_parallel=True) <= needs(sequence_parallel=False)
    assert needs(recompute="selective") <= needs(recompute="none")
    larger = change(training, global_batch=training.global_batch * factor)
    wider = change(execution, micro_batch=execution.micro_batch * factor)
    assert memory_needed(model, larger, wider).total >= total
    exact = memory_needed(model, change(training, exact=True), execution).total
    assert exact >= total
    if execution.tp < 8:
        assert needs(tp=2 * execution.tp) <= total
