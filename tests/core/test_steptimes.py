"""How plans are made with what was measured of running tasks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.reading import task
from tests.core.story import running
from tests.core.test_measured import BERT, GPT, assumed, measure, two
from tests.core.test_plan import OTHER
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace, with_task
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.offers import options_of
from unicron.controlplane.core.problem import measured, problem_of
from unicron.controlplane.core.state import StepTime, TransitionTime
from unicron.controlplane.core.steptimes import floor_of
from unicron.planner.cost.measured import FRESH_MS
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.validation import EXACT_MAX, validate


def throughputs(story, name=GPT):
    (demand,) = (t for t in problem_of(story.state).tasks if t.task == name)
    return {o.layout.dp: o.throughput_gflops for o in demand.options}


@pytest.mark.parametrize("factor", [0.1, 1.0, 7.0, 140.0])
def test_what_is_common_to_all_tasks_changes_no_plan(factor):
    """One task, or two that are off alike: the assumption about the devices is."""
    story = two()
    before = problem_of(story.state)
    measure(story, GPT, factor=factor)
    measure(story, BERT, factor=factor)
    assert story.state.void == 0
    after = problem_of(story.state)
    for old, new in zip(before.tasks, after.tasks, strict=True):
        for was, now in zip(old.options, new.options, strict=True):
            assert now.throughput_gflops == pytest.approx(was.throughput_gflops, abs=1)
    assert dynamic_plan(after).assignments == dynamic_plan(before).assignments
    assert decide(story.state) is None


def test_a_task_that_was_not_measured_is_taken_for_one_like_the_others():
    story = two()
    before = throughputs(story, GPT), throughputs(story, BERT)
    measure(story, GPT, factor=3.0)
    assert (throughputs(story, GPT), throughputs(story, BERT)) == before


def test_who_makes_less_of_its_devices_than_others_is_planned_with_less():
    story = two()
    before = throughputs(story, BERT)
    measure(story, GPT, factor=2.0)
    measure(story, BERT, factor=4.0)
    after = throughputs(story, BERT)
    assert all(after[n] == pytest.approx(before[n] / 2, abs=1) for n in before)


def test_each_size_that_was_measured_has_its_own_time():
    story = two()
    measure(story, GPT, factor=1.0)
    measure(story, BERT, factor=1.0)
    other = replace(task(story, BERT).step_times[0], data_parallel=2, step_us=4 * assumed(OTHER, 2))
    known = task(story, BERT)
    before = throughputs(story, BERT)
    story.state = with_task(story.state, replace(known, step_times=(other, *known.step_times)))
    after = throughputs(story, BERT)
    assert after[4] == pytest.approx(before[4], abs=1)
    assert after[2] == pytest.approx(before[2] / 4, abs=1)
    assert before[6] / 4 < after[6] < before[6]  # between what both say


def test_an_old_figure_counts_for_less_and_then_for_nothing():
    """Its age is what its iterations have taken since, up to the task's newest figure: there is no
    clock here."""
    story = two()
    day_us = FRESH_MS * 1000
    measure(story, GPT, factor=1.0)
    assumed_only = throughputs(story, BERT)
    measure(story, BERT, step_us=day_us, iteration=0)
    measure(story, BERT, step_us=day_us, iteration=0)
    fresh = throughputs(story, BERT)
    (old,) = task(story, BERT).step_times

    def at(iteration):
        """bert has gone on with two devices, as fast as is assumed."""
        new = replace(old, data_parallel=2, iteration=iteration, step_us=assumed(OTHER, 2))
        known = replace(task(story, BERT), step_times=(old, new))
        state = with_task(story.state, known)
        assert problem_of(with_task(state, replace(known, iteration=90))) == problem_of(state)
        (demand,) = (t for t in problem_of(state).tasks if t.task == BERT)
        return {o.layout.dp: o.throughput_gflops for o in demand.options}

    assert at(0)[4] == at(1)[4] == fresh[4]
    assert at(2)[4] == assumed_only[4] > fresh[4]


def test_transitions_cost_what_they_were_seen_to_once_there_are_enough():
    story = running()

    def planned_with():
        (demand,) = problem_of(story.state).tasks
        return demand.transition_ms

    measure(story, transition_ms=10)
    for generation, took in ((2, 30), (3, 999_999), (4, 20)):
        assert planned_with() == (limits.TRANSITION_MS if generation < 4 else 30)
        story.state = with_task(story.state, replace(task(story), generation=generation))
        measure(story, transition_ms=took)
    assert planned_with() == 20  # the lower one of the two in the middle


def test_nothing_measured_counts_where_devices_share_cores():
    story = two()
    before = problem_of(story.state)
    measure(story, GPT, factor=1.0, transition_ms=10)
    measure(story, BERT, factor=4.0, transition_ms=10)
    planning = replace(story.state.planning, measured_step_times=False)
    state = replace(story.state, planning=planning)
    assert problem_of(state).tasks == before.tasks
    assert problem_of(story.state).tasks != before.tasks


# --- opinions that can't be right -----------------------------------------------------------------

_TIMES = st.integers(1, limits.STEP_US_MAX) | st.sampled_from([1, limits.STEP_US_MAX])


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from([(GPT, 4), (BERT, 4), (BERT, 2)]), _TIMES),
    st.sampled_from([1, 1000, 10**6]),
    st.lists(st.integers(0, limits.TRANSITION_MAX_MS), max_size=4),
)
def test_no_opinion_makes_a_problem_that_cannot_be_solved(steps, weight, transitions):
    state = STORY.state
    for (name, size), step_us in steps.items():
        known = state.tasks[name]
        time = replace(TIME, data_parallel=size, step_us=step_us)
        seen = tuple(
            TransitionTime(generation=9 + i, took_ms=ms) for i, ms in enumerate(transitions)
        )
        known = replace(
            known,
            spec=replace(known.spec, weight_milli=weight),
            step_times=(*known.step_times, time),
            transition_times=seen,
        )
        state = with_task(state, known)
    problem = problem_of(state)
    validate(problem)
    for demand, known in zip(problem.tasks, state.tasks.values(), strict=True):
        offered = {o.layout for o in options_of(known.spec, "cpu", ev.Planning())}
        assert {o.layout.dp for o in demand.options} >= {1, 2, 3, 4}
        assert {o.layout for o in demand.options} <= offered
    assert len(dynamic_plan(problem).assignments) == 2


STORY = two()
TIME = StepTime(
    kind="cpu",
    tensor_parallel=1,
    pipeline_parallel=1,
    data_parallel=4,
    step_us=1,
    spread_us=0,
    samples=5,
    iteration=1,
    generation=1,
    at=1,
)


def test_a_floor_means_the_same_beside_corrected_throughputs():
    """Throughputs leave out what all tasks take longer; so must what they are held against."""
    story = two()
    measure(story, GPT, factor=2.0)
    known = measured(story.state)
    assert floor_of(10, known) == 20
    assert floor_of(0, known) == 0
    assert floor_of(EXACT_MAX, known) == EXACT_MAX
