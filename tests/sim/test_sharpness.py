"""Mistakes planted into the product, each of which the simulator must report within a few seeds."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from unicron.controlplane.core import fold, fold_limit, fold_task, formation
from unicron.controlplane.core.change import with_task, with_worker
from unicron.controlplane.runtime import stopwatch
from unicron.controlplane.runtime.resend import Resender
from unicron.controlplane.testing import scenario, scripted, simulation
from unicron.controlplane.testing.seeds import options_of
from unicron.events import GenerationClosed

SCENARIOS = Path(__file__).parents[1] / "scenarios"


def told(seeds):
    """Names of what is told of the first of these runs that doesn't hold."""
    for seed in seeds:
        found = {v.invariant for v in simulation.run(options_of(seed)).violations}
        if found:
            return found
    return set()


@pytest.fixture(autouse=True)
def without_logs(caplog):
    caplog.set_level("CRITICAL", "unicron")


def test_orders_that_are_never_said_again(monkeypatch):
    monkeypatch.setattr(Resender, "due", lambda self, state, now_ms: [])
    assert told((7, 8)) == {"no_limit_passes_for_nothing"}


def test_orders_that_are_said_again_to_who_asks_only(monkeypatch):
    due = Resender.due

    def to_who_asks(self, state, now_ms):
        asked = set(self._asked)
        found = due(self, state, now_ms)
        return [o.seq for o in self._said if o.name in asked and o.seq in found]

    monkeypatch.setattr(Resender, "due", to_who_asks)
    assert told((8, 10)) == {"no_limit_passes_for_nothing"}


def test_a_node_that_is_not_blamed_for_whom_nobody_can_stop(monkeypatch):
    def outlived(state, at, worker):
        return with_worker(state, replace(worker, overdue=True))

    monkeypatch.setattr(fold_limit, "outlived", outlived)
    # Few seeds have such a worker; this scenario is about one.
    (path,) = SCENARIOS.glob("H-04-*.txt")
    report = scripted.run(scenario.parse(path.read_text(encoding="utf-8"), str(path)))
    found = {v.invariant for v in report.outcome.violations}
    assert found == {"who_outlives_its_stop_makes_its_node_sick"}


@pytest.mark.parametrize(
    "counter,name",
    [("closes", "faults_are_counted"), ("fruitless", "vain_generations_are_counted")],
)
def test_a_budget_that_nobody_counts(monkeypatch, counter, name):
    def closed(state, at, body):
        after = fold_task.generation_closed(state, at, body)
        if after is None:
            return None
        old = getattr(state.tasks[body.task], counter)
        return with_task(after, replace(after.tasks[body.task], **{counter: old}))

    monkeypatch.setitem(fold.HANDLERS, GenerationClosed, closed)
    assert told((1,)) == {name}


def test_nobody_is_refused_when_the_first_hold_the_state(monkeypatch):
    monkeypatch.setattr(fold_task, "refuse_others", lambda state, at, holder: state)
    assert told((10, 16)) == {"other_software_is_refused"}


def test_those_start_together_who_run_different_software(monkeypatch):
    monkeypatch.setattr(formation, "_of_one_software", lambda state, names: list(names))
    assert told((10, 16)) == {"members_run_one_software"}


def test_times_that_are_too_short(monkeypatch):
    take = stopwatch._take

    def counts_too_many(course, commit):
        begun = replace(course.begun, iteration=2 * course.begun.iteration - commit.iteration)
        course.begun = begun
        take(course, commit)

    monkeypatch.setattr(stopwatch, "_take", counts_too_many)
    (path,) = SCENARIOS.glob("M-01-*.txt")
    report = scripted.run(scenario.parse(path.read_text(encoding="utf-8"), str(path)))
    assert {v.invariant for v in report.outcome.violations} == {"no_time_is_too_short"}
