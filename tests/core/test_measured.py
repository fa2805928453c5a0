"""What was measured of running tasks: what the log keeps of it, and how plans are made with it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.reading import task
from tests.core.story import SPEC, Story, running
from tests.core.test_plan import OTHER, allocate
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace, with_task
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.offers import assumed_us, options_of
from unicron.controlplane.core.problem import measured, problem_of
from unicron.controlplane.core.state import StepTime, TransitionTime
from unicron.controlplane.core.steptimes import floor_of
from unicron.planner.cost.measured import FRESH_MS
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.problem import Layout
from unicron.planner.validation import EXACT_MAX, validate

GPT, BERT = "gpt", "bert"


def assumed(spec, devices):
    """What an iteration is assumed to take on so many devices (us)."""
    return assumed_us(spec, "cpu", ev.Planning(), Layout(tp=1, pp=1, dp=devices))


def measure(story, name=GPT, *, factor=1.0, **fields):
    """The monitor says what an iteration takes, as a multiple of what is assumed."""
    known = story.state.tasks[name]
    size = len(known.members)
    body = ev.TaskMeasured(
        task=ev.TaskId(name),
        generation=known.generation,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=size,
        device_kind="cpu",
        iteration=10,
        step_us=round(factor * assumed(known.spec, size)),
        spread_us=100,
        samples=9,
    )
    story.decide_input(replace(body, **fields))


def two():
    """gpt and bert train on four devices each."""
    story = Story()
    for n in range(1, 5):
        story.join(f"n{n}")
    story.settle()
    story.submit(replace(SPEC, max_devices=4))
    story.submit(replace(OTHER, max_devices=8))
    story.settle()
    assert [len(t.members) for t in story.state.tasks.values()] == [4, 4]
    return story


def throughputs(story, name=GPT):
    (demand,) = (t for t in problem_of(story.state).tasks if t.task == name)
    return {o.layout.dp: o.throughput_gflops for o in demand.options}


# --- what the log keeps ---------------------------------------------------------------------------


def test_a_figure_is_kept_with_where_it_comes_from():
    story = running()
    measure(story, step_us=5000, spread_us=40, samples=7, iteration=33, transition_ms=120)
    assert task(story).step_times == (
        StepTime(
            kind="cpu",
            tensor_parallel=1,
            pipeline_parallel=1,
            data_parallel=4,
            step_us=5000,
            spread_us=40,
            samples=7,
            iteration=33,
            generation=1,
            at=story.state.seq,
        ),
    )
    assert task(story).transition_times == (TransitionTime(generation=1, took_ms=120),)
    assert (story.state.void, decide(story.state)) == (0, None)


def test_a_newer_figure_takes_the_place_of_that_of_the_same_layout():
    story = running()
    measure(story, step_us=5000)
    measure(story, step_us=6000)
    assert [t.step_us for t in task(story).step_times] == [6000]
    old = replace(task(story).step_times[0], data_parallel=2)
    story.state = with_task(story.state, replace(task(story), step_times=(old,)))
    measure(story, step_us=7000)
    assert [(t.data_parallel, t.step_us) for t in task(story).step_times] == [(2, 6000), (4, 7000)]


def test_figures_are_bounded_and_the_oldest_go():
    story = running()
    measure(story)
    times = tuple(replace(task(story).step_times[0], data_parallel=n) for n in range(10, 10 + 20))
    story.state = with_task(story.state, replace(task(story), step_times=times))
    measure(story)
    kept = [t.data_parallel for t in task(story).step_times]
    assert kept == [*range(30 - limits.STEP_TIMES_MAX + 1, 30), 4]


def test_a_transition_counts_once_however_often_it_is_told():
    story = running()
    for took in (100, 200):
        measure(story, transition_ms=took)
    assert [t.took_ms for t in task(story).transition_times] == [100]
    for generation in range(2, 2 + limits.TRANSITIONS_MAX):
        story.state = with_task(story.state, replace(task(story), generation=generation))
        measure(story, transition_ms=generation * limits.TRANSITION_MAX_MS)
    assert [t.generation for t in task(story).transition_times] == [2, 3, 4, 5, 6]
    assert {t.took_ms for t in task(story).transition_times} == {limits.TRANSITION_MAX_MS}


@pytest.mark.parametrize(
    "fields",
    [
        {"generation": 2},
        {"task": "x"},
        {"data_parallel": 3},
        {"tensor_parallel": 2, "data_parallel": 2},
        {"device_kind": "h100"},
        {"step_us": 0},
        {"step_us": limits.STEP_US_MAX + 1},
        {"spread_us": -1},
        {"samples": 0},
        {"iteration": -1},
        {"iteration": SPEC.iterations + 1},
        {"transition_ms": -1},
    ],
    ids=str,
)
def test_what_makes_no_sense_or_is_over_is_void(fields):
    story = running()
    before = story.state
    measure(story, **fields)
    assert (story.state.tasks, story.state.void) == (before.tasks, before.void + 1)


def test_a_task_that_stands_is_not_measured():
    story = running()
    story.held = [("quiesce", name) for name in story.state.workers]
    story.exit("n2/1")
    story.settle()
    assert task(story).phase == "closed"
    measure(story)
    assert (task(story).step_times, story.state.void) == ((), 1)


def test_while_a_plan_is_made_nothing_changes_that_it_rests_on():
    """A figure that came in between would make the answer one to another problem."""
    story = running()
    story.solve = lambda: None
    story.join("n3")
    story.settle()
    assert story.state.plan.request
    measure(story, factor=3.0)
    assert (task(story).step_times, story.state.void) == ((), 1)
    del story.solve
    story.solve()
    assert "PlanDecided" in [type(body).__name__ for body in story.settle()]


# --- how plans are made with it -------------------------------------------------------------------


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


# --- when it calls for a plan ---------------------------------------------------------------------


def test_a_task_that_turns_out_far_slower_than_others_calls_for_a_plan():
    story = two()
    measure(story, GPT, factor=2.0)
    assert decide(story.state) is None  # nobody to compare it with
    measure(story, BERT, factor=5.0)
    assert story.state.plan.reason == (
        "iterations of bert take 250 % of what was planned with, beside other tasks"
    )
    assert "PlanDecided" in [type(body).__name__ for body in story.settle()]


def test_one_plan_is_called_for_once_all_are_measured():
    """Not one after each: plans with half of the figures would move tasks back and forth."""
    story = two()
    story.join("n5")
    story.settle()
    story.submit(replace(OTHER, task=ev.TaskId("zeta"), max_devices=2))
    story.settle()
    assert [len(t.members) for t in story.state.tasks.values()] == [4, 4, 2]
    measure(story, GPT, factor=2.0)
    measure(story, BERT, factor=5.0)
    assert decide(story.state) is None  # zeta trains, and nobody knows how fast
    measure(story, "zeta", factor=2.0)
    assert "iterations of bert take 250 % of" in story.state.plan.reason
    made = story.settle()
    assert [type(body).__name__ for body in made].count("PlanRequested") == 1
    assert [len(t.members) for t in story.state.tasks.values()] == [4, 4, 2]
    measure(story, BERT, factor=5.1)
    assert decide(story.state) is None  # it was planned with


@pytest.mark.parametrize("factor,calls", [(0.75, True), (0.85, False), (1.2, False), (1.3, True)])
def test_small_differences_call_for_none(factor, calls):
    story = two()
    measure(story, GPT, factor=1.0)
    measure(story, BERT, factor=1.0)
    assert decide(story.state) is None
    measure(story, BERT, factor=factor)
    assert bool(story.state.plan.wanted) is calls


def test_a_plan_says_with_which_numbers_it_was_made():
    story = two()
    measure(story, GPT, factor=2.0, transition_ms=70)
    measure(story, BERT, factor=5.0)
    (plan,) = (body for body in story.settle() if isinstance(body, ev.PlanDecided))
    assert plan.explanation == (
        "gpt, as measured: iterations take 15.7 ms on 4 cpu devices (7.8 ms assumed)",
        "bert, as measured: iterations take 39.4 ms on 4 cpu devices (7.8 ms assumed)",
    )


def test_figures_that_do_not_count_call_for_none():
    story = two()
    planning = replace(story.state.planning, measured_step_times=False)
    story.state = replace(story.state, planning=planning)
    measure(story, GPT, factor=1.0)
    measure(story, BERT, factor=9.0)
    assert decide(story.state) is None
    assert task(story, BERT).step_times


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


def test_a_parked_task_keeps_its_figures():
    story = running()
    measure(story, factor=2.0)
    allocate(story, "gpt", [])
    story.settle()
    assert len(task(story).step_times) == 1
