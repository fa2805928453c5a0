"""A worker says once in its life that its model is there; said again, it changes nothing."""

import pytest

from tests.core.reading import hold
from tests.core.story import Story, running
from tests.core.test_node_loss import raised
from unicron import events as ev


def one_waits() -> Story:
    """n1/0 is prepared and waits for n1/1."""
    story = Story()
    story.join("n1")
    story.submit()
    hold(story, "start", "n1/1")
    story.settle()
    return story


def one_failed() -> Story:
    """n1/0 failed, and nobody has ended it yet."""
    story = running()
    raised(story, "n1/0", "software")
    return story


def one_is_being_stopped() -> Story:
    story = running()
    hold(story, "stop", "n1/0")
    raised(story, "n1/0", "software")
    story.settle()
    return story


@pytest.mark.parametrize(
    "begin,status",
    [
        (one_waits, "prepared"),
        (running, "member"),
        (one_failed, "failed"),
        (one_is_being_stopped, "stopping"),
    ],
)
@pytest.mark.parametrize("threads", [1, 9])
def test_it_is_said_once(begin, status, threads):
    story = begin()
    before = story.state
    worker = before.workers["n1/0"]
    assert worker.status == status
    body = ev.WorkerPrepared(
        task="gpt",
        worker="n1/0",
        incarnation=worker.incarnation,
        parameters=1,
        threads=threads,
        torch="2",
        megatron="0",
        spec_digest="s",
    )
    story.fact("worker/n1/0", worker.incarnation, body)
    assert story.state.duplicates == before.duplicates  # it isn't a repetition of the same event
    assert (story.state.workers, story.state.tasks) == (before.workers, before.tasks)
    assert (story.state.causes, story.state.nodes) == (before.causes, before.nodes)
