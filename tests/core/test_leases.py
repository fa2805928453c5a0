"""Devices that pass from one task to another: in what order, what waits for what, and how long."""

from tests.core.reading import hold, incidents, is_open, kinds, limit, members, of, release, task
from tests.core.story import running
from tests.core.test_plan import OTHER, allocate
from tests.core.test_stopping import stops
from unicron import events as ev
from unicron.controlplane.core import invariants, limits
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.leases import leases

BOTH = ["n1/0", "n2/0"]


def sharing(*, slow_to_commit=()):
    """gpt trains on n1/0 and n2/0, bert on the other two (life 2); no solver has a say."""
    story = running()
    hold(story, "commit", *slow_to_commit)
    story.submit(OTHER)
    story.settle()
    assert set(members(story)) == set(BOTH)
    story.solve = lambda: None
    return story


def trade(story, *to_gpt, bert=()):
    """Plans from here on: gpt gets more, bert keeps what is named. Only the first effects."""
    allocate(story, "bert", list(bert))
    allocate(story, "gpt", [*BOTH, *to_gpt])


def open_leases(story):
    return [(lease.holder.worker, lease.holder.task, lease.to) for lease in leases(story.state)]


def test_shrink_release_grow_in_that_order():
    story = sharing()
    before = task(story).generation
    trade(story, "n1/1", bert=["n2/1"])
    assert open_leases(story) == [("n1/1", "bert", "gpt")]
    made = story.settle()
    assert kinds(made) == [
        "TransitionOrdered",
        "TransitionCompleted",
        "WorkerStopOrdered",
        "WorkerStartOrdered",
        "TransitionOrdered",
        "TransitionCompleted",
    ]
    assert [b.task for b in made] == ["bert"] * 3 + ["gpt"] * 3
    assert stops(made) == {"n1/1": (limits.STOP_GRACE_MS, "the plan gives it to gpt")}
    assert of(made, ev.WorkerStartOrdered).reason == "bert has released it"
    assert members(story, "bert") == ["n2/1"]
    assert members(story) == [*BOTH, "n1/1"]
    assert task(story).generation == before + 1
    assert open_leases(story) == []
    assert not story.state.incidents


def test_a_start_on_a_released_device_names_the_plan_and_the_stop():
    story = sharing()
    trade(story, "n1/1", bert=["n2/1"])
    planned = story.state.seq
    story.settle()
    ordered = {type(r.envelope.body): r for r in story.log if r.seq > planned}
    stop = ordered[ev.WorkerStopOrdered].seq
    assert ordered[ev.WorkerStartOrdered].envelope.cause == (planned, stop)


def test_nothing_starts_while_the_holder_lives_and_its_stop_has_a_limit():
    story = sharing()
    hold(story, "stop", "n1/1")
    trade(story, "n1/1", bert=["n2/1"])
    assert "WorkerStartOrdered" not in kinds(story.settle())
    assert deadlines(story.state) == {"stop:n1/1:2": limits.STOP_MS}
    assert not invariants.rest_violations(story.state)
    assert open_leases(story) == [("n1/1", "bert", "gpt")]


def test_a_device_that_is_not_released_in_time_is_taken():
    """bert's generation has not proved itself, so it can't switch; who leaves goes at the limit."""
    story = sharing(slow_to_commit=["n2/1"])
    trade(story, "n1/1", bert=["n2/1"])
    assert kinds(story.settle()) == []
    assert deadlines(story.state)["release:n1/1:2"] == limits.RELEASE_MS
    release(story, "commit", "n2/1")
    limit(story, "release:n1/1:2")
    made = story.settle()
    assert stops(made) == {"n1/1": (0, "it failed and must go")}
    (incident,) = story.state.incidents.values()
    assert (incident.severity, incident.task) == (2, "bert")
    assert incident.what.endswith("n1/1 was not released to gpt within 90000 ms")
    assert members(story, "bert") == ["n2/1"]
    assert members(story) == [*BOTH, "n1/1"]
    assert not is_open(story)


