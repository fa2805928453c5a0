"""A worker's process dies: SEV2, survivors go on at once, its agent restarts it, it rejoins."""

import pytest

from tests.core.reading import (
    hold,
    incidents,
    is_open,
    kinds,
    limit,
    members,
    of,
    release,
    samples,
    task,
)
from tests.core.story import Story, running
from unicron import events as ev
from unicron.controlplane.core.decide import decide

ALL = ["n1/0", "n1/1", "n2/0", "n2/1"]


def test_the_task_starts_on_two_nodes():
    story = Story()
    story.join("n1")
    story.join("n2")
    story.submit()
    made = story.settle()
    order = of(made, ev.TransitionOrdered)
    assert (order.generation, order.planned, order.iteration, order.data_parallel) == (
        1,
        False,
        0,
        4,
    )
    assert [m.state_from for m in order.members] == [-1] * 4
    assert samples(order) == list(range(12))
    assert [len(m.owes) for m in order.members] == [3] * 4
    assert task(story).phase == "running"
    assert set(members(story)) == set(ALL)
    assert not story.state.incidents
    assert decide(story.state) is None


def test_a_killed_worker_is_left_behind_restarted_and_rejoins():
    story = running()
    hold(story, "start", "n2/1")
    story.exit("n2/1", signal=9)
    made = story.settle()
    assert kinds(made) == [
        "IncidentOpened",
        "GenerationClosed",
        "TransitionOrdered",
        "TransitionCompleted",
        "WorkerStartOrdered",
    ]
    assert of(made, ev.IncidentOpened).severity == 2
    assert of(made, ev.TransitionOrdered).data_parallel == 3
    assert samples(of(made, ev.TransitionOrdered)) == list(range(12))
    start = of(made, ev.WorkerStartOrdered)
    assert (start.worker, start.incarnation) == ("n2/1", 2)
    assert is_open(story)

    release(story, "start", "n2/1")
    story.prepare(start)
    made = story.settle()
    order = of(made, ev.TransitionOrdered)
    assert (order.planned, order.iteration, order.data_parallel) == (True, -1, 4)
    joiner = order.members[-1]
    assert (joiner.worker, joiner.incarnation) == ("n2/1", 2)
    assert order.members[joiner.state_from].worker == "n2/0", "the replica on its own node"
    assert incidents(story) == [(2, "trains on 4 devices, generation 3")]


def test_survivors_keep_their_ranks_and_the_highest_fills_the_hole():
    story = running()
    before = members(story)
    hold(story, "start", before[1])
    story.exit(before[1])
    order = of(story.settle(), ev.TransitionOrdered)
    assert [m.worker for m in order.members] == [before[0], before[3], before[2]]


def test_rank_0_dies():
    story = running()
    rank0 = members(story)[0]
    hold(story, "start", rank0)
    story.exit(rank0)
    order = of(story.settle(), ev.TransitionOrdered)
    assert rank0 not in {m.worker for m in order.members}
    assert {m.state_from for m in order.members} == {None}
    assert task(story).phase == "running"


def test_a_peer_error_before_the_exit_never_sets_the_severity():
    """Symptoms are not causes: the incident opens at SEV3 and becomes SEV2 with the exit."""
    story = running()
    for name in ("n1/0", "n1/1"):
        peer_error(story, name, 1)
    made = [story.step()]
    assert of(made, ev.IncidentOpened).severity == 3
    peer_error(story, "n2/0", 1)
    story.exit("n2/1")
    made = story.settle()
    assert of(made, ev.IncidentEscalated).severity == 2
    assert "IncidentOpened" not in kinds(made)
    ((severity, outcome),) = incidents(story)
    assert (severity, outcome[:6]) == (2, "trains")
    (incident,) = story.state.incidents.values()
    assert len(incident.evidence) == 4
    assert incident.worker == "n2/1"


