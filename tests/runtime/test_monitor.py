"""Liveness from beats: silence, grace, and that we doubt ourselves before we doubt everybody."""

from tests.core.story import Story
from unicron.controlplane.core import limits
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.runtime.monitor import Monitor
from unicron.events import Beat, Incarnation, NodeId, NodeRecovered, NodeSuspected

LATE = limits.SILENCE_MS + 1


def _nodes(*names: str) -> ClusterState:
    story = Story()
    for name in names:
        story.join(name)
    story.settle()
    return story.state


def _beat(monitor: Monitor, node: str, number: int, now: int, incarnation: int = 1) -> None:
    monitor.heard(Beat(node=NodeId(node), incarnation=Incarnation(incarnation), number=number), now)


def test_a_node_that_falls_silent_is_suspected_with_the_evidence():
    state, monitor = _nodes("n1", "n2", "n3"), Monitor()
    for node in ("n1", "n2", "n3"):
        _beat(monitor, node, 1, 0)
    _beat(monitor, "n1", 2, LATE)
    _beat(monitor, "n2", 2, LATE)
    (opinion,) = monitor.opinions(state, LATE)
    assert isinstance(opinion, NodeSuspected)
    assert opinion.node == "n3"
    assert opinion.newest_fact == state.nodes["n3"].last_fact
    assert str(LATE) in opinion.evidence


def test_a_beat_in_time_is_no_opinion():
    state, monitor = _nodes("n1", "n2", "n3"), Monitor()
    for node in ("n1", "n2", "n3"):
        _beat(monitor, node, 1, 0)
    assert monitor.opinions(state, limits.SILENCE_MS) == []


def test_a_node_never_heard_has_the_full_time_from_when_it_is_first_looked_at():
    state, monitor = _nodes("n1", "n2", "n3"), Monitor()
    for node in ("n1", "n2"):
        _beat(monitor, node, 1, 9000)
    assert monitor.opinions(state, 9000) == []
    for node in ("n1", "n2"):
        _beat(monitor, node, 2, 9000 + LATE)
    assert [o.node for o in monitor.opinions(state, 9000 + LATE)] == ["n3"]


def test_if_most_fall_silent_at_once_none_is_suspected():
    state, monitor = _nodes("n1", "n2", "n3"), Monitor()
    for node in ("n1", "n2", "n3"):
        _beat(monitor, node, 1, 0)
    _beat(monitor, "n1", 2, LATE)
    assert monitor.opinions(state, LATE) == []
    assert monitor.withheld == ("n2", "n3")


def test_grace_gives_everybody_the_time_again():
    state, monitor = _nodes("n1", "n2", "n3"), Monitor()
    for node in ("n1", "n2", "n3"):
        _beat(monitor, node, 1, 0)
    monitor.grace(LATE)
    for node in ("n1", "n2"):
        _beat(monitor, node, 2, LATE + 1)
    assert monitor.opinions(state, LATE + 1) == []
    end = LATE + limits.GRACE_MS + 1
    for node in ("n1", "n2"):
        _beat(monitor, node, 3, end)
    assert [o.node for o in monitor.opinions(state, end)] == ["n3"]


def test_a_suspected_node_that_beats_again_is_taken_back():
    story = Story()
    for name in ("n1", "n2", "n3"):
        story.join(name)
    story.settle()
    node = story.state.nodes["n3"]
    story.decide_input(
        NodeSuspected(
            node=node.node,
            incarnation=node.incarnation,
            newest_fact=node.last_fact,
            evidence="silent",
        )
    )
    monitor = Monitor()
    for name in ("n1", "n2", "n3"):
        _beat(monitor, name, 1, 0)
    (opinion,) = monitor.opinions(story.state, 1)
    assert isinstance(opinion, NodeRecovered)
    assert opinion.node == "n3"


def test_a_beat_that_was_overtaken_or_is_of_another_life_speaks_for_nobody():
    state, monitor = _nodes("n1", "n2", "n3"), Monitor()
    for node in ("n1", "n2", "n3"):
        _beat(monitor, node, 5, 0)
    for node in ("n1", "n2"):
        _beat(monitor, node, 6, LATE)
    _beat(monitor, "n3", 4, LATE)
    _beat(monitor, "n3", 9, LATE, incarnation=77)
    assert [o.node for o in monitor.opinions(state, LATE)] == ["n3"]
