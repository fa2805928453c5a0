"""The ladder: what failed climbs when the action did not help; every wait has a limit."""

import msgspec
import pytest

from tests.core.reading import hold, incidents, is_open, members, of, release, task
from tests.core.story import SPEC, Story, running
from tests.core.test_node_loss import raised
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide

ALL = ["n1/0", "n1/1", "n2/0", "n2/1"]


def exits(story, name, iteration=-1, **end):
    """As story.exit, with how far the worker had come."""
    worker = story.state.workers[name]
    end = end or {"signal": 9, "exit_code": None}
    story.fact(
        f"agent/{worker.node}",
        story.state.nodes[worker.node].incarnation,
        ev.WorkerExited(
            task=worker.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            ordered=False,
            iteration=iteration,
            **end,
        ),
    )


def failed_start(story, name, incarnation, error="no such file"):
    worker = story.state.workers[name]
    story.fact(
        f"agent/{worker.node}",
        1,
        ev.WorkerStartFailed(
            task=worker.task, worker=worker.worker, incarnation=incarnation, error=error
        ),
    )


def test_the_same_failure_again_isolates_the_node():
    story = running()
    exits(story, "n2/1", iteration=3)
    story.settle()
    exits(story, "n2/1", iteration=3)
    made = story.settle()
    assert of(made, ev.IncidentOpened).severity == 1
    assert "the same as shortly before" in of(made, ev.IncidentOpened).what
    assert of(made, ev.NodeIsolated).node == "n2"
    assert set(members(story)) == {"n1/0", "n1/1"}
    assert not is_open(story)


def test_it_is_forgotten_once_the_worker_has_trained_for_a_while():
    """Its own iterations count, not those of others while it was away."""
    story = running()
    for life in range(1, 6):
        at = story.state.workers["n2/1"].joined_at
        exits(story, "n2/1", iteration=at + limits.SIGNATURE_MEMORY_ITERATIONS)
        story.settle()
        assert story.state.workers["n2/1"].incarnation == life + 1
    assert {severity for severity, _ in incidents(story)} == {2}


def test_another_failure_does_not_climb():
    story = running()
    exits(story, "n2/1", iteration=1)
    story.settle()
    exits(story, "n2/1", iteration=1, exit_code=None, signal=11)
    story.settle()
    assert [severity for severity, _ in incidents(story)] == [2, 2]


def test_bad_code_fails_the_task_and_spares_the_nodes():
    """Every worker fails in the same way, twice: that isn't the fault of all nodes at once."""
    story = running()
    for _ in range(2):
        for name in ALL:
            if task(story).phase != "failed":
                raised(story, name, "software")
        story.settle()
    assert task(story).phase == "failed"
    assert "the task itself is at fault" in task(story).outcome
    assert {n.status for n in story.state.nodes.values()} == {"healthy"}
    assert not is_open(story)


def alone(**spec):
    """The task on the only node there is."""
    story = Story()
    story.join("n1")
    story.submit(msgspec.structs.replace(SPEC, **spec))
    return story


def test_the_last_node_is_not_isolated_for_a_process_that_keeps_dying():
    story = alone()
    story.settle()
    for _ in range(3):
        exits(story, "n1/1")
        story.settle()
    assert story.state.nodes["n1"].status == "healthy"
    assert set(members(story)) == {"n1/0", "n1/1"}


def test_nor_is_it_tried_for_ever():
    """The device is given up; the task goes on with the others, and the incident has an end."""
    story = alone()
    story.settle()
    hold(story, "start", "n1/1")
    exits(story, "n1/1")
    story.settle()
    for life in range(2, 2 + limits.SAME_FAILURES_MAX):
        assert is_open(story)
        failed_start(story, "n1/1", life)
        story.settle()
    assert story.state.nodes["n1"].given_up == (1,)
    assert members(story) == ["n1/0"]
    assert not is_open(story)
    assert decide(story.state) is None
    story.decide_input(ev.NodeReturned(node="n1", by="anna", reason="new cable"))
    story.settle()
    assert "start:n1/1:7" in deadlines(story.state)


