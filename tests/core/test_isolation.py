"""Why a node is isolated: what the decision names as its cause."""

from tests.core.reading import task
from tests.core.story import running
from unicron import events as ev


def test_it_is_isolated_because_of_its_loss_whatever_is_heard_after_it():
    """A survivor's broken connection joins the incident meanwhile."""
    story = running()
    story.lose("n2")
    while not isinstance(story.step(), ev.NodeLost):
        pass
    lost = story.state.seq
    while not isinstance(story.step(), ev.IncidentOpened):
        pass
    story.fact("worker/n1/0", story.state.workers["n1/0"].incarnation, broken(story, "n1/0"))
    incident = story.state.incidents[task(story).incident]
    assert incident.evidence[-1] == story.state.seq
    while not isinstance(story.step(), ev.NodeIsolated):
        pass
    assert story.log[-1].envelope.cause == (lost,)


def broken(story, worker):
    """What a member says whose peer went away."""
    return ev.PeerErrorReported(
        task=task(story).spec.task,
        worker=worker,
        incarnation=story.state.workers[worker].incarnation,
        generation=task(story).generation,
        iteration=3,
        phase="reduction",
        error="closed by peer",
    )
