"""What was measured of running tasks: what the log keeps of it, and how plans are made with it."""

import pytest

from tests.core.reading import task
from tests.core.story import SPEC, Story, running
from tests.core.test_plan import OTHER, allocate
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace, with_task
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.offers import assumed_us
from unicron.controlplane.core.state import StepTime, TransitionTime
from unicron.planner.problem import Layout

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


def test_a_parked_task_keeps_its_figures():
    story = running()
    measure(story, factor=2.0)
    allocate(story, "gpt", [])
    story.settle()
    assert len(task(story).step_times) == 1


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