def test_nothing_is_left_of_the_last_node():
    """It is parked with its reason, and goes on elsewhere."""
    story = alone()
    story.settle()
    for name in ("n1/0", "n1/1"):
        for _ in range(2 * limits.SAME_FAILURES_MAX):
            if story.state.workers[name].status == "member":
                exits(story, name)
                story.settle()
    assert task(story).allocation.slots == ()
    assert not is_open(story)
    story.join("n2")
    story.settle()
    assert set(members(story)) == {"n2/0", "n2/1"}


def test_bad_code_on_the_only_node_fails_the_task():
    story = alone()
    hold(story, "start", "n1/0", "n1/1")
    story.settle()
    for life in range(1, 1 + limits.SAME_FAILURES_MAX):
        failed_start(story, "n1/0", life)
        story.settle()
    assert task(story).phase == "failed"
    assert "before the task has trained at all" in task(story).outcome
    assert not is_open(story)


@pytest.mark.parametrize("kind,severity", [("cuda.ecc", 1), ("software", 2), ("unheard of", 2)])
def test_an_exception_has_the_severity_of_its_kind(kind, severity):
    story = running()
    raised(story, "n2/1", kind)
    made = story.settle()
    assert of(made, ev.IncidentOpened).severity == severity
    assert (story.state.nodes["n2"].status == "isolated") is (severity == 1)
    assert not is_open(story)


def test_an_exception_and_the_exit_that_follows_are_one_failure():
    story = running()
    hold(story, "stop", "n2/1")
    raised(story, "n2/1", "software")
    exits(story, "n2/1", exit_code=1, signal=None)
    story.settle()
    assert len(story.state.workers["n2/1"].failures) == 1
    assert [severity for severity, _ in incidents(story)] == [2]


def test_an_exception_that_is_heard_after_the_exit_still_isolates():
    story = running()
    exits(story, "n2/1", exit_code=1, signal=None)
    raised(story, "n2/1", "cuda.ecc")
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    assert [severity for severity, _ in incidents(story)] == [1]


def test_a_second_sick_node_is_isolated_within_the_same_incident():
    """Its evidence joins the open incident, and its node is isolated all the same."""
    story = running(nodes=3)
    hold(story, "ready", *ALL, "n3/0", "n3/1")
    raised(story, "n3/0", "cuda.ecc")
    story.settle()
    raised(story, "n2/0", "cuda.ecc")
    release(story, "ready", *ALL, "n3/0", "n3/1")
    story.settle()
    assert [n.status for n in story.state.nodes.values()] == ["healthy", "isolated", "isolated"]
    assert [severity for severity, _ in incidents(story)] == [1]
    assert set(members(story)) == {"n1/0", "n1/1"}


def test_a_sick_node_does_not_heal_by_restarting_its_agent():
    story = running()
    raised(story, "n2/0", "cuda.ecc")
    story.settle()
    story.join("n2", incarnation=2)
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    story.decide_input(ev.NodeReturned(node="n2", by="anna", reason="new board"))
    story.settle()
    assert story.state.nodes["n2"].status == "healthy"
    assert len(members(story)) == 4


def test_the_newest_state_is_handed_over_by_a_worker_of_the_isolated_node():
    """The whole task was there; it doesn't start again from the beginning."""
    story = Story()
    story.join("n1")
    story.submit()
    story.settle()
    raised(story, "n1/0", "cuda.ecc")
    story.settle()
    assert task(story).allocation.slots == ()
    story.join("n2")
    made = story.settle()
    first, second = [b for b in made if isinstance(b, ev.TransitionOrdered)]
    assert [m.worker for m in first.members] == ["n1/1", "n2/0", "n2/1"]
    assert [m.state_from for m in first.members] == [None, 0, 0]
    assert second.planned
    assert set(members(story)) == {"n2/0", "n2/1"}
    assert story.state.workers["n1/1"].status == "exited"