def test_peer_errors_alone_are_tried_again_in_place():
    """SEV3: same members, next generation."""
    story = running()
    peer_error(story, "n1/0", 1)
    made = story.settle()
    order = of(made, ev.TransitionOrdered)
    assert {(m.worker, m.incarnation) for m in order.members} == {(w, 1) for w in ALL}
    assert "WorkerStartOrdered" not in kinds(made)
    assert incidents(story) == [(3, "trains on 4 devices, generation 2")]


def commit(story, name):
    worker = story.state.workers[name]
    story.fact(
        f"worker/{name}",
        worker.incarnation,
        ev.MemberCommitted(
            task=worker.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            generation=task(story).generation,
            iteration=task(story).iteration + 1,
        ),
    )


def test_attempts_in_place_that_come_to_nothing_climb():
    """The link between the nodes is broken for good. They go on without who reports it first, at
    last without its node, long before the task's budget is spent."""
    story = running()
    hold(story, "commit", *ALL)
    sizes = []
    while story.state.nodes["n2"].status == "healthy":
        assert task(story).closes < 25
        sizes.append(len(members(story)))
        if len({name[:2] for name in members(story)}) == 2:
            for name in sorted(members(story), reverse=True):
                peer_error(story, name, task(story).generation)
        else:
            for name in members(story):
                commit(story, name)
        story.settle()
    assert sizes[:5] == [4, 4, 4, 4, 3]
    assert set(members(story)) == {"n1/0", "n1/1"}
    for name in members(story):
        commit(story, name)
    story.settle()
    assert not is_open(story)
    assert task(story).phase == "running"


def test_a_commit_in_between_is_no_attempt_in_vain():
    story = running()
    for _ in range(8):
        peer_error(story, "n1/0", task(story).generation)
        story.settle()
    assert set(members(story)) == set(ALL)
    assert {severity for severity, _ in incidents(story)} == {3}


def test_a_peer_error_of_an_old_generation_is_stale():
    story = running()
    story.exit("n2/1")
    story.settle()
    before = story.state
    peer_error(story, "n1/0", 1)
    assert story.state.tasks == before.tasks
    assert story.state.causes == ()
    assert decide(story.state) is None


@pytest.mark.parametrize("when", ["before its answer", "after its answer"])
def test_another_one_dies_while_the_generation_is_closed(when):
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    assert task(story).phase == "closed"
    if when == "after its answer":
        story.quiesce("n2/0", kept=(0, 1))
    story.exit("n2/0")
    story.quiesce("n1/0", kept=(2, 3))
    assert decide(story.state) is None or when
    story.quiesce("n1/1", kept=(4,))
    hold(story, "start", "n2/0", "n2/1")
    order = of(story.settle(), ev.TransitionOrdered)
    assert {m.worker for m in order.members} == {"n1/0", "n1/1"}
    assert {m.worker: m.keeps for m in order.members} == {"n1/0": (2, 3), "n1/1": (4,)}
    assert samples(order) == list(range(12))
    assert [severity for severity, _ in incidents(story)] == [2]


def test_another_one_dies_before_the_next_generation_is_ready():
    """Amended: one more generation, the same incident."""
    story = running()
    hold(story, "start", "n2/0", "n2/1")
    hold(story, "ready", *ALL)
    story.exit("n2/1")
    story.settle()
    assert (task(story).phase, task(story).generation) == ("ordered", 2)
    story.exit("n2/0")
    release(story, "ready", *ALL)
    made = story.settle()
    assert kinds(made)[:2] == ["GenerationClosed", "TransitionOrdered"]
    assert of(made, ev.GenerationClosed).generation == 2
    order = of(made, ev.TransitionOrdered)
    assert (order.generation, order.data_parallel) == (3, 2)
    assert samples(order) == list(range(12))
    assert len(story.state.incidents) == 1


def rejoining():
    """n2/1 was killed, is warm again, and the planned order to take it in was just made."""
    story = running()
    hold(story, "ready", *ALL)
    story.exit("n2/1")
    story.settle()
    release(story, "ready", *ALL)
    story.ready_all(story.log[task(story).order - 1].envelope.body)
    hold(story, "ready", *ALL)
    made = story.settle()
    assert of(made, ev.TransitionOrdered).planned
    return story


