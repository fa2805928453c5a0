"""Every wait has a limit, and what happens at it has an end."""

from tests.core.reading import hold, incidents, is_open, kinds, limit, members, of, release, task
from tests.core.story import Story, running
from tests.core.test_node_loss import raised
from tests.core.test_severity import ALL, exits, failed_start
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.fold_task import awaited
from unicron.controlplane.core.orders import open_orders


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


def new_leader(story):
    story.decide_input(
        ev.LeadershipTaken(
            cluster="c", instance="i2", logic_version=1, fold_version=1, version="test"
        )
    )


def test_a_new_leader_repeats_starts_that_nobody_confirmed():
    """An agent that has heard of its term refuses older ones; the life stays the same."""
    story = running()
    hold(story, "start", "n2/1")
    exits(story, "n2/1")
    story.settle()
    old = story.state.workers["n2/1"]
    new_leader(story)
    made = story.settle()
    assert kinds(made) == ["WorkerStartOrdered"]
    assert made[0].incarnation == old.incarnation
    assert story.state.workers["n2/1"].order > story.state.term
    common = {"task": old.task, "worker": old.worker, "incarnation": old.incarnation}
    story.fact("agent/n2", 1, ev.WorkerStarted(pid=1, **common))
    new_leader(story)
    assert decide(story.state) is None


def test_a_new_leader_repeats_stops_that_nobody_confirmed():
    story = running()
    hold(story, "stop", "n2/0")
    raised(story, "n2/0", "software")
    story.settle()
    new_leader(story)
    made = story.settle()
    assert kinds(made) == ["WorkerStopOrdered"]
    assert story.state.workers["n2/0"].stop_order > story.state.term
    story.exit("n2/0", ordered=True)
    story.settle()
    assert len(members(story)) == 4


def test_what_a_worker_says_while_it_is_stopped_is_our_own_doing():
    story = running()
    hold(story, "stop", *ALL)
    story.decide_input(ev.TaskFailed(task="gpt", reason="cancelled"))
    story.settle()
    before = story.state
    raised(story, "n2/0", "software")
    assert (story.state.causes, story.state.void) == ((), before.void)
    assert story.state.workers == before.workers


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


def test_who_is_out_of_budget_is_not_ordered_again_though_all_have_answered(monkeypatch):
    """The answers may be in before the decision that gives the task up is made."""
    monkeypatch.setattr(limits, "FAULT_GENERATIONS_MAX", 0)
    story = running()
    exits(story, "n2/1")
    while task(story).phase != "closed":
        story.react(story.step())
    assert task(story).answers
    assert not awaited(story.state, task(story))
    made = story.settle()
    assert not [b for b in made if isinstance(b, ev.TransitionOrdered)]
    assert "more than the budget of 0" in of(made, ev.TaskFailed).reason


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
