"""What no longer applies, or never did, changes nothing: a decision is counted as void, a fact or
a limit is passed over."""

import msgspec
import pytest

from tests.core.reading import hold, limit, task
from tests.core.story import SPEC, Story, running
from tests.core.test_node_loss import suspect
from tests.core.test_plan import asking
from tests.core.test_severity import ALL
from unicron import events as ev
from unicron.controlplane.core.deadlines import deadlines

COMMON = {"task": "gpt", "worker": "n2/1", "incarnation": 1}


def check(story, body, *, void=True):
    """The decision leaves everything as it was."""
    before = story.state
    story.decide_input(body)
    same = msgspec.structs.replace(
        story.state, seq=before.seq, sources=before.sources, void=before.void
    )
    assert same == before
    assert story.state.void == before.void + void


def start(**changed):
    fields = {"task": "gpt", "worker": "n2/1", "incarnation": 2, "node": "n2", "device": 1}
    return ev.WorkerStartOrdered(**{**fields, "spec": SPEC, "reason": "test", **changed})


def stop(**changed):
    fields = {**COMMON, "node": "n2", "grace_ms": 0, "reason": "test"}
    return ev.WorkerStopOrdered(**{**fields, **changed})


def order(generation, *, planned, members=()):
    return ev.TransitionOrdered(
        task="gpt",
        generation=generation,
        planned=planned,
        iteration=0,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=len(members),
        store_address="a",
        store_port=1,
        members=members,
        reason="test",
    )


def solved(request):
    return ev.PlanSolved(
        request=request, problem_digest="", source="cpsat", value=0, waf_milli=0, allocations=()
    )


def opened(incident, **where):
    return ev.IncidentOpened(incident=incident, severity=2, what="test", **where)


def escalated(incident, severity=1):
    return ev.IncidentEscalated(incident=incident, severity=severity, reason="test")


NOWHERE = {
    "a task's end": ev.TaskCompleted(task="x", iteration=1, state_digest=""),
    "a task's failure": ev.TaskFailed(task="x", reason="test"),
    "a close": ev.GenerationClosed(task="x", generation=1, reason="test"),
    "an order": msgspec.structs.replace(order(1, planned=False), task="x"),
    "a completion": ev.TransitionCompleted(task="x", generation=1, iteration=1),
    "a start of an unknown task": start(task="x"),
    "a start on an unknown node": start(node="n9", worker="n9/1"),
    "a start under another's name": start(worker="n1/1"),
    "a stop": stop(worker="n9/1"),
    "a suspicion": ev.NodeSuspected(node="x", incarnation=1, newest_fact=9, evidence="test"),
    "a recovery": ev.NodeRecovered(node="x", incarnation=1, evidence="test"),
    "a loss": ev.NodeLost(node="x", incarnation=1, evidence="test"),
    "an isolation": ev.NodeIsolated(node="x", reason="test"),
    "an admission": ev.NodeAdmitted(node="x", incarnation=1),
    "a return": ev.NodeReturned(node="x", by="anna", reason="test"),
    "an escalation": escalated("x"),
    "a resolution": ev.IncidentResolved(incident="x", outcome="test"),
    "an answer": solved(7),
    "a dropped answer": ev.PlanDropped(request=7, reason="test"),
    "a slow worker": ev.WorkerSlow(**{**COMMON, "worker": "x"}, percent=200, evidence="test"),
}


@pytest.mark.parametrize("body", NOWHERE.values(), ids=NOWHERE)
def test_a_decision_about_what_does_not_exist(body):
    check(running(), body)


NOT_NOW = {
    "a name that is taken": ev.TaskSubmitted(spec=SPEC, by="test"),
    "a close of another generation": ev.GenerationClosed(task="gpt", generation=2, reason="test"),
    "a completion while it runs": ev.TransitionCompleted(task="gpt", generation=1, iteration=1),
    "an unplanned order while it runs": order(2, planned=False),
    "an order that leaves out a generation": order(3, planned=True),
    "an order of the generation that stands": order(1, planned=True),
    "a start of the life that has begun": start(incarnation=1),
    "a start of an earlier life": start(incarnation=0),
    "a stop of another life": stop(incarnation=2),
    "a suspicion of another life": ev.NodeSuspected(
        node="n2", incarnation=2, newest_fact=99, evidence="test"
    ),
    "a recovery of who is well": ev.NodeRecovered(node="n2", incarnation=1, evidence="test"),
    "a loss of another life": ev.NodeLost(node="n2", incarnation=2, evidence="test"),
    "an isolation for a loss that is over": ev.NodeIsolated(node="n2", reason="lost: test"),
    "an admission of who is in": ev.NodeAdmitted(node="n2", incarnation=1),
    "a return of who is in": ev.NodeReturned(node="n2", by="anna", reason="test"),
    "a request that nothing calls for": ev.PlanRequested(reason="test"),
    "an answer to no request": solved(0),
}


@pytest.mark.parametrize("body", NOT_NOW.values(), ids=NOT_NOW)
def test_a_decision_that_does_not_apply_to_a_task_that_trains(body):
    check(running(), body)


def test_decisions_about_a_suspected_node():
    story = running(nodes=3)
    suspect(story, "n3")
    check(story, ev.NodeSuspected(node="n3", incarnation=1, newest_fact=99, evidence="again"))
    check(story, ev.NodeRecovered(node="n3", incarnation=2, evidence="another life"))


def test_decisions_about_a_node_that_joins():
    story = Story()
    story.join("n1")
    check(story, ev.NodeAdmitted(node="n1", incarnation=2))
    check(story, ev.NodeSuspected(node="n1", incarnation=1, newest_fact=99, evidence="test"))
    story.decide_input(ev.NodeIsolated(node="n1", reason="sick: test"))
    check(story, ev.NodeIsolated(node="n1", reason="sick: again"))
    check(story, ev.NodeAdmitted(node="n1", incarnation=1))


