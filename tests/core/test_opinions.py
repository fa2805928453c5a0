"""What the monitor thinks of a task that stands still, and of slow ranks."""

import pytest

from tests.core.reading import hold, incidents, kinds, members, of, task
from tests.core.story import running
from tests.core.test_severity import ALL
from unicron import events as ev
from unicron.controlplane.core.decide import decide


def stall(story, *behind, generation=None):
    """The monitor says that the task makes no progress."""
    story.decide_input(
        ev.TaskStalled(
            task="gpt",
            generation=generation or task(story).generation,
            behind=behind,
            stalled_ms=1300,
            evidence="test",
        )
    )


def slow(story, name, percent, incarnation=None):
    """The monitor names a slow worker, or says that it is no longer."""
    worker = story.state.workers[name]
    story.decide_input(
        ev.WorkerSlow(
            task=worker.task,
            worker=worker.worker,
            incarnation=incarnation or worker.incarnation,
            percent=percent,
            evidence="test",
        )
    )


def unchanged(story, before):
    """Nothing but the count of void decisions."""
    return (story.state.tasks, story.state.workers, story.state.causes, story.state.void) == (
        before.tasks,
        before.workers,
        before.causes,
        before.void + 1,
    )


def test_who_stands_behind_hangs_and_is_replaced():
    story = running()
    hold(story, "start", "n2/1")
    stall(story, "n2/1")
    made = story.settle()
    opened = of(made, ev.IncidentOpened)
    assert (opened.severity, opened.worker, opened.node) == (2, "n2/1", "n2")
    assert opened.what == "worker n2/1 hangs: the task makes no progress for 1300 ms"
    assert of(made, ev.WorkerStopOrdered).worker == "n2/1"
    assert set(members(story)) == set(ALL) - {"n2/1"}


def test_several_may_stand_behind():
    story = running()
    hold(story, "start", "n1/1", "n2/1")
    stall(story, "n1/1", "n2/1")
    story.settle()
    assert set(members(story)) == {"n1/0", "n2/0"}
    assert [severity for severity, _ in incidents(story)] == [2]


def test_if_nobody_stands_behind_it_is_the_collective():
    """Same members, same processes, next generation."""
    story = running()
    stall(story)
    made = story.settle()
    opened = of(made, ev.IncidentOpened)
    assert (opened.severity, opened.what) == (3, "no member of gpt makes progress for 1300 ms")
    assert kinds(made).count("TransitionOrdered") == 1
    assert not {"WorkerStopOrdered", "WorkerStartOrdered"} & set(kinds(made))
    assert (task(story).generation, set(members(story))) == (2, set(ALL))


@pytest.mark.parametrize("generation,behind", [(1, ("n2/1",)), (2, ("n9/9",)), (3, ("n2/1",))])
def test_an_opinion_about_other_members_or_generations_is_void(generation, behind):
    story = running()
    stall(story)
    story.settle()
    before = story.state
    stall(story, *behind, generation=generation)
    assert unchanged(story, before)
    assert decide(story.state) is None


def test_an_opinion_about_a_task_that_stands_or_is_unknown_is_void():
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    assert task(story).phase == "closed"
    before = story.state
    stall(story, "n2/0")
    assert unchanged(story, before)
    story.decide_input(
        ev.TaskStalled(task="x", generation=1, behind=(), stalled_ms=1, evidence="test")
    )
    assert story.state.void == before.void + 2


def test_who_is_gone_already_does_not_hang():
    """Its exit was heard between the opinion's basis and the opinion: one failure, not two."""
    story = running()
    story.exit("n2/1")
    stall(story, "n2/1")
    assert story.state.workers["n2/1"].status == "exited"
    assert len(story.state.workers["n2/1"].failures) == 1
    assert story.state.void == 0


def test_a_slow_worker_is_named_and_left_alone():
    story = running()
    slow(story, "n2/1", 180)
    assert story.state.workers["n2/1"].slow_percent == 180
    assert decide(story.state) is None
    slow(story, "n2/1", 100)
    assert story.state.workers["n2/1"].slow_percent == 0
    slow(story, "n2/1", 101)
    assert story.state.workers["n2/1"].slow_percent == 101


def test_a_slow_earlier_life_is_not_the_present_one():
    story = running()
    story.exit("n2/1")
    story.settle()
    before = story.state
    slow(story, "n2/1", 180, incarnation=1)
    assert unchanged(story, before)
