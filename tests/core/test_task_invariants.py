"""Each invariant of tasks tells, by its name, of a wrong state or event."""

import pytest

from tests.core.planting import folded, noise, of_plan, of_task, of_worker, recorded
from tests.core.reading import hold, task
from tests.core.story import SPEC, Story, running
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.state import Member, StepTime, TransitionTime

STATE = running().state
TASK = STATE.tasks["gpt"]
LIFE = {"task": "gpt", "worker": "n1/0", "incarnation": 1, "generation": TASK.generation}


def forming() -> Story:
    """The first generation is ordered, and nobody is ready."""
    story = Story()
    story.join("n1")
    hold(story, "ready", "n1/0", "n1/1")
    hold(story, "commit", "n1/0", "n1/1")
    story.settle()
    story.submit()
    story.settle()
    assert task(story).phase == "ordered"
    return story


def fact(state, kind, name, **fields):
    """A fact of a member, as the next entry."""
    said = {"task": "gpt", "worker": name, "incarnation": 1, "generation": 1} | fields
    return recorded(state, kind(**said), who=f"worker/{name}")


# --- Generations --------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [TASK.generation + 1, TASK.generation + 2, 0])
def test_a_generation_that_nobody_ordered(generation):
    told = folded(STATE, noise(STATE), of_task(generation=ev.Generation(generation)))
    assert "generations_grow_by_one" in told


def test_a_generation_that_is_closed_twice():
    close = ev.GenerationClosed(task="gpt", generation=TASK.generation, reason="x")
    closed = running()
    closed.decide_input(close)
    state = closed.state
    assert folded(state, recorded(state, close), lambda s: replace(s, void=state.void)) == {
        "generations_close_once"
    }


def test_a_generation_that_runs_before_all_are_ready():
    state = forming().state
    completed = recorded(state, ev.TransitionCompleted(task="gpt", generation=1, iteration=0))
    assert "generations_run_when_all_are_ready" in folded(state, completed)
    ready = of_task(ready={"n1/0": 0, "n1/1": 0})(state)
    assert folded(ready, completed) == set()
    other = recorded(state, ev.TransitionCompleted(task="gpt", generation=1, iteration=3))
    assert folded(ready, other) == {"generations_run_when_all_are_ready"}


def test_a_task_that_comes_back():
    story = running()
    story.decide_input(ev.TaskFailed(task="gpt", reason="x"))
    state = story.state
    told = "ended_tasks_never_come_back"
    assert told in folded(state, noise(state), of_task(phase="running"))
    assert told in folded(state, noise(state), of_task(outcome="y"))
    assert told in folded(state, noise(state), of_task(allocation=TASK.allocation))


# --- Members ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"status": "failed"}, {"status": "exited"}, {"incarnation": 2}, {"task": "bert"}]
)
def test_a_member_that_is_gone(fields):
    told = "members_live_or_the_generation_is_broken"
    assert told in folded(STATE, noise(STATE), of_worker("n1/0", **fields))
    broken = of_task(broken=(STATE.seq,))(STATE)
    assert told not in folded(broken, noise(broken), of_worker("n1/0", **fields))


def test_a_member_in_no_generation():
    told = folded(STATE, noise(STATE), of_task(members=TASK.members[1:]))
    assert "members_stand_in_a_generation" in told
    rest = of_task(members=TASK.members[:-1])
    waits = of_worker(TASK.members[-1].worker, status="prepared")
    assert "members_stand_in_a_generation" not in folded(
        STATE, noise(STATE), lambda s: rest(waits(s))
    )


@pytest.mark.parametrize(
    "ranks", [[0, 1, 2, 2], [1, 2, 3, 4], [0, 1, 3, 2]], ids=["twice", "from one", "not in order"]
)
def test_ranks_that_do_not_count_from_zero(ranks):
    members = tuple(
        replace(member, rank=rank) for member, rank in zip(TASK.members, ranks, strict=True)
    )
    assert folded(STATE, noise(STATE), of_task(members=members)) == {"ranks_count_from_zero"}


def test_a_worker_with_two_ranks():
    twice = (*TASK.members, Member(worker="n1/0", incarnation=1, rank=4))
    assert folded(STATE, noise(STATE), of_task(members=twice)) == {"ranks_count_from_zero"}


# --- Iterations ---------------------------------------------------------------------------------


def test_members_that_are_ready_at_two_iterations():
    state = forming().state
    told = {"members_are_ready_at_one_iteration"}
    assert folded(state, fact(state, ev.MemberReady, "n1/0", iteration=0)) == set()
    assert folded(state, fact(state, ev.MemberReady, "n1/0", iteration=2)) == told
    one = of_task(ready={"n1/1": 0})(state)
    entry = fact(state, ev.MemberReady, "n1/0", iteration=1)
    assert folded(one, entry) == set()  # the fold breaks the generation
    assert folded(one, entry, of_task(broken=(), broken_by="")) == told
    trains = of_task(committed={"n1/1": 1}, iteration=1)(state)
    assert folded(trains, fact(state, ev.MemberReady, "n1/0", iteration=0)) == set()
    assert folded(trains, fact(state, ev.MemberReady, "n1/0", iteration=1)) == told


