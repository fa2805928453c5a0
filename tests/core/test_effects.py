"""What single events leave in the state: what others decide on, and what an audit shows."""

import pytest

from tests.core.reading import hold, incidents, kinds, limit, members, of, release, task
from tests.core.story import SPEC, Story, running
from tests.core.test_end import growing
from tests.core.test_limits import new_leader
from tests.core.test_node_loss import raised, suspect
from tests.core.test_plan import allocate
from tests.core.test_severity import ALL, exits
from tests.core.test_worker_loss import peer_error
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.decide import decide


def test_who_leads_which_cluster_since_when():
    story = Story()
    assert (story.state.cluster, story.state.leader, story.state.term) == ("c", "i1", 1)
    story.join("n1")
    new_leader(story)
    assert (story.state.leader, story.state.term) == ("i2", story.state.seq)


# --- Nodes --------------------------------------------------------------------------------------


def test_a_lost_node_without_work_is_an_incident_of_its_own():
    story = Story()
    for name in ("n1", "n2", "n3"):
        story.join(name)
    story.settle()
    suspect(story, "n2")
    limit(story, "confirm:n2")
    made = story.settle()
    assert of(made, ev.NodeLost).evidence == "silent for 2100 ms, and nothing spoke for it"
    opened = of(made, ev.IncidentOpened)
    assert (opened.severity, opened.task, opened.node, opened.worker) == (1, None, "n2", None)
    assert of(made, ev.NodeIsolated).reason.startswith("lost: silent for 2100 ms")
    (incident,) = story.state.incidents.values()
    assert incident.isolated
    assert incident.outcome == "n2 was not in use by any task"


def test_an_isolation_is_noted_with_the_nodes_open_incident_only():
    story = running(nodes=3)
    story.exit("n3/0")
    story.settle()
    raised(story, "n2/0", "cuda.ecc")
    story.settle()
    first, second = sorted(story.state.incidents.values(), key=lambda i: i.opened)
    assert (first.node, first.isolated) == ("n3", False)
    assert (second.node, second.isolated, second.worker) == ("n2", True, "n2/0")


def test_an_agent_that_leaves_calls_for_a_plan():
    story = running()
    story.solve = lambda: None
    for name in ("n2/0", "n2/1"):
        story.exit(name, signal=15, ordered=True)
    story.settle()
    story.fact("agent/n2", 1, ev.AgentStopped(node="n2", reason="test"))
    assert story.state.nodes["n2"].reason == "stopped: test"
    made = story.settle()
    assert of(made, ev.PlanRequested).reason == "n2 left"
    before = story.state.plan
    story.fact("agent/n2", 1, ev.AgentStopped(node="n2", reason="again"))
    assert story.state.plan == before
    assert story.state.nodes["n2"].reason == "stopped: test"


def test_connections_of_earlier_lives_are_forgotten():
    story = running()
    assert {"agent/n2/1", "worker/n2/1/1"} <= set(story.state.connections)
    story.exit("n2/1")
    story.settle()
    assert "worker/n2/1/1" not in story.state.connections
    assert "worker/n2/1/2" in story.state.connections
    story.join("n2", incarnation=2)
    assert "agent/n2/1" not in story.state.connections
    assert "agent/n2/2" in story.state.connections


def test_an_earlier_life_of_an_agent_does_not_connect_again():
    story = running()
    story.join("n2", incarnation=2)
    known = dict(story.state.connections)
    story.connect("agent", "n2", 1)
    assert story.state.connections == known
    story.connect("agent", "n2", 3)  # a new one may connect before its first fact
    assert "agent/n2/3" in story.state.connections


def test_devices_are_given_up_in_order_and_given_back_together():
    story = Story()
    story.join("n1", devices=4)
    story.submit()
    story.settle()
    for name in ("n1/3", "n1/1"):
        for _ in range(limits.SAME_FAILURES_MAX):
            exits(story, name)
            story.settle()
    assert story.state.nodes["n1"].given_up == (1, 3)
    assert set(members(story)) == {"n1/0", "n1/2"}
    story.decide_input(ev.NodeReturned(node="n1", by="anna", reason="new cables"))
    assert story.state.nodes["n1"].given_up == ()
    assert of(story.settle(), ev.PlanRequested).reason == "n1 is well again"
    assert len(members(story)) == 4


@pytest.mark.parametrize("needed,isolated", [(2, True), (3, False)])
def test_a_node_is_spared_if_the_others_could_not_carry_the_task(needed, isolated):
    """n1 has two devices left for it."""
    story = Story()
    story.join("n1")
    story.join("n2")
    story.submit(replace(SPEC, min_devices=needed))
    story.settle()
    for _ in range(2):
        exits(story, "n2/1")
        story.settle()
    assert (story.state.nodes["n2"].status == "isolated") is isolated


def test_one_device_elsewhere_is_enough_for_a_task_that_needs_one():
    story = Story()
    story.join("n1", devices=1)
    story.join("n2", devices=1)
    story.submit()
    story.settle()
    for _ in range(2):
        exits(story, "n2/0")
        story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    assert members(story) == ["n1/0"]


# --- Tasks --------------------------------------------------------------------------------------


def test_where_a_task_stands_is_the_furthest_that_was_heard():
    story = running()
    assert task(story).iteration == 1
    hold(story, "quiesce", *ALL)
    hold(story, "ready", *ALL)
    story.exit("n2/1")
    story.settle()
    story.quiesce("n1/0", iteration=7)
    assert task(story).iteration == 7
    story.quiesce("n1/1", iteration=6)
    story.quiesce("n2/0", iteration=7)
    assert task(story).iteration == 7
    order = of(story.settle(), ev.TransitionOrdered)
    assert (order.iteration, task(story).iteration) == (7, 7)
    story.held += [("commit", name) for name in ALL]
    story.ready(order, order.members[0], 9)
    assert task(story).iteration == 9
    story.ready(order, order.members[1], 7)
    assert task(story).iteration == 9


