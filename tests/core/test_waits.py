"""What the state waits for, how long at most, and which orders are said again meanwhile."""

from tests.core.reading import hold, limit, release, task
from tests.core.story import Story, running
from tests.core.test_limits import new_leader
from tests.core.test_node_loss import raised, suspect
from tests.core.test_plan import asking
from tests.core.test_severity import ALL, failed_start
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.orders import OpenOrder, open_orders


def waits(story):
    return deadlines(story.state), open_orders(story.state)


def test_a_task_that_trains_waits_for_nothing():
    assert waits(running()) == ({}, ())


def test_a_suspected_node_waits_for_a_second_path_until_it_is_confirmed():
    story = running(nodes=4)
    suspect(story, "n3")
    suspect(story, "n4")
    found = {f"confirm:{n}:{story.state.nodes[n].since}": limits.CONFIRM_MS for n in ("n3", "n4")}
    assert waits(story) == (found, ())
    assert story.state.nodes["n3"].since != story.state.nodes["n4"].since
    limit(story, "confirm:n3")
    del found[f"confirm:n3:{story.state.nodes['n3'].since}"]
    assert waits(story) == (found, ())


def starting():
    """Two workers are ordered, and no agent has answered."""
    story = Story()
    story.join("n1")
    story.submit()
    hold(story, "start", "n1/0", "n1/1")
    story.settle()
    return story


def test_a_start_waits_until_the_worker_is_prepared_and_is_said_until_it_is_begun():
    story = starting()
    workers = story.state.workers
    orders = [OpenOrder(workers[w].order, "node", "n1") for w in ("n1/0", "n1/1")]
    both = {"start:n1/0:1": limits.START_MS, "start:n1/1:1": limits.START_MS}
    assert waits(story) == (both, tuple(orders))
    common = {"task": "gpt", "worker": ev.WorkerId("n1/0"), "incarnation": 1}
    story.fact("agent/n1", 1, ev.WorkerStarted(pid=1, **common))
    assert waits(story) == (both, (orders[1],))
    prepared = ev.WorkerPrepared(
        parameters=1, threads=1, torch="2", megatron="0", spec_digest="s", **common
    )
    story.fact("worker/n1/0", 1, prepared)
    assert waits(story) == ({"start:n1/1:1": limits.START_MS}, (orders[1],))


def test_a_stop_waits_until_the_worker_is_gone_or_outlives_it():
    story = running()
    hold(story, "stop", "n2/0")
    raised(story, "n2/0", "software")
    story.settle()
    stop = story.state.workers["n2/0"].stop_order
    assert waits(story) == ({"stop:n2/0:1": limits.STOP_MS}, (OpenOrder(stop, "node", "n2"),))
    limit(story, "stop:n2/0:1")
    story.settle()
    # Its agent still has to hear of it; nobody waits for it any more.
    assert waits(story) == ({}, (OpenOrder(stop, "node", "n2"),))
    story.exit("n2/0", ordered=True)
    assert waits(story) == ({}, ())


def test_a_stop_of_what_nobody_has_heard_of_is_said_with_its_start():
    story = starting()
    hold(story, "stop", "n1/0", "n1/1")
    story.decide_input(ev.TaskFailed(task="gpt", reason="x"))
    story.settle()
    workers = story.state.workers.values()
    said = sorted(seq for w in workers for seq in (w.order, w.stop_order))
    assert [o.seq for o in open_orders(story.state)] == said
    failed_start(story, "n1/0", 1)
    failed_start(story, "n1/1", 1)
    assert waits(story) == ({}, ())


def test_a_closed_generation_waits_for_answers():
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    close = (OpenOrder(task(story).close, "task", "gpt"),)
    assert waits(story) == ({"quiesce:gpt:1": limits.QUIESCE_MS}, close)
    story.quiesce("n1/0")
    story.quiesce("n1/1")
    assert waits(story) == ({"quiesce:gpt:1": limits.QUIESCE_MS}, close)
    story.quiesce("n2/0")
    assert waits(story) == ({}, ())


def test_an_order_waits_for_its_members():
    story = running()
    hold(story, "ready", "n1/0")
    hold(story, "start", "n2/1")
    story.exit("n2/1")
    story.settle()
    found, orders = waits(story)
    assert found == {"ready:gpt:2": limits.READY_MS, "start:n2/1:2": limits.START_MS}
    assert orders == (
        OpenOrder(task(story).order, "task", "gpt"),
        OpenOrder(story.state.workers["n2/1"].order, "node", "n2"),
    )
    release(story, "ready", "n1/0")
    story.ready_all(story.log[task(story).order - 1].envelope.body)
    story.settle()
    assert waits(story)[0] == {"start:n2/1:2": limits.START_MS}


def test_a_planned_order_may_take_an_iteration_longer():
    story = running()
    hold(story, "ready", *ALL)
    story.join("n3")
    story.settle()
    assert task(story).planned
    assert waits(story)[0] == {"ready:gpt:2": limits.SWITCH_MS}
    assert limits.SWITCH_MS > limits.READY_MS


def test_a_plan_is_waited_for_once_it_is_asked_for():
    story = asking()
    request = story.state.plan.request
    assert waits(story) == ({f"solve:{request}": limits.SOLVE_MS}, ())
    story.answer()
    assert not [key for key in deadlines(story.state) if key.startswith("solve")]


def test_a_planner_that_fails_gets_a_pause():
    story = asking()
    for tried in range(limits.PLAN_FAILURES_MAX):
        assert deadlines(story.state) == {f"solve:{story.state.plan.request}": limits.SOLVE_MS}
        assert story.state.plan.failures == tried
        story.answer(error="crashed")
        story.settle()
    pause = ({f"replan:{story.state.plan.wanted}": limits.REPLAN_MS}, ())
    assert waits(story) == pause
    limit(story, "replan")
    story.settle()
    story.answer(error="crashed")  # once more, and it pauses again
    story.settle()
    assert waits(story) == pause


def test_the_longest_wait_is_the_agents_own_grace_and_more():
    """A limit that is shorter than what it waits for would make failures of its own."""
    assert limits.SILENCE_MS > limits.BEAT_FRESH_MS
    assert limits.GRACE_MS > limits.SILENCE_MS + limits.CONFIRM_MS
    assert limits.STOP_MS > limits.STOP_GRACE_MS
    assert limits.READY_MS > limits.QUIESCE_MS
    assert limits.START_MS > limits.READY_MS
    assert limits.FIRST_STEP_MS > limits.STALL_MS
    assert 100 < limits.SLOW_OVER_PERCENT < limits.SLOW_PERCENT


def test_orders_stand_oldest_first_whoever_they_are_for():
    story = running(nodes=3)
    hold(story, "stop", "n3/0")
    hold(story, "start", "n1/1", "n2/1")
    raised(story, "n3/0", "software")
    story.exit("n2/1")
    story.settle()
    story.exit("n1/1")
    story.settle()
    orders = open_orders(story.state)
    assert {o.name for o in orders} == {"n1", "n2", "n3"}
    assert [o.seq for o in orders] == sorted(o.seq for o in orders)
    new_leader(story)
    story.settle()
    assert [o.seq for o in open_orders(story.state)] == sorted(
        o.seq for o in open_orders(story.state)
    )
