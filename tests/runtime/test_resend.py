"""What is said again, when, and to whom."""

from tests.core.story import Story, running
from unicron import events as ev
from unicron.controlplane.core.limits import RESEND_MS
from unicron.controlplane.core.orders import open_orders
from unicron.controlplane.runtime.resend import Resender


def fed(story):
    resender = Resender()
    for recorded in story.log:
        if ".control." in recorded.subject:
            resender.taken(recorded, story.state)
    return resender


def beat(node, incarnation):
    return ev.Beat(node=node, incarnation=incarnation, number=1)


def starting():
    """A task whose workers were ordered; no agent has confirmed anything."""
    story = Story()
    story.held = [("start", f"n1/{device}") for device in range(2)]
    story.join("n1")
    story.submit()
    story.settle()
    assert {o.kind for o in open_orders(story.state)} == {"node"}
    return story


def lost():
    """n2 was declared lost."""
    story = running()
    story.lose("n2")
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    return story


def test_an_open_order_is_due_once_a_second_from_its_first_sight():
    story = starting()
    resender, orders = fed(story), [o.seq for o in open_orders(story.state)]
    assert resender.due(story.state, 0) == []
    assert resender.due(story.state, RESEND_MS - 1) == []
    assert resender.due(story.state, RESEND_MS) == orders
    assert resender.due(story.state, RESEND_MS + 1) == []
    assert resender.due(story.state, 2 * RESEND_MS) == orders


def test_who_asks_is_told_at_once():
    story = starting()
    resender = fed(story)
    resender.due(story.state, 0)
    resender.asked("n1")
    resender.asked("somebody else")
    assert resender.due(story.state, 1) == [o.seq for o in open_orders(story.state)]
    assert resender.due(story.state, 2) == []


def test_the_newest_decisions_and_the_open_ones_are_at_hand():
    story = starting()
    first = open_orders(story.state)[0].seq
    resender = fed(story)
    for extra in range(1, 400):
        copy = ev.record(1000 + extra, story.log[0].subject, story.log[0].data, 0)
        resender.taken(copy, story.state)
    assert resender.recent(first) is not None
    assert resender.recent(ev.Sequence(1399)) is not None
    assert resender.recent(ev.Sequence(1001)) is None


def test_a_node_that_was_declared_lost_and_beats_is_told_of_it_once_a_second():
    story = lost()
    resender, node = fed(story), story.state.nodes["n2"]
    (verdict,) = [
        r.seq
        for r in story.log
        if r.envelope is not None and isinstance(r.envelope.body, ev.NodeLost)
    ]
    resender.due(story.state, 0)
    told = []
    for at in range(100, 100 + 3 * RESEND_MS, 200):
        resender.heard(beat("n2", node.incarnation), story.state, at)
        told += [seq for seq in resender.due(story.state, at) if seq == verdict]
    assert len(told) == 3


def test_who_asks_again_after_its_loss_is_told_of_it():
    story = lost()
    resender = fed(story)
    resender.asked("n2")
    (seq,) = [s for s in resender.due(story.state, 0) if s not in _open(story)]
    assert isinstance(story.log[seq - 1].envelope.body, ev.NodeLost)


def test_a_new_life_and_a_node_in_good_standing_are_told_nothing():
    story = lost()
    resender = fed(story)
    resender.heard(beat("n2", story.state.nodes["n2"].incarnation + 1), story.state, 0)
    resender.heard(beat("n1", story.state.nodes["n1"].incarnation), story.state, 0)
    resender.asked("n1")
    assert [s for s in resender.due(story.state, 0) if s not in _open(story)] == []


def test_a_sick_node_that_was_never_lost_is_told_of_no_loss():
    story = running()
    story.raises("n2/0", "cuda.ecc", "a bit fell over")
    story.settle()
    assert story.state.nodes["n2"].status == "isolated"
    resender = fed(story)
    resender.heard(beat("n2", story.state.nodes["n2"].incarnation), story.state, 0)
    assert [s for s in resender.due(story.state, 0) if s not in _open(story)] == []


def _open(story):
    return {o.seq for o in open_orders(story.state)}
