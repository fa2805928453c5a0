"""How long iterations and transitions take, from what beats report."""

from itertools import pairwise

import pytest

from tests.runtime.test_progress import ITERATION_MS, WORKERS, Watched
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace, with_task
from unicron.controlplane.core.state import StepTime, TransitionTime
from unicron.events import TaskMeasured, WorkerSlow
from unicron.planner.cost.measured import FRESH_MS

ENOUGH = limits.MEASURES_ENOUGH * limits.MEASURE_MS // ITERATION_MS + 2
#: As many as may pass before something is told again.
AGAIN = limits.MEASURED_AGAIN_MS // ITERATION_MS + ENOUGH


class Timed(Watched):
    """With a task that goes on for long, and a log that takes in what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.change(spec=replace(self.task.spec, iterations=10**9))

    @property
    def task(self):
        return self.state.tasks["gpt"]

    def change(self, **fields) -> None:
        self.state = with_task(self.state, replace(self.task, **fields))

    def run(self, iterations: int, iteration_ms: int = ITERATION_MS, slow: str = "") -> list:
        """All commit so many iterations, each after so long, and show that they are at work."""
        found = []
        for _ in range(iterations):
            for name in self.pages:
                us = 90_000 if name == slow else 30_000
                done = self.pages[name].iteration + 1
                self.put(name, iteration=done, phase="forward", micro_batch_us=us)
            for done in range(iteration_ms // 200):
                for name in self.pages:
                    self.put(name, micro_batches_done=done)
                found += self.beat(200)
        return found

    def take(self, body: TaskMeasured) -> None:
        """The log has it, as the fold keeps it."""
        time = StepTime(
            kind=body.device_kind,
            tensor_parallel=1,
            pipeline_parallel=1,
            data_parallel=body.data_parallel,
            step_us=body.step_us,
            spread_us=body.spread_us,
            samples=body.samples,
            iteration=body.iteration,
            generation=body.generation,
            at=1,
        )
        self.change(step_times=(time,))
        if body.transition_ms is not None:
            seen = TransitionTime(generation=body.generation, took_ms=body.transition_ms)
            self.change(transition_times=(seen,))

    def measured(self) -> TaskMeasured:
        (body,) = self.run(ENOUGH)
        self.take(body)
        return body

    def regroup(self, ms: int, *, phase: str = "closed") -> None:
        """Nobody trains for so long; then the next generation stands."""
        self.change(phase=phase)
        for name in self.pages:
            self.put(name, phase="quiesced" if phase == "closed" else "forward")
        self.beat(ms)
        generation = self.task.generation + 1
        ready = {name: page.iteration for name, page in self.pages.items()}
        self.change(phase="running", generation=generation, ready=ready)
        for name in self.pages:
            self.put(name, generation=generation, phase="forward")
        self.beat(200)


@pytest.fixture
def timed() -> Timed:
    return Timed()


def test_an_iteration_is_timed_by_the_commits_that_beats_show(timed: Timed):
    (body,) = timed.run(ENOUGH)
    assert (body.task, body.generation, body.device_kind) == ("gpt", 1, "cpu")
    assert (body.tensor_parallel, body.pipeline_parallel, body.data_parallel) == (1, 1, 4)
    assert (body.step_us, body.spread_us) == (ITERATION_MS * 1000, 0)
    assert body.samples >= limits.MEASURES_ENOUGH
    assert 0 < body.iteration <= ENOUGH
    assert body.transition_ms is None


def test_long_iterations_are_timed_one_by_one(timed: Timed):
    (body,) = timed.run(limits.MEASURES_ENOUGH + 2, 10_000)
    assert (body.step_us, body.samples) == (10_000_000, limits.MEASURES_ENOUGH)


def test_it_is_told_once_and_again_when_it_has_changed_notably(timed: Timed):
    timed.measured()
    assert timed.run(4 * ENOUGH) == []
    assert timed.run(4 * ENOUGH, 600)[0].step_us > 440_000
    again = Timed()
    again.measured()
    # A beat more or less in every ten iterations is no news.
    assert [b for _ in range(30) for b in [*again.run(9), *again.run(1, 600)]] == []


def test_what_the_log_did_not_take_is_told_again_but_not_at_once(timed: Timed):
    """It may have been void, or another instance led. Once a minute at most."""
    found = timed.run(400)
    times = [b.iteration * ITERATION_MS for b in found]
    assert len(found) == 1 + (400 - found[0].iteration) * ITERATION_MS // (
        limits.MEASURED_AGAIN_MS + limits.MEASURE_MS
    )
    assert all(b - a >= limits.MEASURED_AGAIN_MS for a, b in pairwise(times))


def test_an_old_figure_is_told_again_before_it_stops_to_count(timed: Timed):
    body = timed.measured()
    half = FRESH_MS * 1000 // body.step_us // 2
    old = replace(timed.task.step_times[0], iteration=timed.pages[WORKERS[0]].iteration - half)
    timed.change(step_times=(replace(old, iteration=old.iteration + 400),))
    assert timed.run(100) == []
    timed.change(step_times=(old,))
    assert [b.step_us for b in timed.run(100)] == [body.step_us]


def test_outliers_do_not_lead(timed: Timed):
    timed.run(12)
    timed.run(1, 15_000)
    (body,) = timed.run(2 * ENOUGH)
    assert body.step_us == ITERATION_MS * 1000


def test_nothing_is_told_of_what_has_no_clear_time(timed: Timed):
    """Half of the times are far from the other half."""
    found = []
    for ms in (4000, 20_000, 4000, 60_000, 4000, 200_000):
        found += timed.run(1, ms)
    assert found == []


def test_nothing_is_told_while_a_plan_is_made(timed: Timed):
    timed.state = replace(timed.state, plan=replace(timed.state.plan, request=5))
    assert timed.run(2 * ENOUGH) == []
    timed.state = replace(timed.state, plan=replace(timed.state.plan, request=0))
    assert len(timed.run(12)) == 1


def test_a_slow_member_spoils_the_time(timed: Timed):
    timed.run(8)
    found = timed.run(2 * ENOUGH, slow="n1/1")
    assert [type(b) for b in found] == [WorkerSlow]
    (over, body) = timed.run(ENOUGH + 8)
    assert (type(over), type(body)) == (WorkerSlow, TaskMeasured)


def test_who_has_only_begun_to_lead_knows_from_the_log_who_is_slow(timed: Timed):
    slow = replace(timed.state.workers["n1/1"], slow_percent=180)
    timed.state = replace(timed.state, workers={**timed.state.workers, "n1/1": slow})
    assert timed.run(2 * ENOUGH) == []


def test_an_iteration_with_a_declared_section_does_not_count(timed: Timed):
    timed.put("n1/0", section_ms=60_000)
    assert timed.run(2 * ENOUGH) == []


def test_a_task_that_stalled_is_not_measured_in_that_generation(timed: Timed):
    timed.run(6)
    assert len(timed.beat(4000)) == 1  # TaskStalled
    assert timed.run(2 * ENOUGH) == []


@pytest.mark.parametrize("away", ["restart", "begin"])
def test_what_was_seen_before_we_were_away_does_not_count(timed: Timed, away: str):
    timed.run(ENOUGH - 4)
    getattr(timed.watch, away)()
    assert timed.run(ENOUGH - 4) == []
    assert len(timed.run(8)) == 1


def test_silence_in_between_is_not_timed(timed: Timed):
    """Who isn't heard may train, or not: the time that it takes isn't that of an iteration."""
    for _ in range(limits.MEASURES_ENOUGH + 1):
        timed.run(5)
        away = timed.pages.pop("n2/1")
        timed.run(1, 2000)
        timed.pages["n2/1"] = replace(away, iteration=away.iteration + 1)
    (body,) = timed.run(ENOUGH)
    assert body.step_us == ITERATION_MS * 1000


def test_two_are_never_told_at_once(timed: Timed):
    """Each is written and read back, and hangs are looked for in between only."""
    gpt, workers = timed.task, dict(timed.state.workers)
    for name in WORKERS[2:]:
        workers[name] = replace(workers[name], task="bert")
    bert = replace(gpt, spec=replace(gpt.spec, task="bert"), members=gpt.members[2:])
    tasks = {"gpt": replace(gpt, members=gpt.members[:2]), "bert": bert}
    timed.state = replace(timed.state, tasks=tasks, workers=workers)
    told = []
    for _ in range(2 * ENOUGH):
        for name in timed.pages:
            timed.put(name, iteration=timed.pages[name].iteration + 1)
        found = [timed.beat(200), timed.beat(200)]
        assert all(len(each) <= 1 for each in found)
        told += [each[0].task for each in found if each]
    assert sorted(told) == ["bert", "gpt"]


# --- transitions ----------------------------------------------------------------------------------


def test_a_transition_costs_what_an_iteration_around_it_took_longer(timed: Timed):
    timed.measured()
    timed.run(3)
    timed.regroup(3000)
    (body,) = timed.run(AGAIN)
    assert (body.generation, body.step_us) == (2, ITERATION_MS * 1000)
    # Three seconds, and 200 ms until all are seen in the new generation.
    assert body.transition_ms == 3000 + 200
    timed.take(body)
    assert timed.run(2 * AGAIN) == []


def test_a_hang_before_the_close_is_no_part_of_the_transition(timed: Timed):
    timed.measured()
    timed.run(3)
    assert len(timed.beat(20_000)) == 1  # TaskStalled
    timed.regroup(2000)
    (body,) = timed.run(AGAIN)
    assert body.transition_ms == 2000 + 200


def test_several_tries_are_one_transition(timed: Timed):
    timed.measured()
    timed.regroup(2000)
    timed.regroup(3000)
    (body,) = timed.run(AGAIN)
    assert (body.generation, body.transition_ms) == (3, 5000 + 2 * 200)


def test_iterations_before_a_planned_switch_are_none_of_its_cost(timed: Timed):
    """The old members train on until the switch: two iterations, in the old layout's time."""
    timed.measured()
    timed.run(3)
    timed.change(phase="ordered")
    timed.run(2)
    timed.regroup(2000, phase="ordered")
    (body,) = timed.run(AGAIN)
    assert body.transition_ms == 2000 + 200