def test_an_answer_counts_once_and_for_its_generation():
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    story.quiesce("n1/0", iteration=5, kept=(1,))
    story.quiesce("n1/0", iteration=8, kept=(2,))
    answer = task(story).answers["n1/0"]
    assert (answer.iteration, answer.kept, task(story).iteration) == (5, (1,), 5)


def test_who_is_left_out_of_an_order_is_not_ready_for_it():
    story = running()
    hold(story, "ready", *ALL)
    hold(story, "commit", *ALL)
    allocate(story, "gpt", ALL[:3])
    story.settle()
    order = story.log[task(story).order - 1].envelope.body
    assert {m.worker for m in order.members} == set(ALL[:3])
    story.ready(order, replace(order.members[2], worker="n2/1"), 1)
    assert task(story).ready == {}
    story.ready(order, order.members[2], 1)
    assert task(story).ready == {order.members[2].worker: 1}


def test_nothing_is_left_of_a_transition_that_is_complete():
    story = running()
    story.join("n3")
    story.settle()
    done = task(story)
    assert (done.target, done.planned, done.late, done.overdue) == ((), False, 0, False)
    assert [m.rank for m in done.members] == list(range(6))


def test_leavers_of_a_planned_order_wait_as_prepared_and_are_stopped():
    story = running()
    hold(story, "stop", "n2/1")
    allocate(story, "gpt", ALL[:3])
    made = story.settle()
    assert of(made, ev.TransitionOrdered).planned
    assert set(members(story)) == set(ALL[:3])
    assert of(made, ev.WorkerStopOrdered).worker == "n2/1"
    assert {story.state.workers[name].status for name in ALL[:3]} == {"member"}


def test_joiners_that_stand_elsewhere_than_the_members_are_an_incident():
    """Nobody died: it is tried again in place."""
    story, verdict, at = growing()
    hold(story, "ready", *ALL, "n3/0", "n3/1")
    story.write(verdict, at)
    for member, iteration in zip(verdict.body.members, (1, 1, 1, 1, 2, 1), strict=True):
        story.ready(verdict.body, member, iteration)
    release(story, "ready", *ALL, "n3/0", "n3/1")
    made = story.settle()
    opened = of(made, ev.IncidentOpened)
    assert (opened.severity, opened.task) == (3, "gpt")
    assert "members stand at different iterations" in opened.what
    assert task(story).phase == "running"


def test_faults_cost_and_plans_do_not():
    story = running()
    assert (task(story).closes, task(story).fruitless) == (0, 0)
    story.exit("n2/1")
    story.settle()
    assert task(story).closes == 1
    peer_error(story, "n1/0", task(story).generation)
    story.settle()
    assert task(story).closes == 2
    allocate(story, "gpt", [])
    assert of(story.settle(), ev.GenerationClosed).reason == "the plan parks the task"
    assert task(story).closes == 2


@pytest.mark.parametrize("generation,counts", [(2, True), (1, True), (0, False)])
def test_a_peer_error_while_a_planned_order_is_out(generation, counts):
    """Members train on in the old generation, so it may still break."""
    story, verdict, at = growing()
    hold(story, "ready", *ALL, "n3/0", "n3/1")
    hold(story, "quiesce", *ALL)
    story.write(verdict, at)
    assert (task(story).generation, task(story).planned) == (2, True)
    peer_error(story, "n1/0", generation)
    assert bool(task(story).broken) is counts
    assert len(story.state.causes) == counts


def test_once_an_unplanned_order_is_out_the_old_generation_is_past():
    story = running()
    hold(story, "ready", *ALL)
    story.exit("n2/1")
    story.settle()
    assert (task(story).phase, task(story).generation) == ("ordered", 2)
    peer_error(story, "n1/0", 1)
    assert not task(story).broken
    peer_error(story, "n1/0", 2)
    assert task(story).broken


def test_an_incident_whose_plan_is_still_wanted_stays_open():
    story = running()
    story.solve = lambda: None
    story.exit("n2/1")
    story.join("n3")
    story.settle()
    assert story.state.plan.wanted
    assert incidents(story) == [(2, "")]
    assert decide(story.state) is None or "IncidentResolved" not in kinds([story.step()])


def test_plans_say_what_they_change():
    story = running(nodes=1)
    story.join("n2")
    made = story.settle()
    assert of(made, ev.PlanDecided).reason == "gpt grows from 2 to 4 devices"
    raised(story, "n2/0", "cuda.ecc")
    local, solved = [b for b in story.settle() if isinstance(b, ev.PlanDecided)]
    assert local.explanation == ("gpt shrinks from 4 to 2 devices",)
    assert solved.reason == "gpt keeps its 2 devices"
    raised(story, "n1/0", "cuda.ecc")
    local, *_ = [b for b in story.settle() if isinstance(b, ev.PlanDecided)]
    assert local.explanation == ("gpt is parked: shrinks from 2 to 0 devices",)


def test_orders_say_who_goes_and_who_comes():
    story = running()
    story.exit("n2/1")
    first, second = [b for b in story.settle() if isinstance(b, ev.TransitionOrdered)]
    assert first.reason == "1 of 4 members gone, 3 go on"
    assert second.reason == "1 join, 0 leave"
    peer_error(story, "n1/0", task(story).generation)
    assert of(story.settle(), ev.TransitionOrdered).reason == "4 go on"
    allocate(story, "gpt", ALL[:3])
    assert of(story.settle(), ev.TransitionOrdered).reason == "0 join, 1 leave"
