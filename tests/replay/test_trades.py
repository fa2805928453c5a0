"""Devices that passed from one task to another, as a log tells it: how far, and what it cost."""

import pytest

from tests.core.reading import hold, limit, release
from tests.core.test_leases import BOTH, sharing, trade
from tests.replay.pages import FRAME, parsed, text
from unicron import events as ev
from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.replay.page import incident_page
from unicron.controlplane.replay.trades import in_words
from unicron.controlplane.testing import scenario, scripted
from unicron.controlplane.testing.scenario import parse
from unicron.events import PlanDecided, WorkerExited, WorkerStartOrdered, WorkerStopOrdered


def told(story):
    """Those from bert to gpt; when bert came it got two devices of gpt's."""
    trades = IncidentBook(story.log).trades()
    assert [t.state for t in trades if t.receiver == "bert"] == ["passed on"] * 2
    return [t for t in trades if t.receiver == "gpt"]


def seq_of(story, kind, **fields):
    """The newest entry of the kind with these fields."""
    return next(
        r.seq
        for r in reversed(story.log)
        if isinstance(r.envelope.body, kind)
        and all(getattr(r.envelope.body, name) == value for name, value in fields.items())
    )


def test_a_trade_from_the_plan_to_the_first_iteration():
    story = sharing()
    trade(story, "n1/1", bert=["n2/1"])
    planned = story.state.seq
    story.settle()
    (found,) = told(story)
    assert (found.device, found.donor, found.receiver) == ("n1/1", "bert", "gpt")
    assert found.state == "passed on"
    assert found.planned_seq == planned
    assert found.released_seq == seq_of(story, WorkerExited, worker="n1/1")
    assert found.started_seq == seq_of(story, WorkerStartOrdered, worker="n1/1", task="gpt")
    assert found.trains_seq == seq_of(story, ev.MemberCommitted, worker="n1/1")
    # One event a millisecond.
    assert found.wait_ms == found.released_seq - planned
    assert found.idle_ms == found.trains_seq - found.released_seq
    assert (found.donor_stall_ms, found.receiver_stall_ms) == (0, 0)


def test_a_device_that_is_still_held():
    story = sharing()
    hold(story, "stop", "n1/1")
    trade(story, "n1/1", bert=["n2/1"])
    story.settle()
    (found,) = told(story)
    assert (found.state, found.released_seq, found.wait_ms) == ("waits", None, None)
    assert in_words(found) == "n1/1 from bert to gpt, still held"
    story.exit("n1/1", ordered=True)
    (found,) = told(story)
    assert found.state == "released"
    assert "not used yet" in in_words(found)


def test_who_waits_for_whom_is_told():
    """As the state of the task, and of the worker that stands in its way."""
    story = sharing()
    hold(story, "stop", "n1/1")
    trade(story, "n1/1", bert=["n2/1"])
    story.settle()
    book = IncidentBook(story.log)
    waits = "; waits for n1/1, held by bert until its worker there has stopped"
    assert book.status("gpt").headline.endswith(waits)
    to_gpt = "life 2 lives, and does not train; the plan gives its device to gpt"
    assert to_gpt in book.status("n1/1").headline


def test_why_a_worker_was_started_on_anothers_device():
    story = sharing()
    trade(story, "n1/1", bert=["n2/1"])
    planned = story.state.seq
    story.settle()
    started = seq_of(story, WorkerStartOrdered, worker="n1/1", task="gpt")
    chain = IncidentBook(story.log).why(str(started))
    told_ = {link.event.seq: link.event.what for link in chain.links if link.depth <= 1}
    assert "bert has released it" in told_[started]
    assert "takes the local plan" in told_[planned]
    assert "the plan gives it to gpt" in told_[seq_of(story, WorkerStopOrdered, worker="n1/1")]


def test_a_device_that_another_plan_takes_back():
    story = sharing()
    hold(story, "stop", "n1/1")
    trade(story, "n1/1", bert=["n2/1"])
    story.settle()
    trade(story, bert=["n2/1"])
    (found,) = told(story)
    assert found.state == "withdrawn"
    assert in_words(found) == "n1/1 from bert to gpt, not released, withdrawn"


def test_a_donor_that_was_broken_off_stood_still_from_its_close():
    story = sharing(slow_to_commit=["n2/1"])
    trade(story, "n1/1", bert=["n2/1"])
    story.settle()
    release(story, "commit", "n2/1")
    limit(story, "release:n1/1:2")
    story.settle()
    (found,) = told(story)
    closed = seq_of(story, ev.GenerationClosed, task="bert")
    again = next(
        r.seq
        for r in story.log[closed:]
        if isinstance(r.envelope.body, ev.MemberCommitted) and r.envelope.body.task == "bert"
    )
    assert found.donor_stall_ms == again - closed > 0
    assert found.state == "passed on"


def test_two_devices_at_once():
    story = sharing()
    story.join("n3")
    story.settle()
    trade(story, "n1/1", "n2/1", bert=["n3/0"])
    story.settle()
    assert [(t.device, t.state) for t in told(story)] == [
        ("n1/1", "passed on"),
        ("n2/1", "passed on"),
    ]
    assert set(BOTH) & {t.device for t in told(story)} == set()


@pytest.fixture(scope="module")
def lost_node():
    """Two tasks, and the loss of a node that makes one give a device to the other."""
    text = """nodes n1 to n2 with 4 devices each
task gpt of 60 iterations, 12 micro-batches, at least 2 devices, at most 4 devices
task light of 60 iterations, 12 micro-batches, at most 4 devices, weight 25 percent
at 6 s, n2 loses power
until everything has ended within 120 s
expect gpt completed
"""
    report = scripted.run(parse(text, "trade.txt"))
    assert report.held, report.wrong()
    assert isinstance(report.scenario, scenario.Scenario)
    return IncidentBook(report.outcome.log)


def test_the_audit_has_the_plan_its_strategies_and_its_trades(lost_node):
    (incident,) = [i for i in lost_node.incidents() if i.task == "gpt"]
    local, plan = lost_node.story(incident.id).plans
    assert (local.source, local.strategies, local.trades) == ("local", (), ())
    assert [(t.device, t.donor, t.receiver, t.state) for t in plan.trades] == [
        ("n1/3", "light", "gpt", "passed on")
    ]
    by_name = {other.name: other for other in plan.strategies}
    assert [*by_name] == ["equal", "weighted", "sized", "current"]
    assert by_name["equal"].loss_milli > 0
    assert by_name["current"].what == "everything stays as it is"
    assert by_name["weighted"].loss_milli == 0
    assert all(o.loss_milli == plan.value_milli - o.value_milli for o in plan.strategies)


def test_a_plan_that_moves_nothing_has_no_trades(lost_node):
    (incident,) = [i for i in lost_node.incidents() if i.task == "gpt"]
    plans = [r for r in lost_node.entries() if r.type == "plan.decided.v1"]
    assert len(plans) > len(lost_node.story(incident.id).plans)
    assert {t.planned_seq for t in lost_node.trades()} == {
        p.seq for p in lost_node.story(incident.id).plans if p.trades
    }
    assert PlanDecided.__struct_config__.tag == "plan.decided.v1"


def test_the_page_has_them_too(lost_node):
    (incident,) = [i for i in lost_node.incidents() if i.task == "gpt"]
    page = incident_page(FRAME, lost_node.story(incident.id))
    said = text(parsed(page))
    for words in ("Devices that change hands", "shares by model size", "passed on"):
        assert words in said
