"""A node is lost, isolated, comes, returns; opinions about it, and when none is acted on."""

import pytest

from tests.core.reading import hold, incidents, kinds, limit, members, of, task
from tests.core.story import Story, running
from unicron import events as ev
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.limits import CLOSED_MS


def suspect(story, node, newest_fact=None):
    known = story.state.nodes[node]
    story.decide_input(
        ev.NodeSuspected(
            node=known.node,
            incarnation=known.incarnation,
            newest_fact=known.last_fact if newest_fact is None else newest_fact,
            evidence="silent for 2100 ms",
        )
    )


def test_a_node_whose_connections_all_closed_is_lost_when_they_stay_so():
    story = running()
    story.lose("n2")
    hold(story, "ready", "n1/0", "n1/1")
    made = story.settle()
    assert kinds(made) == [
        "NodeLost",
        "IncidentOpened",
        "GenerationClosed",
        "NodeIsolated",
        "PlanDecided",
        "TransitionOrdered",
    ]
    assert of(made, ev.IncidentOpened).severity == 1
    assert of(made, ev.PlanDecided).source == "local"  # nobody waits for the solver
    assert of(made, ev.TransitionOrdered).data_parallel == 2
    assert story.state.nodes["n2"].status == "isolated"


def test_the_survivors_train_before_the_solver_is_asked():
    story = running()
    story.lose("n2")
    made = kinds(story.settle())
    assert made.index("TransitionCompleted") < made.index("PlanRequested")
    assert made[-1] == "IncidentResolved"
    assert incidents(story) == [(1, "trains on 2 devices, generation 2")]


def test_a_joining_node_grows_the_task():
    story = running()
    story.lose("n2")
    story.settle()
    story.join("n3")
    made = story.settle()
    assert kinds(made) == [
        "NodeAdmitted",
        "PlanRequested",
        "PlanDecided",
        "WorkerStartOrdered",
        "WorkerStartOrdered",
        "TransitionOrdered",
        "TransitionCompleted",
    ]
    assert of(made, ev.TransitionOrdered).planned
    assert set(members(story)) == {"n1/0", "n1/1", "n3/0", "n3/1"}
    assert len(story.state.incidents) == 1  # growth is no incident


def test_one_closed_connection_is_no_loss():
    """Shims lose theirs when they hold the interpreter for long; so may an agent."""
    story = running()
    story.disconnect("worker", "n2/1", 1)
    assert decide(story.state) is None
    story.disconnect("agent", "n2", 1)
    assert decide(story.state) is None
    assert "closed:" not in str(deadlines(story.state))
    story.disconnect("worker", "n2/0", 1)
    assert decide(story.state) is None
    story.stay_closed("n2")
    assert kinds([story.step()]) == ["NodeLost"]


def test_connections_that_are_back_before_the_limit_cost_no_node():
    """A switch resets all connections of a node at once; its agent is back in no time. The limit
    that ran meanwhile means nothing any more, nor does it for the next reset."""
    story = running()
    story.cut("n2")
    (key,) = [key for key in deadlines(story.state) if key.startswith("closed:n2:")]
    story.connect("agent", "n2", 1)
    assert "closed:" not in str(deadlines(story.state))
    before = story.state
    story.decide_input(ev.DeadlinePassed(key=key, limit_ms=CLOSED_MS))
    assert story.state.nodes == before.nodes
    assert decide(story.state) is None
    story.disconnect("agent", "n2", 1)
    story.decide_input(ev.DeadlinePassed(key=key, limit_ms=CLOSED_MS))
    assert decide(story.state) is None
    story.stay_closed("n2")
    assert kinds([story.step()]) == ["NodeLost"]


def test_a_connection_that_was_opened_again_is_open():
    story = running()
    for kind, name in (("agent", "n2"), ("worker", "n2/0"), ("worker", "n2/1")):
        story.disconnect(kind, name, 1)
        story.connect(kind, name, 1)
    assert decide(story.state) is None


def test_a_silent_node_is_lost_once_its_limit_has_passed():
    story = running(nodes=3)
    suspect(story, "n3")
    assert story.state.nodes["n3"].status == "suspected"
    assert decide(story.state) is None  # suspected, not lost: it keeps its work
    limit(story, "confirm:n3")
    assert kinds(story.settle())[0] == "NodeLost"


def test_a_flap_shorter_than_the_grace_changes_nothing():
    story = running(nodes=3)
    before = story.state.tasks
    suspect(story, "n3")
    story.decide_input(ev.NodeRecovered(node="n3", incarnation=1, evidence="heard"))
    assert story.settle() == []
    assert story.state.nodes["n3"].status == "healthy"
    assert story.state.tasks == before
    assert deadlines(story.state) == {}


