from typing import get_args

import msgspec
import pytest

from tests.core.story import SPEC, STEP_NS, Story, running
from tests.replay.histories import Restless, killed, night, powered_off, restless
from unicron import events as ev
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.replay import IncidentBook, entries

MS = STEP_NS // 1_000_000
TAG = {event: event.__struct_config__.tag for event in get_args(ev.AnyEvent)}


def only(story):
    """The story of the only incident in the log."""
    book = IncidentBook(story.log)
    (incident,) = book.ids
    return book.story(incident)


def types(told):
    return [event.type for event in told.events]


def test_a_log_without_incidents():
    assert IncidentBook([]).incidents() == ()
    assert IncidentBook(running(1).log).incidents() == ()


def test_a_killed_worker_from_its_exit_to_its_return():
    story = killed()
    told = only(story)
    exited = next(r.seq for r in story.log if isinstance(r.envelope.body, ev.WorkerExited))
    assert told.incident == msgspec.structs.replace(
        told.incident,
        id=f"inc-{exited}-gpt",
        severity=2,
        task="gpt",
        node="n1",
        worker="n1/1",
        outcome="trains on 4 devices, generation 3",
        is_open=False,
        first_evidence_seq=exited,
        opened_seq=exited + 1,
    )
    started = ("worker.started.v1", "connection.opened.v1", "worker.prepared.v1")
    assert types(told) == [
        "worker.exited.v1",
        "incident.opened.v1",
        "generation.closed.v1",
        *["member.quiesced.v1"] * 3,
        "transition.ordered.v1",
        *["member.ready.v1", "member.committed.v1"] * 3,
        "transition.completed.v1",
        "worker.start_ordered.v1",
        *started,
        "transition.ordered.v1",
        *["member.ready.v1", "member.committed.v1"] * 4,
        "transition.completed.v1",
        "incident.resolved.v1",
    ]
    assert [e.t_plus_ms for e in told.events] == [i * MS for i in range(len(told.events))]
    assert [e.kind for e in told.events][:4] == ["observed", "decided", "decided", "done"]
    opened, ordered = told.events[1], told.events[6]
    assert (opened.who, opened.cause) == ("control/i1", (exited,))
    assert ordered.cause == tuple(range(exited + 2, exited + 6))


def test_times_are_the_streams_since_the_first_evidence():
    told = only(killed())
    incident, by_type = told.incident, {}
    for event in told.events:
        by_type.setdefault(event.type, []).append(event.t_plus_ms)
    assert incident.detect_ms == by_type["incident.opened.v1"][0] == MS
    assert incident.stall_ms == by_type["member.committed.v1"][0]
    assert incident.duration_ms == told.events[-1].t_plus_ms
    assert incident.began_at_ns == incident.first_evidence_at_ns == told.events[0].at_ns
    assert (incident.last_seq, incident.last_at_ns) == (told.events[-1].seq, told.events[-1].at_ns)


def test_a_lost_node_begins_with_its_closed_connections():
    told = only(powered_off())
    assert types(told)[:6] == [
        *["connection.closed.v1"] * 3,
        "deadline.passed.v1",
        "node.lost.v1",
        "incident.opened.v1",
    ]
    assert {"node.isolated.v1", "plan.requested.v1", "plan.solved.v2"} < {*types(told)}
    assert types(told).count("plan.decided.v1") == 2
    assert told.incident.first_evidence_seq == told.events[0].seq
    assert told.incident.detect_ms == 5 * MS


def silent():
    """A node that nobody hears, without a closed connection, after a false alarm."""
    story = running(3)
    node = story.state.nodes["n2"]
    common = {"node": "n2", "incarnation": node.incarnation}

    def suspect():
        fact = story.state.nodes["n2"].last_fact
        story.decide_input(ev.NodeSuspected(newest_fact=fact, evidence="silent", **common))

    suspect()
    story.decide_input(ev.NodeRecovered(evidence="heard", **common))
    suspect()
    (key,) = (key for key in deadlines(story.state) if key.startswith("confirm:"))
    story.decide_input(ev.DeadlinePassed(key=key, limit_ms=1000))
    story.settle()
    return story


def test_a_silent_node_begins_with_its_suspicion_and_not_with_the_false_alarm():
    told = only(silent())
    assert types(told)[:4] == [
        "node.suspected.v1",
        "deadline.passed.v1",
        "node.lost.v1",
        "incident.opened.v1",
    ]
    assert "node.recovered.v1" not in types(told)


def test_a_connection_that_came_back_is_no_evidence():
    story = running(3)
    story.disconnect("worker", "n2/0", 1)
    story.connect("worker", "n2/0", 1)
    flapped = len(story.log)
    story.lose("n2")
    story.settle()
    assert only(story).events[0].seq > flapped