def test_members_that_commit_apart():
    state = of_task(ready={"n1/0": 0, "n1/1": 0})(forming().state)
    assert folded(state, fact(state, ev.MemberCommitted, "n1/0", iteration=1)) == set()
    told = {"members_commit_together"}
    assert folded(state, fact(state, ev.MemberCommitted, "n1/0", iteration=2)) == told
    state = of_task(ready={}, committed={"n1/1": 1})(state)
    assert folded(state, fact(state, ev.MemberCommitted, "n1/0", iteration=2)) == told


def test_members_that_finish_with_two_states():
    state = of_task(finished={"n1/1": "a"})(STATE)

    def finishes(digest):
        body = ev.MemberFinished(**LIFE, iteration=SPEC.iterations, state_digest=digest)
        return folded(state, recorded(state, body, who="worker/n1/0"))

    assert finishes("a") == set()
    assert finishes("b") == {"members_finish_with_one_state"}


@pytest.mark.parametrize("iteration", [-1, SPEC.iterations + 1])
def test_an_iteration_that_the_task_does_not_have(iteration):
    told = folded(STATE, noise(STATE), of_task(iteration=iteration))
    assert told == {"iterations_stay_within_the_task"}


# --- Devices ------------------------------------------------------------------------------------


def test_a_device_with_two_owners():
    told = "one_owner_per_device"
    other = replace(TASK, spec=replace(SPEC, task="bert"))
    assert told in folded(
        STATE, noise(STATE), lambda s: replace(s, tasks={**s.tasks, "bert": other})
    )
    twice = replace(TASK.allocation, slots=(*TASK.allocation.slots, TASK.allocation.slots[0]))
    assert told in folded(STATE, noise(STATE), of_task(allocation=twice))
    moved = of_worker("n1/0", device=1, incarnation=2)
    assert told in folded(STATE, noise(STATE), moved)


# --- Budgets ------------------------------------------------------------------------------------


def test_a_task_that_costs_too_much():
    most = limits.FAULT_GENERATIONS_MAX + 1
    assert folded(STATE, noise(STATE), of_task(closes=most)) == set()
    told = folded(STATE, noise(STATE), of_task(closes=most + 1))
    assert told == {"fault_generations_stay_in_budget"}


def test_attempts_in_place_without_an_end():
    tried = of_task(fruitless=limits.REATTEMPTS_MAX)(STATE)
    error = ev.PeerErrorReported(**LIFE, iteration=0, phase="reduce", error="reset")
    entry = recorded(tried, error, who="worker/n1/0")
    assert folded(tried, entry) == set()
    told = folded(tried, entry, of_worker("n1/0", status="member"))
    assert told == {"attempts_in_place_are_bounded"}


def test_plans_that_are_rejected_without_an_end():
    most = limits.PLAN_FAILURES_MAX
    assert folded(STATE, noise(STATE), of_plan(failures=most)) == set()
    assert folded(STATE, noise(STATE), of_plan(failures=most + 1)) == {"rejected_plans_are_bounded"}


# --- What was measured --------------------------------------------------------------------------

TIME = StepTime(
    kind="cpu",
    tensor_parallel=1,
    pipeline_parallel=1,
    data_parallel=4,
    step_us=5000,
    spread_us=1,
    samples=5,
    iteration=1,
    generation=TASK.generation,
    at=1,
)


def times(state, **fields):
    """The monitor's opinion, as the next entry."""
    body = ev.TaskMeasured(
        task="gpt",
        generation=TASK.generation,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=4,
        device_kind="cpu",
        iteration=1,
        step_us=5000,
        spread_us=1,
        samples=5,
    )
    return recorded(state, replace(body, **fields))


def test_times_that_nobody_measured():
    told = {"times_change_by_being_measured"}
    assert folded(STATE, times(STATE)) == set()
    assert folded(STATE, noise(STATE), of_task(step_times=(TIME,))) == told
    assert folded(STATE, times(STATE, task="bert"), of_task(step_times=(TIME,))) >= told
    taken = TransitionTime(generation=1, took_ms=5)
    assert folded(STATE, noise(STATE), of_task(transition_times=(taken,))) == told


def test_times_that_change_while_a_plan_is_made():
    state = of_plan(wanted=1, request=1)(STATE)
    entry = times(state)
    assert folded(state, entry) == set()
    assert folded(
        state, entry, lambda s: replace(of_task(step_times=(TIME,))(s), void=state.void)
    ) == {"times_change_by_being_measured"}


def test_more_times_than_are_kept():
    many = tuple(replace(TIME, data_parallel=n) for n in range(limits.STEP_TIMES_MAX + 1))
    told = {"times_change_by_being_measured"}
    assert folded(STATE, times(STATE), of_task(step_times=many)) == told