def test_a_limit_of_an_earlier_suspicion_is_void():
    story = running(nodes=3)
    suspect(story, "n3")
    (key,) = deadlines(story.state)
    story.decide_input(ev.NodeRecovered(node="n3", incarnation=1, evidence="heard"))
    suspect(story, "n3")
    story.decide_input(ev.DeadlinePassed(key=key, limit_ms=1))
    assert decide(story.state) is None


def test_an_opinion_is_void_once_a_later_fact_was_heard():
    story = running(nodes=3)
    formed = story.state.nodes["n3"].last_fact
    store = ev.StoreBound(node="n3", address="127.0.0.1", store_port=2)
    story.fact("agent/n3", 1, store)
    suspect(story, "n3", newest_fact=formed)
    assert story.state.nodes["n3"].status == "healthy"
    assert story.state.void == 1


def test_when_most_nodes_are_silent_none_is_acted_on():
    story = running(nodes=3)
    suspect(story, "n2")
    suspect(story, "n3")
    limit(story, "confirm:n2")
    limit(story, "confirm:n3")
    assert decide(story.state) is None
    assert task(story).phase == "running"
    story.decide_input(ev.NodeRecovered(node="n3", incarnation=1, evidence="heard"))
    assert kinds([story.step()]) == ["NodeLost"]


def test_when_most_connections_close_none_is_acted_on():
    story = running(nodes=3)
    story.lose("n1")
    story.lose("n2")
    assert decide(story.state) is None


def test_a_new_leader_forgets_suspicions():
    """Unknown is not lost."""
    story = running(nodes=3)
    suspect(story, "n3")
    limit(story, "confirm:n3")
    story.decide_input(
        ev.LeadershipTaken(
            cluster="c", instance="i2", logic_version=1, fold_version=1, version="test"
        )
    )
    assert story.state.nodes["n3"].status == "healthy"
    assert story.settle() == []


def test_a_decision_of_another_term_is_void():
    story = running()
    term = story.state.term
    story.decide_input(
        ev.LeadershipTaken(
            cluster="c", instance="i2", logic_version=1, fold_version=1, version="test"
        )
    )
    body = ev.NodeLost(node="n2", incarnation=1, evidence="an old leader says so")
    story._append("control/i0", 1, body, term=term)
    assert story.state.nodes["n2"].status == "healthy"
    assert story.state.void == 1


def test_both_workers_of_a_lost_node_belong_to_one_incident():
    """The exits are heard first, then the node is lost: it becomes more severe."""
    story = running()
    story.exit("n2/0")
    hold(story, "quiesce", "n1/0")
    story.settle()
    story.lose("n2")
    story.settle()
    story.quiesce("n1/0")
    made = story.settle()
    assert "IncidentOpened" not in kinds(made)
    assert [severity for severity, _ in incidents(story)] == [1]
    assert set(members(story)) == {"n1/0", "n1/1"}


# --- Coming back --------------------------------------------------------------------------------


def test_an_agent_that_starts_anew_while_its_workers_live():
    """Its keeper kills them: the log holds them for gone."""
    story = running()
    story.join("n2", incarnation=2)
    made = story.settle()
    assert kinds(made)[:2] == ["IncidentOpened", "GenerationClosed"]
    assert of(made, ev.IncidentOpened).severity == 2
    assert set(members(story)) == {"n1/0", "n1/1", "n2/0", "n2/1"}
    assert story.state.workers["n2/0"].incarnation == 2
    assert story.state.nodes["n2"].status == "healthy"
    assert [severity for severity, _ in incidents(story)] == [2]


def test_a_lost_node_returns_with_its_agents_new_life():
    story = running()
    story.lose("n2")
    story.settle()
    story.join("n2", incarnation=2)
    story.settle()
    assert story.state.nodes["n2"].status == "healthy"
    assert len(members(story)) == 4


@pytest.mark.parametrize("when", ["before it is isolated", "before the incident is open"])
def test_a_lost_node_returns_before_it_was_isolated(when):
    """The loss was of its earlier life: the new one is not isolated for it."""
    story = running()
    story.lose("n2")
    steps = 2 if when == "before it is isolated" else 1
    made = [story.step() for _ in range(steps)]
    assert kinds(made)[0] == "NodeLost"
    story.join("n2", incarnation=2)
    made = story.settle()
    assert "NodeIsolated" not in kinds(made)
    assert story.state.nodes["n2"].status == "healthy"
    assert len(members(story)) == 4
    assert incidents(story)[0][0] == 1


