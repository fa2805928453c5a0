"""Step times worked out by hand, and what must never make a step slower or faster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.cases import QUICK, change
from tests.planner.costcases import FIGURES, GPT7, LLAMA70, cases, device, ideal
from unicron.events.gradient_tree import Tree, assign
from unicron.planner import BadProblem
from unicron.planner.cost import (
    Execution,
    Training,
    Transformer,
    accelerator,
    flops_per_sample,
    step_time,
)
from unicron.planner.cost.memory import stage_parameters
from unicron.planner.cost.steptime import exchange_time, mean_roots, stage_time

STOCK = Training(global_batch=8, exact=False, fused_attention=False)
# More devices in a node may put members of a ring on fewer cards each; that isn't better or worse.
RATES = sorted(set(FIGURES) - {"node_devices"})
TINY = Transformer(layers=1, hidden=8, heads=2, sequence=4, vocabulary=128)
WORK = flops_per_sample(GPT7)


def seconds(execution, training=STOCK, model=GPT7, known=None, **figures):
    return step_time(model, training, execution, device(**figures), known or ideal())


def test_one_device_takes_its_operations_over_its_rate():
    found = seconds(Execution())
    assert found.total == pytest.approx(8 * WORK / 1e12)
    assert (found.bubble, found.exchange) == (0, 0)
    full = seconds(Execution(recompute="full"))
    assert full.total == pytest.approx(8 * flops_per_sample(GPT7, recompute=True) / 1e12)


def test_selective_recomputation_repeats_the_scores_alone():
    scores = 4 * GPT7.sequence * GPT7.hidden * GPT7.sequence * GPT7.layers
    more = seconds(Execution(recompute="selective")).total - seconds(Execution()).total
    assert more == pytest.approx(8 * scores / 1e12)


def test_fused_attention_needs_half_the_scores():
    scores = 4 * GPT7.sequence * GPT7.hidden * GPT7.sequence * GPT7.layers
    fused = seconds(Execution(), change(STOCK, fused_attention=True)).total
    assert seconds(Execution()).total - fused == pytest.approx(8 * 3 * scores / 2 / 1e12)


def test_small_products_reach_less():
    """With half the rate at dimension 2048: the tokens, 2048, are the smallest one everywhere."""
    assert seconds(Execution(), known=ideal(gemm_half=2048.0)).total == pytest.approx(
        2 * 8 * WORK / 1e12
    )


@pytest.mark.parametrize(
    "model, execution, layer",
    [
        (TINY, Execution(), 22 * 8 + 4 * 8 + 4 * 8 + 4 * 32),
        (TINY, Execution(tp=2), 22 * 8 + (4 * 8 + 4 * 8 + 4 * 32) / 2),
        (TINY, Execution(tp=2, sequence_parallel=True), (22 * 8 + 4 * 8 + 4 * 8 + 4 * 32) / 2),
        (change(TINY, swiglu=True, ffn_hidden=12), Execution(), 22 * 8 + 8 * 8 + 6 * 12),
        (change(TINY, query_groups=1), Execution(), 22 * 8 + 4 * 8 + 4 * 4 + 4 * 32),
    ],
)
def test_element_wise_kernels_are_bound_by_memory(model, execution, layer):
    """Operations and links take no time. 4 tokens, 2 heads, 128 words: a layer's bytes and 11 for
    each of its scores, once forward and twice backward; nine times the fp32 logits."""
    fast = dict.fromkeys(("peak_gflops", "achievable_gflops"), 10**18)
    links = dict.fromkeys(("intra_bytes_per_s", "inter_bytes_per_s"), 10**30)
    found = seconds(
        execution,
        change(STOCK, global_batch=1),
        model,
        hbm_bytes_per_s=10**9,
        **fast,
        **links,
    )
    scores, logits = 4 * 4 * 2, 4 * 128
    if execution.tp == 2:
        logits = 4 * 256  # the vocabulary is padded to 256
    expected = 3 * (4 * layer + 11 * scores / execution.tp) + 9 * 4 * logits / execution.tp
    assert found.micro_batches == pytest.approx(expected / 1e9)


def test_a_pipeline_has_its_bubble_and_chunks_make_it_smaller():
    """4 stages, 8 micro-batches: the fill and drain take 3 stage times without the output layer;
    with 2 chunks half of it. Links are as good as infinite."""
    fast = {"intra_bytes_per_s": 10**30, "inter_bytes_per_s": 10**30}
    layers = WORK - 6 * GPT7.sequence * GPT7.hidden * GPT7.vocabulary
    plain = seconds(Execution(pp=4), **fast)
    assert plain.bubble == pytest.approx(3 * layers / 4 / 1e12)
    assert plain.micro_batches == pytest.approx(8 * (WORK - layers + layers / 4) / 1e12)
    assert seconds(Execution(pp=4, virtual=2), **fast).bubble == pytest.approx(plain.bubble / 2)


def test_tensor_parallelism_sends_two_all_reduces_a_pass():
    """Forward and backward, 2 (t - 1)/t of an activation of 2 bytes each: at t = 4, 1 TB/s and 32
    layers 4 * 1.5 * 2 b s h bytes a layer and micro-batch."""
    activation = 2 * GPT7.sequence * GPT7.hidden
    expected = 8 * (WORK / 4 / 1e12 + 32 * 4 * 1.5 * activation / 1e12)
    assert seconds(Execution(tp=4)).total == pytest.approx(expected)
    with_sequence = Execution(tp=4, sequence_parallel=True)
    assert seconds(with_sequence).total == pytest.approx(expected)


def test_stages_send_their_activation_to_each_other():
    """2 stages of 1 device each in one node: 2 b s h bytes there and back at 1 TB/s."""
    stage = stage_time(GPT7, STOCK, Execution(pp=2), device(), ideal())
    assert stage.transfer == pytest.approx(2 * 2 * GPT7.sequence * GPT7.hidden / 1e12)
    apart = stage_time(GPT7, STOCK, Execution(pp=2, tp=8), device(), ideal())
    assert apart.transfer == pytest.approx(2 * 2 * GPT7.sequence * GPT7.hidden / 8 / 1e11)


def exchange(execution, training, backward=0.0, **figures):
    return exchange_time(training, execution, device(**figures), ideal(), 10**9, backward)


def test_replicas_exchange_their_gradients_by_hand():
    """10^9 parameters in fp32, 2 (d - 1)/d of them: inside a node at 1 TB/s; 16 replicas share the
    8 cards of each node, 800 GB/s; with tp 8 each ring has one card, 100 GB/s."""
    assert exchange(Execution(dp=4), STOCK) == pytest.approx(2 * 0.75 * 4e9 / 1e12)
    assert exchange(Execution(dp=16), STOCK) == pytest.approx(2 * 15 / 16 * 4e9 / 8e11)
    assert exchange(Execution(tp=8, dp=2), STOCK) == pytest.approx(4e9 / 1e11)
    sharded = Execution(tp=8, dp=2, distributed_optimizer=True)
    assert exchange(sharded, STOCK) == pytest.approx((4e9 + 2e9) / 2 / 1e11)


def test_the_exact_sum_sends_each_root():
    """24 micro-batches on 2 replicas: 12 = 8 + 4, two roots, so the first half twice."""
    once = exchange(Execution(tp=8, dp=2), change(STOCK, global_batch=24))
    exact = exchange(Execution(tp=8, dp=2), Training(global_batch=24))
    assert exact == pytest.approx(1.5 * once)
    even = exchange(Execution(tp=8, dp=2), Training(global_batch=16))
    assert even == pytest.approx(once)


def test_the_roots_counted_are_those_of_the_tree():
    """Equal in nine of ten cases, and too many in nearly all others."""
    equal, fewer = 0, []
    for total in range(2, 49):
        tree = Tree(total)
        for replicas in range(2, total + 1):
            real = sum(len(tree.decompose(leaves)) for leaves in assign(total, replicas)) / replicas
            counted = mean_roots(Training(global_batch=total), Execution(dp=replicas))
            equal += real == pytest.approx(counted)
            if real > counted + 1e-9:
                fewer.append((total, replicas))
    assert equal > 0.9 * 47 * 48 / 2
    assert fewer == []
    assert mean_roots(Training(global_batch=50), Execution(dp=2)) == 3  # its halves hold 4 and 3


def test_an_overlapped_exchange_hides_behind_the_backward_pass():
    training = change(STOCK, overlap=True)
    known = ideal(exposed_share=0.25)
    whole = exchange(Execution(dp=4), STOCK)

    def exposed(backward):
        return exchange_time(training, Execution(dp=4), device(), known, 10**9, backward)

    assert exposed(whole / 2) == pytest.approx(whole / 2)
    assert exposed(10 * whole) == pytest.approx(whole / 4)


def test_collectives_and_sends_take_time_to_start():
    """On an endlessly fast device: two collectives a layer and pass, and two sends
    a chunk; a ring up and down a tree of 4 or 8 replicas (3 and 4 binary digits)."""
    fast = dict.fromkeys(set(FIGURES) - {"memory_bytes", "node_devices"}, 10**30)
    known = ideal(intra_latency_s=1.0, inter_latency_s=100.0)
    stage = stage_time(GPT7, STOCK, Execution(tp=2), device(**fast), known)
    assert stage.forward == pytest.approx(32 * 2)
    assert stage.transfer == 0
    near = stage_time(GPT7, STOCK, Execution(pp=2, virtual=4), device(**fast), known)
    assert near.transfer == pytest.approx(8)
    order = change(STOCK, order="tp-pp-dp")
    for training, dp, start in ((STOCK, 4, 1), (STOCK, 8, 100), (order, 8, 1)):
        execution = Execution(pp=2, dp=dp)
        found = stage_time(GPT7, training, execution, device(**fast), known)
        assert found.transfer == pytest.approx(2 * start)
    for dp, digits in ((4, 3), (7, 3), (8, 4)):
        found = exchange_time(STOCK, Execution(dp=dp), device(**fast), known, 1, 0.0)
        assert found == pytest.approx(2 * digits * 100)


def test_in_the_other_order_replicas_are_farther_apart():
    """4 stages in a node leave room for 2 replicas: 16 of them have 2 cards a ring, not 8."""
    order = change(STOCK, order="tp-pp-dp")
    execution = Execution(pp=4, dp=16)
    assert exchange(execution, order) == pytest.approx(2 * 15 / 16 * 4e9 / 2e11)
    assert exchange(execution, STOCK) == pytest.approx(2 * 15 / 16 * 4e9 / 8e11)
    assert exchange(Execution(pp=4, dp=2), order) == pytest.approx(4e9 / 1e12)


def test_a_tied_embedding_is_added_up_across_the_pipeline():
    tied = seconds(Execution(pp=2)).exchange
    assert tied == pytest.approx(GPT7.vocabulary * GPT7.hidden * 4 / 1e11)
    loose = change(GPT7, tied_embeddings=False)
    assert seconds(Execution(pp=2), model=loose).exchange == 0


def test_the_optimizer_is_bound_by_memory():
    known = ideal(optimizer_bytes=40.0)
    found = seconds(Execution(dp=2), known=known, hbm_bytes_per_s=10**12).optimizer
    parameters = stage_parameters(GPT7, Execution(), last=False)
    assert found == pytest.approx(40 * parameters / 1e12)
    sharded = Execution(dp=2, distributed_optimizer=True)
    assert seconds(sharded, known=known, hbm_bytes_per_s=10**12).optimizer == pytest.approx(
        found / 2
    )


def test_uneven_shares_wait_for_the_slowest_replica():
    seven = seconds(Execution(dp=4), change(STOCK, global_batch=7))
    eight = seconds(Execution(dp=4), STOCK)
    assert seven.micro_batches == eight.micro_batches


@pytest.mark.parametrize("kind", ["a100", "a100-40gb", "a800", "h100", "h800", "h200", "b200"])
def test_no_kind_beats_its_peak(kind):
    execution = Execution(tp=8, pp=4, dp=2, sequence_parallel=True)
    training = Training(global_batch=256)
    found = step_time(LLAMA70, training, execution, accelerator(kind)).total
    rate = 256 * flops_per_sample(LLAMA70) / found / execution.devices / 1e9
    assert 0.1 < rate / accelerator(kind).peak_gflops < 0.7


def test_a_device_that_makes_no_sense_is_refused():
    with pytest.raises(BadProblem, match=r"device\.hbm_bytes_per_s: is 0"):
        seconds(Execution(), hbm_bytes_per_s=0)
    with pytest.raises(BadProblem, match="gemm_half"):
        seconds(Execution(), known=ideal(gemm_half=float("nan")))


def test_reduced_links_cost():
    execution, training = Execution(tp=8, pp=4, dp=2), Training(global_batch=256)

    def total(kind):
        return step_time(LLAMA70, training, execution, accelerator(kind)).total

    assert total("a100") < total("a800") < 1.3 * total("a100")
    assert total("h100") < total("h800")
    assert total("b200") < total("h200") < total("h100") < total("a100")


@QUICK
@given(cases(), st.sampled_from(RATES), st.integers(2, 10))
def test_a_better_device_is_never_slower(case, figure, factor):
    model, training, execution = case
    base = change(accelerator("a100"), peak_gflops=10**9)
    better = change(base, **{figure: factor * getattr(base, figure)})
    slow = step_time(model, training, execution, base).total
    assert step_time(model, training, execution, better).total <= slow * (1 + 1e-12)


@QUICK
@given(cases(), st.integers(2, 5))
def test_more_work_takes_longer(case, factor):
    model, training, execution = case
    base = step_time(model, training, execution, accelerator("h100")).total

    def total(model=model, training=training, **fields):
        changed = change(execution, **fields)
        return step_time(model, training, changed, accelerator("h100")).total

    assert total(model=change(model, layers=model.layers * factor)) > base
    assert total(model=change(model, vocabulary=model.vocabulary * factor)) > base
    more = change(training, exact=False, global_batch=training.global_batch * factor)
    assert total(training=more) >= total(training=change(training, exact=False))
    assert total(recompute="full") >= total(recompute="selective") >= total(recompute="none")


@QUICK
@given(cases())
def test_times_are_finite_and_add_up(case):
    found = step_time(*case, accelerator("a100"))
    parts = [getattr(found, field) for field in found.__struct_fields__]
    assert all(0 <= part < float("inf") for part in parts)
    assert found.total == sum(parts) > 0


@pytest.mark.parametrize(
    "field, value, fix",
    [
        ("tp", 3, "divisor"),
        ("tp", 0, "positive"),
        ("tp", 64, "divisor"),
        ("pp", 5, "divisor"),
        ("dp", 9, "at least one"),
        ("dp", float("nan"), "positive"),
        ("virtual", 3, "divisor"),
        ("virtual", 2, "pp above 1"),
        ("micro_batch", 3, "divisor"),
        ("micro_batch", -1, "positive"),
        ("recompute", "some", "none, selective, full"),
        ("sequence_parallel", 1, "true or false"),
        ("distributed_optimizer", "no", "true or false"),
    ],
)
def test_executions_that_make_no_sense_are_refused(field, value, fix):
    with pytest.raises(BadProblem, match=fix) as caught:
        seconds(change(Execution(), **{field: value}))
    assert caught.value.field == field


def test_chunks_are_cut_from_a_stage_not_from_the_model():
    assert seconds(Execution(pp=16, virtual=2), change(STOCK, global_batch=16)).total > 0
    with pytest.raises(BadProblem, match="2 layers a stage"):
        seconds(Execution(pp=16, virtual=4), change(STOCK, global_batch=16))


def test_interleaving_wants_shares_that_are_multiples_of_the_pipeline():
    with pytest.raises(BadProblem, match="multiple of pp"):
        seconds(Execution(pp=4, virtual=2, dp=4))


@pytest.mark.parametrize(
    "field, value",
    [
        ("global_batch", 0),
        ("gradient_bytes", -2),
        ("exact", 1),
        ("order", "pp-first"),
        ("overlap", True),
    ],
)
def test_trainings_that_make_no_sense_are_refused(field, value):
    with pytest.raises(BadProblem) as caught:
        seconds(Execution(), change(Training(global_batch=8), **{field: value}))
    assert caught.value.field == field
