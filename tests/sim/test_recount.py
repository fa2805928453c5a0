"""The second count of what the state counts."""

from tests.core.reading import hold, task
from tests.core.story import running
from unicron import events as ev
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.testing.recount import _PARKED as PARKED
from unicron.controlplane.testing.recount import Recount


def test_who_commits_in_a_task_that_has_failed_commits_for_nobody():
    story = running(1)
    name = task(story).spec.task
    hold(story, "commit", "n1/0", "n1/1")
    for _ in range(2):  # the first is closed after a commit, the second without one
        close = ev.GenerationClosed(task=name, generation=task(story).generation, reason=PARKED)
        story.decide_input(close)
        story.react(close)
        story.settle()
    assert task(story).fruitless == 1
    story.decide_input(ev.TaskFailed(task=name, reason="test"))
    for member in task(story).members:
        story.fact(f"worker/{member.worker}", member.incarnation, commit(story, member))
    assert task(story).phase == "failed"
    recount, state = Recount(), ClusterState()
    for recorded in story.log:
        state = fold(state, recorded)
        assert list(recount.taken(recorded, state)) == []
    assert task(story).fruitless == 1


def commit(story, member):
    return ev.MemberCommitted(
        task=task(story).spec.task,
        worker=member.worker,
        incarnation=member.incarnation,
        generation=task(story).generation,
        iteration=task(story).iteration + 1,
    )