def test_a_node_returns_between_the_decision_to_isolate_it_and_the_isolation():
    story = running()
    story.lose("n2")
    while not isinstance(decide(story.state).body, ev.NodeIsolated):
        body = story.step()
        story.react(body)
    at, verdict = story.state, decide(story.state)
    story.join("n2", incarnation=2)
    story.write(verdict, at)
    assert story.state.void == 1
    assert story.state.nodes["n2"].status == "returning"
    story.settle()
    assert len(members(story)) == 4


def test_a_failed_worker_is_gone_with_its_node():
    """It raised, and before it was stopped its agent started anew: the slot is free again."""
    story = running()
    raised(story, "n2/1", "software")
    assert story.state.workers["n2/1"].status == "failed"
    story.join("n2", incarnation=2)
    assert story.state.workers["n2/1"].status == "lost"
    story.settle()
    assert story.state.workers["n2/1"].incarnation == 2
    assert len(members(story)) == 4
    assert story.state.nodes["n2"].status == "healthy"


def test_an_agent_that_stops_in_good_order_is_nobodys_fault():
    story = running()
    for name in ("n2/0", "n2/1"):
        story.exit(name, signal=15, ordered=True)
    story.fact("agent/n2", 1, ev.AgentStopped(node="n2", reason="it was told to stop"))
    story.settle()
    assert not story.state.incidents
    assert set(members(story)) == {"n1/0", "n1/1"}
    assert story.state.nodes["n2"].status == "lost"


def test_a_start_is_void_if_the_agent_stopped_meanwhile():
    story = Story()
    story.join("n1")
    story.submit()
    hold(story, "start", "n1/0", "n1/1")
    made = []
    while not made or not isinstance(made[-1], ev.PlanDecided):
        made.append(story.step())
        story.react(made[-1])
    at, verdict = story.state, decide(story.state)
    assert isinstance(verdict.body, ev.WorkerStartOrdered)
    story.fact("agent/n1", 1, ev.AgentStopped(node="n1", reason="it was told to stop"))
    story.write(verdict, at)
    assert story.state.workers == {}
    assert story.state.void == 1


def test_a_task_without_a_device_is_parked_and_goes_on_when_a_node_joins():
    story = running()
    story.join("n3")
    story.settle()
    story.decide_input(ev.NodeReturned(node="n1", by="x", reason="void: it isn't isolated"))
    for name in ("n1", "n2", "n3"):
        sicken(story, name)
    story.settle()
    assert {n.status for n in story.state.nodes.values()} == {"isolated"}
    assert task(story).allocation.slots == ()
    assert all(i.resolved for i in story.state.incidents.values())
    assert "parked" in incidents(story)[-1][1]
    assert decide(story.state) is None
    story.join("n4")
    made = story.settle()
    assert task(story).phase == "running"
    assert set(members(story)) == {"n4/0", "n4/1"}
    assert "PlanRequested" in kinds(made)


def raised(story, name, kind):
    now = task(story)
    story.raises(name, kind, "x", generation=now.generation, iteration=now.iteration)


def sicken(story, node):
    raised(story, f"{node}/0", "cuda.ecc")


def test_a_worker_that_was_only_starting_does_not_speak_for_its_node():
    """Two nodes; on n2 one worker lives, the other is being restarted and has no connection."""
    story = running()
    hold(story, "start", "n2/1")
    story.exit("n2/1")
    story.settle()
    assert story.state.workers["n2/1"].status == "ordered"
    story.disconnect("agent", "n2", 1)
    story.disconnect("worker", "n2/0", 1)
    story.stay_closed("n2")
    made = story.settle()
    assert of(made, ev.NodeLost).node == "n2"
    assert members(story) == ["n1/0", "n1/1"]


def test_a_node_in_doubt_is_no_reason_to_isolate_the_other():
    """n1's agent is gone without a word; a worker on n2 keeps dying: n2 may be all there is."""
    story = running()
    story.exit("n2/1")
    story.settle()
    story.disconnect("agent", "n1", 1)
    story.exit("n2/1")
    story.settle()
    assert story.state.nodes["n2"].status == "healthy"


def test_a_node_that_falls_sick_while_it_is_admitted_stays_apart():
    """Found by the simulator: an operator gives it back, and before its admission is in the log
    one of its workers fails in the same way as before."""
    story = Story()
    story.join("n1")
    joining = story.state
    verdict = decide(joining)
    assert isinstance(verdict.body, ev.NodeAdmitted)
    sick = replace(joining.nodes["n1"], sick="its worker failed again")
    story.state = replace(joining, nodes={"n1": sick})
    story.write(verdict, joining)
    assert story.state.void == joining.void + 1
    assert story.state.nodes["n1"].status == "joining"
    assert of(story.settle(), ev.NodeIsolated).node == "n1"