def test_a_node_that_is_lost_does_not_come_back_by_an_operators_word():
    """Only its agent can bring it back."""
    story = running()
    story.lose("n2")
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    check(story, ev.NodeReturned(node="n2", by="anna", reason="test"))


def test_decisions_about_an_incident():
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    (name,) = story.state.incidents
    check(story, opened(name))
    check(story, opened("inc-other", task="gpt"))  # its task has one
    check(story, escalated(name, severity=2))
    check(story, escalated(name, severity=3))
    for member in ALL[:3]:
        story.quiesce(member)
    story.held.clear()
    story.settle()
    assert story.state.incidents[name].resolved
    check(story, opened(name))
    check(story, escalated(name))
    check(story, ev.IncidentResolved(incident=name, outcome="again"))


def test_an_incident_of_a_task_that_is_not_known():
    """Its node's loss is still told of."""
    story = running()
    story.decide_input(opened("inc-x", task="x"))
    assert story.state.incidents["inc-x"].task == "x"
    story.decide_input(ev.IncidentResolved(incident="inc-x", outcome="over"))
    assert story.state.incidents["inc-x"].outcome == "over"
    assert task(story).incident is None


def test_decisions_about_plans_while_one_is_made():
    story = asking()
    request = story.state.plan.request
    check(story, ev.PlanRequested(reason="again"))
    check(story, solved(request + 1))
    wanted = story.state.plan.wanted
    for key in (f"replan:{request}", f"replan:{wanted}", f"solve:{wanted}"):
        check(story, ev.DeadlinePassed(key=key, limit_ms=1), void=False)
    check(story, ev.PlanDropped(request=request + 1, reason="test"))
    story.answer()
    check(story, solved(request))  # there is an answer already
    story.settle()
    check(story, solved(request))
    check(story, ev.PlanDropped(request=request, reason="test"))


def test_decisions_about_a_closed_generation():
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    assert task(story).phase == "closed"
    check(story, ev.GenerationClosed(task="gpt", generation=1, reason="again"))
    check(story, order(2, planned=True))
    check(story, ev.TransitionCompleted(task="gpt", generation=1, iteration=1))


def test_decisions_about_an_order_that_is_out():
    story = running()
    hold(story, "ready", *ALL)
    story.exit("n2/1")
    story.settle()
    assert task(story).phase == "ordered"
    check(story, order(3, planned=True))
    check(story, order(3, planned=False))
    check(story, ev.TransitionCompleted(task="gpt", generation=1, iteration=1))
    check(story, ev.GenerationClosed(task="gpt", generation=1, reason="test"))


def test_decisions_about_a_task_that_has_ended():
    story = running()
    story.decide_input(ev.TaskFailed(task="gpt", reason="first"))
    check(story, ev.TaskFailed(task="gpt", reason="second"))
    check(story, ev.TaskCompleted(task="gpt", iteration=100, state_digest=""))
    check(story, order(2, planned=False))
    story.settle()
    check(story, start())
    assert task(story).outcome == "first"


def test_a_start_on_a_lost_node():
    story = running()
    story.exit("n2/1")
    story.fact("agent/n2", 1, ev.AgentStopped(node="n2", reason="test"))
    check(story, start())


@pytest.mark.parametrize(
    "key",
    [
        "confirm:n9:1",
        "confirm:n1:1",
        "start:n9/1:1",
        "start:n2/1:1",
        "start:n2/1:2",
        "stop:n9/1:1",
        "stop:n2/1:1",
        "quiesce:x:1",
        "quiesce:gpt:1",
        "ready:x:1",
        "ready:gpt:1",
        "solve:7",
        "solve:0",
        "replan:7",
        "replan:0",
        "nonsense:gpt:1",
        "",
    ],
)
def test_a_limit_of_what_is_not_waited_for(key):
    check(running(), ev.DeadlinePassed(key=key, limit_ms=1), void=False)


@pytest.mark.parametrize("key", ["quiesce:gpt:2", "ready:gpt:1", "ready:gpt:2", "stop:n2/0:1"])
def test_a_limit_of_another_wait_than_a_closed_task_has(key):
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    assert "quiesce:gpt:1" in deadlines(story.state)
    check(story, ev.DeadlinePassed(key=key, limit_ms=1), void=False)


def test_limits_that_come_again():
    """A leader may write one that its predecessor wrote already."""
    story = running()
    hold(story, "quiesce", "n2/0")
    hold(story, "stop", "n2/0")
    hold(story, "start", "n2/1")
    story.exit("n2/1")
    story.settle()
    limit(story, "quiesce:gpt:1")
    check(story, ev.DeadlinePassed(key="quiesce:gpt:1", limit_ms=1), void=False)
    story.settle()
    limit(story, "stop:n2/0:1")
    check(story, ev.DeadlinePassed(key="stop:n2/0:1", limit_ms=1), void=False)
    check(story, ev.DeadlinePassed(key="start:n2/0:1", limit_ms=1), void=False)
    assert "start:n2/1:2" in deadlines(story.state)
    check(story, ev.DeadlinePassed(key="start:n2/1:1", limit_ms=1), void=False)
    check(story, ev.DeadlinePassed(key="stop:n2/1:2", limit_ms=1), void=False)


def test_facts_about_nodes_that_are_not_known():
    story = running()
    before = story.state
    story.fact("agent/n9", 1, ev.StoreBound(node="n9", address="a", store_port=1))
    story.fact("agent/n9", 1, ev.AgentStopped(node="n9", reason="test"))
    assert (story.state.nodes, story.state.plan) == (before.nodes, before.plan)