def test_the_donor_dies_during_the_transfer():
    """The joiner has no state yet, so it is no survivor; it comes in with the restarted donor."""
    story = rejoining()
    ordered = task(story).target
    giving = next(m.state_from for m in ordered if m.worker == "n2/1")
    donor = ordered[giving].worker
    story.exit(donor)
    release(story, "ready", *ALL)
    made = story.settle()
    first, second = [b for b in made if isinstance(b, ev.TransitionOrdered)]
    assert not first.planned
    assert {m.worker for m in first.members} == set(ALL) - {donor, "n2/1"}
    assert second.planned
    assert {m.worker for m in second.members if m.state_from is not None} == {donor, "n2/1"}
    assert (task(story).phase, len(members(story))) == ("running", 4)
    assert len(story.state.incidents) == 1


def test_the_joiner_dies_during_a_planned_switch():
    """It failed twice in the same way and never trained in between: SEV1."""
    story = rejoining()
    story.exit("n2/1")
    release(story, "ready", *ALL)
    made = story.settle()
    order = of(made, ev.TransitionOrdered)
    assert not order.planned
    assert {m.worker for m in order.members} == {"n1/0", "n1/1"}
    assert story.state.nodes["n2"].status == "isolated"
    ((severity, outcome),) = incidents(story)
    assert (severity, outcome[:18]) == (1, "trains on 2 device")


def test_a_joiner_that_has_its_state_already_is_a_survivor():
    story = rejoining()
    hold(story, "quiesce", *ALL)
    hold(story, "start", "n1/0")
    story.exit("n1/0")
    story.settle()
    for name in ("n1/1", "n2/0", "n2/1"):
        story.quiesce(name, iteration=7, kept=())
    release(story, "ready", *ALL)
    order = of(story.settle(), ev.TransitionOrdered)
    assert {m.worker for m in order.members} == {"n1/1", "n2/0", "n2/1"}
    assert all(m.state_from is None for m in order.members)


def test_all_members_lost():
    story = running()
    for name in ALL:
        story.exit(name)
    made = story.settle()
    order = of(made, ev.TransitionOrdered)
    assert "starts again from the initial state" in order.reason
    assert [(m.incarnation, m.state_from) for m in order.members] == [(2, -1)] * 4
    assert (task(story).phase, task(story).generation) == ("running", 2)
    ((severity, outcome),) = incidents(story)
    assert severity == 2
    assert outcome.startswith("trains on 4")


def test_a_silent_member_is_fenced_at_the_limit():
    story = running()
    hold(story, "quiesce", "n2/0")
    hold(story, "start", "n2/0", "n2/1")
    hold(story, "stop", "n2/0")
    story.exit("n2/1")
    story.settle()
    assert task(story).phase == "closed"
    limit(story, "quiesce:gpt:1")
    made = story.settle()
    assert kinds(made)[:2] == ["WorkerStopOrdered", "TransitionOrdered"]  # the fence comes first
    assert of(made, ev.WorkerStopOrdered).worker == "n2/0"
    assert {m.worker for m in of(made, ev.TransitionOrdered).members} == {"n1/0", "n1/1"}
    story.exit("n2/0", ordered=True)
    release(story, "start", "n2/0", "n2/1")
    story.settle()
    assert len(story.state.incidents) == 1


def test_what_we_stop_ourselves_opens_no_incident():
    story = running()
    story.decide_input(ev.TaskFailed(task=ev.TaskId("gpt"), reason="an operator wants it"))
    made = story.settle()
    assert kinds(made) == ["WorkerStopOrdered"] * 4
    assert not story.state.incidents
    assert {w.status for w in story.state.workers.values()} == {"exited"}


def peer_error(story, name, generation):
    worker = story.state.workers[name]
    story.fact(
        f"worker/{name}",
        worker.incarnation,
        ev.PeerErrorReported(
            task=worker.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            generation=generation,
            iteration=1,
            phase="reduction",
            error="Connection closed by peer",
        ),
    )
