"""The last iteration: who finishes, who dies while others finish, orders that come too late."""

import pytest

from tests.core.reading import hold, incidents, is_open, kinds, of, task
from tests.core.story import running
from unicron import events as ev
from unicron.controlplane.core.decide import decide

ALL = ["n1/0", "n1/1", "n2/0", "n2/1"]
LAST = 100


def finish(story, name, generation=None, digest="d"):
    worker = story.state.workers[name]
    story.fact(
        f"worker/{name}",
        worker.incarnation,
        ev.MemberFinished(
            task=worker.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            generation=generation or task(story).generation,
            iteration=LAST,
            state_digest=digest,
        ),
    )


def test_a_task_that_finished_stops_its_workers():
    story = running()
    for name in ALL:
        assert decide(story.state) is None
        finish(story, name)
    made = story.settle()
    assert kinds(made) == ["TaskCompleted"] + ["WorkerStopOrdered"] * 4
    assert of(made, ev.TaskCompleted).state_digest == "d"
    assert {w.status for w in story.state.workers.values()} == {"exited"}
    assert not story.state.incidents


def test_members_that_finished_with_different_states_fail_the_task():
    story = running()
    for name in ALL:
        finish(story, name, digest="d" if name != "n2/1" else "e")
    story.settle()
    assert task(story).phase == "failed"
    assert "different states ['d', 'e']" in task(story).outcome


def test_an_open_incident_ends_with_the_task():
    story = running()
    hold(story, "start", "n2/1")
    story.exit("n2/1")
    story.settle()
    for name in ("n1/0", "n1/1", "n2/0"):
        finish(story, name)
    story.settle()
    assert task(story).phase == "completed"
    assert incidents(story) == [(2, "the task completed: completed iteration 100")]
    assert story.state.workers["n2/1"].status in ("stopping", "exited")


def test_one_dies_after_all_have_finished():
    story = running()
    for name in ALL:
        finish(story, name)
    story.exit("n2/1")
    made = story.settle()
    assert "GenerationClosed" not in kinds(made)
    assert task(story).phase == "completed"
    assert not is_open(story)


@pytest.mark.parametrize("reduced", [True, False])
def test_one_dies_when_some_have_finished(reduced):
    """n1/0 has finished, n2/1 dies between vote and step: the others step forward and finish."""
    story = running()
    finish(story, "n1/0")
    hold(story, "quiesce", *ALL)
    hold(story, "commit", *ALL)  # there is no iteration left to commit
    story.exit("n2/1")
    story.settle()
    story.quiesce("n1/0", iteration=LAST)
    for name in ("n1/1", "n2/0"):
        story.quiesce(name, iteration=LAST - reduced, reduced=reduced)
    order = of(story.settle(), ev.TransitionOrdered)
    assert order.iteration == LAST
    assert {m.worker for m in order.members if m.step_forward} == (
        {"n1/1", "n2/0"} if reduced else set()
    )
    assert task(story).finished == {}
    for name in ("n1/0", "n1/1", "n2/0"):
        finish(story, name)
    story.settle()
    assert task(story).phase == "completed"


def test_who_finished_dies_and_so_do_the_others():
    """What was finished in a closed generation doesn't keep workers from being started again."""
    story = running()
    finish(story, "n1/0")
    for name in ALL:
        story.exit(name)
    story.settle()
    assert task(story).phase == "running"
    assert {w.incarnation for w in story.state.workers.values()} == {2}
    assert not is_open(story)


def test_a_finish_that_is_heard_after_the_close_comes_in_the_answer():
    story = running()
    hold(story, "quiesce", *ALL)
    hold(story, "commit", *ALL)
    story.exit("n2/1")
    story.settle()
    finish(story, "n1/0", generation=1)
    assert task(story).finished == {}
    for name in ("n1/0", "n1/1", "n2/0"):
        story.quiesce(name, iteration=LAST)
    story.settle()
    for name in ("n1/0", "n1/1", "n2/0"):
        finish(story, name)
    story.settle()
    assert task(story).phase == "completed"


def growing():
    """A planned order is about to be made: its verdict, and the state it was decided on."""
    story = running()
    story.join("n3")
    while not isinstance(decide(story.state).body, ev.TransitionOrdered):
        story.react(story.step())
    return story, decide(story.state), story.state


def test_members_finish_while_a_planned_order_is_out():
    story, verdict, at = growing()
    story.write(verdict, at)
    for name in ALL:
        finish(story, name, generation=1)
    story.settle()
    assert task(story).phase == "completed"
    assert {w.status for w in story.state.workers.values()} == {"exited"}


def test_a_finish_between_a_planned_orders_basis_and_the_order_counts():
    """Nobody says it a second time."""
    story, verdict, at = growing()
    finish(story, "n1/0", generation=1)
    story.write(verdict, at)
    for name in ALL[1:]:
        finish(story, name, generation=1)
    story.settle()
    assert task(story).phase == "completed"


@pytest.mark.parametrize("dead", ["n2/1", "n3/0"])
def test_a_death_between_a_planned_orders_basis_and_the_order_counts(dead):
    story, verdict, at = growing()
    hold(story, "start", dead)
    story.exit(dead)
    story.write(verdict, at)
    made = story.settle()
    assert of(made, ev.GenerationClosed).generation == 2
    assert task(story).phase == "running"


def test_a_leaver_dies_between_a_planned_orders_basis_and_the_order():
    """It isn't in the new generation, but the old one, in which the others train on, is broken."""
    from tests.core.test_plan import allocate

    story = running()
    allocate(story, "gpt", ["n1/0", "n1/1", "n2/0"])
    verdict, at = decide(story.state), story.state
    assert verdict.body.planned
    story.exit("n2/1")
    story.write(verdict, at)
    made = story.settle()
    assert "GenerationClosed" in kinds(made)
    assert task(story).phase == "running"


def test_nobody_joins_for_the_last_iteration():
    story, verdict, _ = growing()
    assert verdict.body.planned
    finish(story, "n1/0", generation=1)
    assert decide(story.state) is None


def test_nobody_starts_a_worker_for_the_last_iteration():
    story = running()
    finish(story, "n1/0")
    story.join("n3")
    made = story.settle()
    assert "WorkerStartOrdered" not in kinds(made)
    for name in ALL[1:]:
        finish(story, name)
    story.settle()
    assert task(story).phase == "completed"
