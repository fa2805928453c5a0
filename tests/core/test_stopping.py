"""Which workers are stopped, with how much grace, and which are left alone."""

import pytest

from tests.core.reading import hold, kinds, of, task
from tests.core.story import Story, running
from tests.core.test_limits import new_leader
from tests.core.test_node_loss import raised, suspect
from tests.core.test_plan import OTHER, allocate
from tests.core.test_severity import ALL
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.decide import decide


def stops(made):
    return {b.worker: (b.grace_ms, b.reason) for b in made if isinstance(b, ev.WorkerStopOrdered)}


def test_workers_of_a_task_that_ended_get_time_to_end():
    story = running()
    story.decide_input(ev.TaskFailed(task="gpt", reason="test"))
    expected = (limits.STOP_GRACE_MS, "the task failed")
    assert stops(story.settle()) == dict.fromkeys(ALL, expected)


def test_a_worker_that_failed_goes_at_once():
    story = running()
    raised(story, "n2/0", "software")
    assert stops(story.settle()) == {"n2/0": (0, "it failed and must go")}


def test_a_worker_that_the_plan_takes_away_gets_time_to_end():
    story = running()
    allocate(story, "gpt", ALL[:3])
    expected = {"n2/1": (limits.STOP_GRACE_MS, "the plan no longer gives it to the task")}
    assert stops(story.settle()) == expected


def test_workers_of_a_sick_node_are_stopped_once_the_others_go_on_without_them():
    story = running()
    raised(story, "n2/0", "cuda.ecc")
    made = story.settle()
    assert set(stops(made)) == {"n2/0", "n2/1"}
    fence, last = [i for i, kind in enumerate(kinds(made)) if kind == "WorkerStopOrdered"]
    assert fence < kinds(made).index("TransitionOrdered") < last


def test_workers_of_a_lost_node_are_out_of_reach():
    """Nobody there could carry out an order; they count as gone."""
    story = running()
    story.lose("n2")
    assert stops(story.settle()) == {}
    assert {story.state.workers[w].status for w in ("n2/0", "n2/1")} == {"lost"}


@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_that_is_only_starting_is_stopped_too(begun):
    story = Story()
    story.join("n1")
    story.submit()
    hold(story, "start", "n1/0", "n1/1")
    story.settle()
    if begun:
        common = {"task": "gpt", "worker": ev.WorkerId("n1/0"), "incarnation": 1}
        story.fact("agent/n1", 1, ev.WorkerStarted(pid=1, **common))
        assert story.state.workers["n1/0"].status == "started"
    story.decide_input(ev.TaskFailed(task="gpt", reason="test"))
    assert set(stops(story.settle())) == {"n1/0", "n1/1"}


def test_a_new_leader_repeats_the_start_and_the_stop_of_what_nobody_has_heard_of():
    story = Story()
    story.join("n1")
    story.submit()
    hold(story, "start", "n1/0", "n1/1")
    hold(story, "stop", "n1/0", "n1/1")
    story.settle()
    story.decide_input(ev.TaskFailed(task="gpt", reason="test"))
    story.settle()
    new_leader(story)
    made = story.settle()
    assert sorted(kinds(made)) == ["WorkerStartOrdered"] * 2 + ["WorkerStopOrdered"] * 2
    assert {b.incarnation for b in made} == {1}
    assert set(stops(made).values()) == {
        (limits.STOP_GRACE_MS, "nobody confirmed it under the leader before")
    }


def test_a_parked_tasks_workers_make_room_for_another_task():
    """They hold its state, but the plan gives their devices away."""
    story = running()
    allocate(story, "gpt", [])
    story.settle()
    assert {w.status for w in story.state.workers.values()} == {"member"}
    story.solve = lambda: None
    story.submit(OTHER)
    story.settle()
    allocate(story, "bert", ["n1/0"])
    assert set(stops(story.settle())) == {"n1/0"}
    assert story.state.workers["n1/0"].task == "bert"
    assert story.state.workers["n1/1"].status == "member"


def test_a_sick_node_whose_agent_leaves_is_gone_and_not_isolated():
    story = running(nodes=3)
    hold(story, "quiesce", *ALL)
    raised(story, "n3/0", "cuda.ecc")
    story.fact("agent/n3", 1, ev.AgentStopped(node="n3", reason="test"))
    made = story.settle()
    assert "NodeIsolated" not in kinds(made)
    assert story.state.nodes["n3"].status == "lost"


def test_a_silent_node_whose_connections_closed_is_lost_without_waiting():
    story = running(nodes=3)
    story.disconnect("agent", "n3", 1)
    assert decide(story.state) is None  # its workers still speak for it
    suspect(story, "n3")
    assert decide(story.state) is None
    for name in ("n3/0", "n3/1"):
        story.exit(name)
        story.held.append(("start", name))
    made = story.settle()
    assert of(made, ev.NodeLost).evidence == "silent for 2100 ms, and its connections closed"
    assert task(story).phase == "running"
