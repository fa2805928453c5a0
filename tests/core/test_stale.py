"""Facts of members that come too late, twice, or from where they don't count; and what is kept of
earlier lives."""

from tests.core.reading import hold, incidents, limit, of, task
from tests.core.story import running
from tests.core.test_end import finish
from tests.core.test_node_loss import raised
from tests.core.test_severity import ALL, exits, failed_start
from tests.core.test_void import check, start
from tests.core.test_worker_loss import commit
from unicron import events as ev
from unicron.controlplane.core import limits


def said(story, body):
    """A fact of n1/0 that must change neither its task nor any worker."""
    before = story.state
    story.fact("worker/n1/0", 1, body)
    assert (story.state.tasks, story.state.workers) == (before.tasks, before.workers)
    assert story.state.causes == before.causes


def of_member(generation):
    return {"task": "gpt", "worker": "n1/0", "incarnation": 1, "generation": generation}


def quiesced(generation, iteration=50):
    return ev.MemberQuiesced(
        **of_member(generation),
        iteration=iteration,
        phase="forward",
        kept=(),
        reduced=False,
        voted=False,
    )


def test_while_a_generation_runs_only_commits_and_finishes_count():
    story = running()
    said(story, ev.MemberReady(**of_member(1), iteration=50))
    said(story, quiesced(1))
    said(
        story,
        ev.WorkerPrepared(
            task="gpt",
            worker="n1/0",
            incarnation=1,
            parameters=1,
            threads=9,
            torch="2",
            megatron="0",
            spec_digest="other",
        ),
    )


def test_once_it_is_closed_only_answers_count():
    story = running()
    hold(story, "quiesce", *ALL)
    story.exit("n2/1")
    story.settle()
    said(story, ev.MemberReady(**of_member(1), iteration=50))
    said(story, ev.MemberCommitted(**of_member(1), iteration=50))
    said(story, ev.MemberFinished(**of_member(1), iteration=100, state_digest="d"))
    said(story, quiesced(2))
    said(story, quiesced(0))
    story.fact("worker/n1/0", 1, quiesced(1))
    assert set(task(story).answers) == {"n1/0"}


def test_a_finish_of_the_generation_before_counts_in_a_planned_switch_only():
    story = running()
    story.exit("n2/1")
    hold(story, "start", "n2/1")
    story.settle()
    assert task(story).generation == 2
    finish(story, "n1/0", generation=1)
    assert task(story).finished == {}
    finish(story, "n1/0", generation=2)
    assert set(task(story).finished) == {"n1/0"}


def test_since_when_a_worker_holds_the_state_is_noted_once():
    story = running()
    joined = story.state.workers["n1/0"].joined_at
    assert joined == 0
    for _ in range(5):
        commit(story, "n1/0")
    story.exit("n2/1")
    story.settle()
    assert task(story).iteration > joined
    assert story.state.workers["n1/0"].joined_at == joined
    assert story.state.workers["n2/1"].joined_at > joined


def test_who_answers_that_it_holds_nothing_has_not_joined():
    story = running()
    hold(story, "ready", "n3/0", "n3/1", *ALL)
    story.join("n3")
    story.settle()
    story.exit("n2/1")
    story.settle()
    assert not story.state.workers["n3/0"].joined
    assert story.state.workers["n3/0"].joined_at == -1


def test_a_start_that_was_confirmed_or_is_over_is_not_said_again():
    story = running()
    hold(story, "stop", "n2/0")
    raised(story, "n2/0", "software")
    story.settle()
    assert story.state.workers["n2/0"].status == "stopping"
    check(story, start(worker="n2/0", device=0, incarnation=1))
    hold(story, "start", "n2/1")
    exits(story, "n2/1")
    story.settle()
    failed_start(story, "n2/1", 2)
    assert story.state.workers["n2/1"].status == "exited"
    check(story, start(incarnation=2))


def test_a_start_that_fails_and_one_that_never_ends_are_the_same_failure():
    story = running()
    hold(story, "start", "n2/1")
    exits(story, "n2/1")
    story.settle()
    failed_start(story, "n2/1", 2)
    story.settle()
    limit(story, "start:n2/1:3")
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    assert incidents(story)[0][0] == 1


def test_a_loss_hits_no_task_that_has_ended():
    story = running(nodes=3)
    hold(story, "stop", "n2/0", "n2/1")
    story.decide_input(ev.TaskFailed(task="gpt", reason="test"))
    story.settle()
    for name in ("n2/0", "n2/1"):
        story.exit(name, ordered=True)
    story.decide_input(ev.NodeLost(node="n2", incarnation=1, evidence="test"))
    assert of(story.settle(), ev.IncidentOpened).task is None


def test_so_many_earlier_lives_are_remembered():
    """What is kept of an agent that starts over and over does not grow for ever."""
    story = running()
    for life in range(2, 2 * limits.PAST_INCARNATIONS_MAX):
        story.join("n2", incarnation=life)
    past = story.state.sources["agent/n2"].past
    last = 2 * limits.PAST_INCARNATIONS_MAX - 1
    assert past == tuple(range(last - limits.PAST_INCARNATIONS_MAX, last))
