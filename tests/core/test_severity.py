"""The ladder: what failed climbs when the action did not help; every wait has a limit."""

import pytest

from tests.core.reading import hold, incidents, is_open, kinds, limit, members, of, release, task
from tests.core.story import Story, running
from tests.core.test_node_loss import raised
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.orders import open_orders

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


# --- Limits -------------------------------------------------------------------------------------


def test_a_worker_that_cannot_be_stopped_isolates_its_node():
    story = running()
    hold(story, "stop", "n2/0")
    raised(story, "n2/0", "software")
    story.settle()
    limit(story, "stop:n2/0:1")
    made = story.settle()
    assert of(made, ev.IncidentEscalated).severity == 1
    assert story.state.nodes["n2"].status == "isolated"
    assert set(members(story)) == {"n1/0", "n1/1"}
    assert not is_open(story)
    assert deadlines(story.state) == {}


def test_an_unstoppable_worker_of_an_ended_task_isolates_its_node_too():
    story = running()
    hold(story, "stop", "n2/0")
    story.decide_input(ev.TaskFailed(task="gpt", reason="x"))
    story.settle()
    limit(story, "stop:n2/0:1")
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    assert not is_open(story)


def test_an_operator_returns_a_node_whose_worker_still_hangs():
    """It gets another try; the device isn't waited for without a limit."""
    story = running()
    hold(story, "stop", "n2/0")
    raised(story, "n2/0", "software")
    story.settle()
    limit(story, "stop:n2/0:1")
    story.settle()
    story.decide_input(ev.NodeReturned(node="n2", by="anna", reason="looks well"))
    story.settle()
    assert "stop:n2/0:1" in deadlines(story.state)


def test_a_worker_that_never_gets_ready_climbs_to_its_node():
    story = running()
    hold(story, "start", "n2/1")
    exits(story, "n2/1")
    story.settle()
    limit(story, "start:n2/1:2")
    made = story.settle()
    assert kinds(made)[0] == "WorkerStopOrdered"
    assert story.state.workers["n2/1"].incarnation == 3
    assert is_open(story)
    limit(story, "start:n2/1:3")
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    assert incidents(story)[0][0] == 1
    assert not is_open(story)


def test_a_worker_that_does_not_start_climbs_to_its_node():
    story = running()
    hold(story, "start", "n2/1")
    exits(story, "n2/1")
    story.settle()
    for life in (2, 3):
        failed_start(story, "n2/1", life)
        story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    assert not is_open(story)


def failed_start(story, name, incarnation, error="no such file"):
    worker = story.state.workers[name]
    story.fact(
        f"agent/{worker.node}",
        1,
        ev.WorkerStartFailed(
            task=worker.task, worker=worker.worker, incarnation=incarnation, error=error
        ),
    )


def test_a_stop_before_the_start_was_heard():
    """The agent answers a start whose stop it has heard with a failure: the slot is free then,
    nobody is to blame, and the start is said again until it does."""
    story = Story()
    story.join("n1")
    story.submit()
    hold(story, "start", "n1/0", "n1/1")
    hold(story, "stop", "n1/0")
    story.settle()
    story.decide_input(ev.TaskFailed(task="gpt", reason="x"))
    story.settle()
    worker = story.state.workers["n1/0"]
    said = [o.seq for o in open_orders(story.state) if o.name == "n1"]
    assert said == sorted([worker.order, worker.stop_order])
    failed_start(story, "n1/0", 1, "its stop was ordered before it began")
    assert story.state.workers["n1/0"].status == "exited"
    assert story.state.causes == ()
    assert open_orders(story.state) == ()


def test_a_generation_that_is_not_ready_in_time_is_tried_again():
    story = running()
    hold(story, "start", "n2/1")
    hold(story, "ready", "n1/0")
    exits(story, "n2/1")
    story.settle()
    limit(story, "ready:gpt:2")
    made = story.settle()
    assert kinds(made)[:2] == ["GenerationClosed", "TransitionOrdered"]
    assert task(story).generation == 3
    stores = [
        b.envelope.body.store_address
        for b in story.log
        if b.envelope and isinstance(b.envelope.body, ev.TransitionOrdered)
    ]
    assert len(stores) == 3


def test_at_the_second_time_who_holds_up_the_others_must_go():
    story = running()
    hold(story, "start", "n2/1")
    hold(story, "ready", "n1/0")
    exits(story, "n2/1")
    story.settle()
    limit(story, "ready:gpt:2")
    story.settle()
    limit(story, "ready:gpt:3")
    hold(story, "start", "n1/0")
    made = story.settle()
    assert "WorkerStopOrdered" in kinds(made)
    assert set(members(story)) == {"n1/1", "n2/0"}
    assert (task(story).phase, task(story).late) == ("running", 0)
    assert incidents(story)[0][0] == 2


def test_a_joiner_that_holds_up_a_planned_switch_must_go():
    """Members could do without it: it is restarted, and isolated if that doesn't help."""
    story = running()
    story.join("n3")
    hold(story, "ready", *ALL, "n3/0", "n3/1")
    story.settle()
    order = story.log[task(story).order - 1].envelope.body
    assert order.planned
    release(story, "ready", *ALL, "n3/0")
    story.held += [("ready", "n3/1")]
    limit(story, "ready:gpt:2")
    hold(story, "start", "n3/0", "n3/1")
    made = story.settle()
    assert {b.worker for b in made if isinstance(b, ev.WorkerStopOrdered)} == {"n3/0", "n3/1"}
    assert set(members(story)) == set(ALL)
    assert task(story).phase == "running"


def test_the_budget_of_a_task_ends_it():
    story = running()
    for _ in range(limits.FAULT_GENERATIONS_MAX + 1):
        worker = story.state.workers["n2/1"]
        exits(story, "n2/1", iteration=worker.joined_at + 5)
        story.settle()
        if task(story).phase == "failed":
            break
    assert task(story).phase == "failed"
    assert "more than the budget of 100" in task(story).outcome
    assert task(story).closes == limits.FAULT_GENERATIONS_MAX + 1


def test_growth_costs_nothing_of_the_budget():
    story = running()
    for number in range(3, 6):
        story.join(f"n{number}")
        story.settle()
    assert task(story).generation > 1
    assert task(story).closes == 0


def test_other_software_is_kept_out():
    story = running()
    story.join("n3")
    hold(story, "start", "n3/0", "n3/1")
    story.settle()
    worker = story.state.workers["n3/0"]
    story.fact(
        "worker/n3/0",
        1,
        ev.WorkerPrepared(
            task=worker.task,
            worker=worker.worker,
            incarnation=1,
            parameters=1,
            threads=4,
            torch="2",
            megatron="0",
            spec_digest="s",
        ),
    )
    story.settle()
    assert story.state.nodes["n3"].status == "isolated"
    assert set(members(story)) == set(ALL)
    assert decide(story.state) is None