def test_a_task_that_waited_for_devices_made_no_transition(timed: Timed):
    timed.measured()
    given = timed.task.allocation
    timed.change(phase="closed", allocation=replace(given, slots=()))
    timed.beat(30_000)
    timed.change(allocation=given)
    timed.regroup(2000)
    assert timed.run(2 * AGAIN) == []


def test_another_layout_has_its_own_time(timed: Timed):
    timed.measured()
    timed.run(3)
    for name in WORKERS[2:]:
        del timed.pages[name]
    members = tuple(m for m in timed.task.members if m.worker in timed.pages)
    assert len(members) == 2
    timed.change(members=members)
    timed.regroup(1000)
    (body,) = timed.run(AGAIN // 2, 800)
    assert (body.data_parallel, body.step_us) == (2, 800_000)
    assert body.transition_ms == 400 + 1000 + 200 - 800


def test_iterations_before_a_switch_to_another_layout_took_as_long_as_they_did(timed: Timed):
    """Two of 400 ms before it, one of 800 ms around it."""
    timed.measured()
    timed.run(3)
    timed.change(phase="ordered")
    timed.run(2)
    timed.change(members=timed.task.members[:2])
    timed.pages = {m.worker: timed.pages[m.worker] for m in timed.task.members}
    timed.regroup(1000, phase="ordered")
    (body,) = timed.run(AGAIN // 2, 800)
    assert (body.data_parallel, body.transition_ms) == (2, 3 * 400 + 1000 + 200 - 2 * 400 - 800)