def test_a_peers_report_that_came_first_names_nobody_once_the_node_is_known():
    story = Restless(0)
    story.disturbances = 0
    for n in (1, 2, 3):
        story.join(f"n{n}")
    story.settle()
    story.submit()
    story.settle()
    story.peer_error("n1/0")
    assert isinstance(story.step(), ev.IncidentOpened)
    story.lose("n2")
    story.settle()
    incident = only(story).incident
    assert (incident.severity, incident.node, incident.worker) == (1, "n2", None)
    assert incident.what.startswith("node n2 lost")


def test_servers_have_short_names():
    told = only(powered_off())
    assert told.events[0].who == "server/s"
    named = "server/" + "N" * 56
    source = ev.Source(who=named, incarnation=0, counter=0)
    assert entries.who(source) == "server/NNNNNNNN"


def test_what_happened_before_and_after_is_left_out():
    book = IncidentBook(night().log)
    first, second = (book.story(i) for i in book.ids)
    assert not {e.seq for e in first.events} & {e.seq for e in second.events}
    assert first.events[-1].type == second.events[-1].type == "incident.resolved.v1"


def test_an_incident_that_is_still_open():
    story = running(2)
    story.held.append(("quiesce", "n2/0"))
    story.exit("n1/1")
    story.settle()
    incident = only(story).incident
    assert incident.is_open
    assert (incident.resolved_seq, incident.duration_ms, incident.outcome) == (None, None, "")
    assert incident.cost_until == "log_end"
    assert incident.last_seq == story.state.seq


def test_a_wait_of_the_incident_that_reached_its_limit():
    story = running(2)
    story.held.append(("quiesce", "n2/0"))
    story.exit("n1/1")
    story.settle()
    story.decide_input(ev.DeadlinePassed(key="quiesce:gpt:1", limit_ms=8000))
    story.decide_input(ev.DeadlinePassed(key="quiesce:other:1", limit_ms=8000))
    story.settle()
    told = only(story)
    assert types(told).count("deadline.passed.v1") == 1
    assert "worker.stop_ordered.v1" in types(told)


def test_symptoms_at_the_survivors_belong_to_the_incident():
    story = Restless(0)
    story.disturbances = 0
    story.join("n1")
    story.settle()
    story.submit()
    story.settle()
    story.peer_error("n1/0")
    story.exit("n1/1")
    story.settle()
    told = only(story)
    assert types(told)[:2] == ["worker.peer_error.v1", "worker.exited.v1"]
    assert told.incident.severity == 2


def test_two_tasks_on_one_lost_node_have_a_story_each():
    story = Story()
    for n in (1, 2, 3):
        story.join(f"n{n}")
    story.settle()
    story.submit()
    story.submit(msgspec.structs.replace(SPEC, task="bert"))
    story.settle(400)
    story.lose("n2")
    story.settle(400)
    book = IncidentBook(story.log)
    hit = {book.story(i).incident.task for i in book.ids}
    assert hit
    for incident in book.ids:
        told = book.story(incident)
        assert types(told)[0] == "connection.closed.v1"
        assert {"node.lost.v1", "node.isolated.v1"} < {*types(told)}


@pytest.mark.parametrize("seed", range(8))
def test_stories_of_restless_nights_are_whole_and_in_order(seed):
    story = restless(seed)
    book = IncidentBook(story.log)
    assert len(book.ids) >= 2
    for incident in book.ids:
        told = book.story(incident)
        seqs = [event.seq for event in told.events]
        assert seqs == sorted({*seqs})
        named = {r.seq for r in story.log if r.envelope.incident == incident}
        assert named | {*story.state.incidents[incident].evidence} <= {*seqs}
        assert told.incident.first_evidence_seq == seqs[0] <= told.incident.opened_seq
        assert min(event.t_plus_ms for event in told.events) == 0
        assert all(event.what.isprintable() for event in told.events)
        assert told.incident in book.incidents()


def test_void_decisions_are_marked_and_repeated_facts_left_out():
    story = running(2)
    story.exit("n1/1")
    exited = story.log[-1]
    story.append_raw(exited.subject, exited.data)
    story.settle()
    told = only(story)
    assert [e.seq for e in told.events if e.type == "worker.exited.v1"] == [exited.seq]
    story.write(_again(story, ev.IncidentOpened), story.state)
    assert [e.seq for e in only(story).events if e.void] == [len(story.log)]


def _again(story, event):
    envelope = next(r.envelope for r in story.log if isinstance(r.envelope.body, event))
    return Verdict(body=envelope.body, cause=envelope.cause, incident=envelope.incident)