def test_a_limit_that_comes_late_takes_nothing():
    story = sharing()
    trade(story, "n1/1", bert=["n2/1"])
    key = next(iter(deadlines(story.state)))
    story.settle()
    before = story.state.workers
    story.decide_input(ev.DeadlinePassed(key=key, limit_ms=1))
    assert story.state.workers == before
    assert not story.state.causes


def test_the_last_that_holds_the_state_keeps_its_device_until_another_has_got_it():
    """bert moves as a whole to a device whose worker doesn't get ready: it trains on meanwhile, and
    what the plan wanted is planned anew."""
    story = sharing()
    story.join("n3")
    hold(story, "start", "n3/0")
    story.settle()
    trade(story, "n1/1", "n2/1", bert=["n3/0"])
    story.settle()
    assert set(members(story, "bert")) == {"n1/1", "n2/1"}
    limit(story, "release:n1/1")
    story.settle()
    assert story.state.plan.request
    assert "bert can't do without it" in story.state.plan.reason
    assert task(story, "bert").phase == "running"
    assert not story.state.incidents
    assert not invariants.rest_violations(story.state)


def test_another_plan_gives_it_another_limit():
    story = sharing()
    story.join("n3")
    hold(story, "start", "n3/0")
    story.settle()
    trade(story, "n1/1", "n2/1", bert=["n3/0"])
    story.settle()
    limit(story, "release:n1/1")
    story.settle()
    assert not any(key.startswith("release:n1/1") for key in deadlines(story.state))
    same = tuple(t.allocation for t in story.state.tasks.values())
    request = story.state.plan.request
    story.decide_input(
        ev.PlanDecided(
            source="dp", computed_at=request, allocations=same, value=1, waf_milli=1, reason="again"
        )
    )
    assert "release:n1/1:2" in deadlines(story.state)


def test_who_stands_still_gives_way_only_to_whom_can_go_on():
    """Of bert's two the one that stays is killed: the other holds the only copy of the state, and
    is stopped only when the first has got it back."""
    story = sharing()
    hold(story, "ready", "n2/1")
    trade(story, "n1/1", bert=["n2/1"])
    story.settle()
    release(story, "ready", "n2/1")
    story.exit("n2/1", ordered=False)
    made = story.settle()
    states = [b.members for b in made if isinstance(b, ev.TransitionOrdered) and b.task == "bert"]
    assert all(m.state_from != -1 for ordered in states for m in ordered)
    assert kinds(made).index("WorkerStopOrdered") > kinds(made).index("TransitionOrdered")
    assert members(story, "bert") == ["n2/1"]
    assert members(story) == [*BOTH, "n1/1"]


def test_a_task_that_stands_still_loses_its_device_at_the_limit():
    """Nobody comes to take over the state: who holds it has to go all the same."""
    story = sharing()
    hold(story, "ready", "n2/1")
    hold(story, "start", "n2/1")
    trade(story, "n1/1", bert=["n2/1"])
    story.settle()
    story.exit("n2/1", ordered=False)
    story.settle()
    assert task(story, "bert").phase == "closed"
    limit(story, "release:n1/1")
    story.settle()
    assert story.state.workers["n1/1"].task == "gpt"
    assert members(story) == [*BOTH, "n1/1"]


def test_a_task_that_owes_a_device_does_not_wait_for_its_own_joiners():
    story = sharing()
    story.join("n3")
    hold(story, "start", "n3/0")
    story.settle()
    trade(story, "n1/1", bert=["n2/1", "n3/0"])
    story.settle()
    assert members(story, "bert") == ["n2/1"]
    assert members(story) == [*BOTH, "n1/1"]


def test_a_task_that_owes_nothing_waits_for_its_joiners():
    story = sharing()
    story.join("n3")
    hold(story, "start", "n3/0")
    story.settle()
    allocate(story, "bert", ["n2/1", "n3/0"])
    story.settle()
    assert set(members(story, "bert")) == {"n1/1", "n2/1"}


def test_incidents_of_a_trade():
    """None, as long as nothing fails."""
    story = sharing()
    trade(story, "n1/1", bert=["n2/1"])
    story.settle()
    assert incidents(story) == []
