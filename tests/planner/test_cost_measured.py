"""Measured times over the model's: what they replace, what they correct, and what they don't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.cases import QUICK, change
from tests.planner.costcases import GPT7
from unicron.planner import BadProblem
from unicron.planner.cost import (
    Choices,
    Estimate,
    Execution,
    Sample,
    Series,
    Training,
    accelerator,
    estimate,
    estimates,
    layout_table,
    overwritten,
    record,
    summary,
)
from unicron.planner.cost.layouts import Choice, assess
from unicron.planner.cost.measured import (
    FRESH_MS,
    SAMPLES_ENOUGH,
    SAMPLES_MAX,
    TOLERATED_MILLI,
    trust,
)

A = Execution(dp=2)
B = Execution(dp=4)
C = Execution(dp=8)


def series(execution, *steps, model="m", kind="k", at_ms=0):
    samples = tuple(Sample(step_us=step, at_ms=at_ms + i) for i, step in enumerate(steps))
    return Series(model=model, kind=kind, execution=execution, samples=samples)


def choice(execution, step_us=1000, kind="k"):
    return Choice(
        execution=execution,
        kind=kind,
        step_us=step_us,
        memory_bytes=1,
        state_bytes=1,
        throughput_gflops=10**6 // step_us,
    )


def five(step):
    return (step,) * SAMPLES_ENOUGH


# --- what a series says ---------------------------------------------------------------------------


def test_the_median_without_outliers_by_hand():
    """Median of all 7 is 101, deviations 1, 1, 0, 0, 1, 1, 4899: their median 1. Farther than
    max(5 * 1, 2 % of 101 = 2) is the 5000 alone."""
    found = summary(series(A, 100, 100, 101, 101, 102, 102, 5000), 100)
    assert (found.step_us, found.spread_us) == (101, 1)
    assert (found.kept, found.dropped, found.age_ms) == (6, 1, 95)


def test_equal_times_have_no_spread_and_tolerate_a_little():
    found = summary(series(A, *[1000] * 9, 1000 + TOLERATED_MILLI), 9)
    assert (found.step_us, found.spread_us, found.dropped) == (1000, 0, 0)
    assert summary(series(A, *[1000] * 9, 1001 + TOLERATED_MILLI), 9).dropped == 1


def test_no_samples_say_nothing():
    assert summary(series(A), 0) is None


@QUICK
@given(
    st.lists(st.integers(900, 1100), min_size=6, max_size=30),
    st.lists(st.integers(1, 10**9), max_size=4),
    st.randoms(use_true_random=False),
)
def test_a_minority_of_outliers_never_leads(good, bad, rng):
    times = [*good, *bad[: (len(good) - 1) // 2]]
    rng.shuffle(times)
    found = summary(series(A, *times), len(times))
    assert 900 <= found.step_us <= 1100
    assert found.kept + found.dropped == len(times)
    assert found.spread_us <= 200


@QUICK
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_samples_means_nothing(times, rng):
    given_ = series(A, *times)
    shuffled = list(given_.samples)
    rng.shuffle(shuffled)
    assert summary(given_, 99) == summary(change(given_, samples=tuple(shuffled)), 99)
    found = summary(given_, 99)
    assert all(type(getattr(found, field)) is int for field in found.__struct_fields__)


# --- recording ------------------------------------------------------------------------------------


def test_samples_are_recorded_by_layout_model_and_kind():
    measured = ()
    for model, kind, execution in (("m", "k", A), ("m", "k", B), ("m", "l", A), ("n", "k", A)):
        for at in (2, 1):
            sample = Sample(step_us=at, at_ms=at)
            measured = record(measured, model, kind, execution, sample)
    assert len(measured) == 4
    assert all([s.at_ms for s in each.samples] == [1, 2] for each in measured)


def test_only_the_newest_samples_are_kept():
    measured = ()
    for at in range(SAMPLES_MAX + 3):
        measured = record(measured, "m", "k", A, Sample(step_us=1, at_ms=at))
    assert [s.at_ms for s in measured[0].samples] == list(range(3, SAMPLES_MAX + 3))
    late = record(measured, "m", "k", A, Sample(step_us=1, at_ms=0))
    assert late[0].samples == measured[0].samples


@pytest.mark.parametrize("step", [0, -1, 1.5, float("nan"), True])
def test_times_that_make_no_sense_are_refused(step):
    with pytest.raises(BadProblem, match="step_us"):
        record((), "m", "k", A, Sample(step_us=step, at_ms=0))
    with pytest.raises(BadProblem, match="step_us"):
        summary(series(A, 5, step), 9)


def test_samples_from_the_future_are_refused():
    with pytest.raises(BadProblem, match="one clock"):
        summary(series(A, 5, at_ms=10), 9)


# --- what to plan with ----------------------------------------------------------------------------


def test_without_measurements_the_model_stands():
    assert estimate(choice(A), "m", (), 0) == Estimate(
        step_us=1000, origin="model", confidence_milli=0
    )


def test_a_layout_measured_well_has_its_measured_time():
    """One of the six is an outlier; five are enough."""
    found = estimate(choice(A), "m", [series(A, 1400, 1500, 1490, 1520, 1510, 1480)], 10)
    assert (found.step_us, found.origin, found.confidence_milli) == (1500, "measured", 1000)
    assert (found.spread_us, found.age_ms) == (10, 5)


def test_few_samples_pull_part_of_the_way():
    """2 of 5 samples: two fifths of the way from 1000 to 2000."""
    found = estimate(choice(A), "m", [series(A, 2000, 2000)], 10)
    assert (found.step_us, found.origin, found.confidence_milli) == (1400, "corrected", 400)


def test_old_measurements_fade():
    measured = [series(A, *five(2000))]
    last = SAMPLES_ENOUGH - 1

    def at(now_ms):
        return estimate(choice(A), "m", measured, last + now_ms)

    assert at(FRESH_MS).step_us == 2000
    assert at(FRESH_MS * 3 // 2).step_us == 1500
    assert at(FRESH_MS * 3 // 2).origin == "corrected"
    assert at(FRESH_MS * 2) == Estimate(step_us=1000, origin="model", confidence_milli=0)


def test_neighbours_are_corrected_with_less_confidence():
    """A took 1.2 times what the model says: so does B, which is believed half as much."""
    found = estimate(choice(B, 500), "m", [series(A, *five(1200))], 10, [choice(A)])
    assert (found.step_us, found.origin, found.confidence_milli) == (600, "corrected", 500)
    assert estimate(choice(B, 500), "m", [series(A, *five(1200))], 10).origin == "model"


def test_of_few_samples_a_measured_layout_and_its_neighbours_move_alike():
    """An error that all sizes share makes none of them look better than another."""
    few = [series(A, 2000, 2000)]
    assert estimate(choice(A), "m", few, 10).step_us == 1400
    carried = estimate(choice(B, 500), "m", few, 10, [choice(A)])
    assert (carried.step_us, carried.confidence_milli) == (700, 200)


@QUICK
@given(
    st.dictionaries(
        st.sampled_from([A, B, C]), st.lists(st.integers(1, 10**7), min_size=1, max_size=8)
    ),
    st.integers(0, 3 * FRESH_MS),
)
def test_summaries_say_what_their_series_do(times, age):
    table = [choice(A), choice(B, 500), choice(C, 300)]
    measured = [series(execution, *steps) for execution, steps in times.items()]
    now = 8 + age
    own = {each.execution: summary(each, now) for each in measured}
    assert estimates(table, own) == tuple(
        estimate(each, "m", measured, now, table) for each in table
    )
    assert estimates((), own) == ()


def test_neighbours_are_heard_by_their_median():
    measured = [
        series(Execution(dp=dp), *five(step))
        for dp, step in ((1, 1200), (2, 1200), (4, 1200), (16, 9000))
    ]
    references = [choice(each.execution) for each in measured]
    assert estimate(choice(C), "m", measured, 10, references).step_us == 1200


def test_a_layouts_own_time_wins_over_its_neighbours():
    measured = [series(A, *five(1200)), series(B, *five(400))]
    found = estimate(choice(B, 500), "m", measured, 10, [choice(A), choice(B, 500)])
    assert (found.step_us, found.origin) == (400, "measured")


@pytest.mark.parametrize("other", [{"model": "n"}, {"kind": "l"}])
def test_other_models_and_kinds_say_nothing(other):
    measured = [series(A, *five(1200), **other), series(B, *five(900), **other)]
    references = [choice(A), choice(B, 500)]
    assert estimate(choice(B, 500), "m", measured, 10, references).origin == "model"


@QUICK
@given(
    st.integers(1, 10**7),
    st.lists(st.integers(1, 10**7), min_size=1, max_size=8),
    st.integers(0, 3 * FRESH_MS),
)
def test_an_estimate_lies_between_the_model_and_what_was_measured(modelled, times, age):
    measured = [series(A, *times)]
    now = len(times) + age
    found = estimate(choice(A, modelled), "m", measured, now)
    known = summary(measured[0], now)
    low, high = sorted((modelled, known.step_us))
    assert low <= found.step_us <= high
    assert 0 <= found.confidence_milli <= 1000
    assert found.confidence_milli == trust(known)
    assert type(found.step_us) is int
    assert found == estimate(choice(A, modelled), "m", tuple(measured), now)


# --- a whole table --------------------------------------------------------------------------------


def test_a_measured_size_changes_the_whole_table():
    device = accelerator("h100")
    training = Training(global_batch=256, exact=False)
    table = layout_table(GPT7, training, device, 64, Choices(tp=(1, 2)))
    ran = table[3]
    slow = ran.step_us * 3 // 2
    measured = [series(ran.execution, *five(slow), kind=ran.kind)]
    changed = overwritten(table, "m", measured, 10)
    assert [each.execution for each in changed] == [each.execution for each in table]
    for before, after in zip(table, changed, strict=True):
        assert after.step_us == pytest.approx(before.step_us * 1.5, rel=1e-5)
        assert after.throughput_gflops == pytest.approx(before.throughput_gflops / 1.5, rel=1e-5)
        assert after.memory_bytes == before.memory_bytes


def test_a_layout_outside_the_table_corrects_it_when_it_is_a_reference():
    device, training = accelerator("h100"), Training(global_batch=256, exact=False)
    table = layout_table(GPT7, training, device, 16)
    running = Execution(tp=8, dp=2, sequence_parallel=True, recompute="full")
    assert running not in {each.execution for each in table}
    modelled = assess(GPT7, training, device, running)
    measured = [series(running, *five(2 * modelled.step_us), kind=modelled.kind)]
    assert overwritten(table, "m", measured, 10) == table
    corrected = overwritten(table, "m", measured, 10, [modelled])
    assert corrected[0].step_us == pytest.approx(2 * table[0].step_us, rel=1e-5)
