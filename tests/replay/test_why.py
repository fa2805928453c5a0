"""Causes: what led to each event, chains back to the first evidence, ids as people type them."""

import pytest

from tests.core.story import running
from tests.replay.histories import killed, night, powered_off
from tests.replay.simulated import SEEDS, incident_of, night_of
from unicron import events as ev
from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.replay.ids import find
from unicron.controlplane.replay.why import LINKS_MAX
from unicron.events import ConfigError


def types(chain):
    return [link.event.type for link in chain.links]


def seq_of(story, event, nth=0):
    return [r.seq for r in story.log if isinstance(r.envelope.body, event)][nth]


def test_why_a_node_is_isolated():
    story = powered_off()
    chain = IncidentBook(story.log).why("n2")
    assert (chain.kind, chain.seq) == ("node", seq_of(story, ev.NodeIsolated))
    assert types(chain)[:2] == ["node.isolated.v1", "node.lost.v1"]
    roots = [link.event.type for link in chain.links if link.root]
    assert roots == ["connection.closed.v1"] * 3
    assert chain.answer[0].startswith(f"n2 is isolated since #{chain.seq}: control/i1 isolates n2")
    assert chain.answer[1].startswith(f"because #{seq_of(story, ev.NodeLost)}, ")
    assert "it began with #" in chain.answer[2]


def test_why_a_task_shrank():
    story = night()
    chain = IncidentBook(story.log).why("gpt")
    orders = [r for r in story.log if isinstance(r.envelope.body, ev.TransitionOrdered)]
    smaller = [r.seq for r in orders if len(r.envelope.body.members) == 4][-1]
    assert chain.seq == smaller
    assert chain.answer[0].startswith(f"gpt shrinks from 6 to 4 devices with #{smaller}: ")
    assert {"generation.closed.v1", "node.lost.v1", "connection.closed.v1"} < {*types(chain)}
    grown = next(o.seq for o in chain.others if o.what == "gpt grows from 4 to 6 devices")
    assert chain.answer[-1].startswith("this is the newest shrink; also: ")
    assert f"#{grown}, gpt grows from 4 to 6 devices" in chain.answer[-1]
    assert "gpt grows from 4 to 6 devices" in [other.what for other in chain.others]


def test_why_a_worker_ended_and_an_incident_was_opened():
    story = killed()
    book = IncidentBook(story.log)
    exited = seq_of(story, ev.WorkerExited)
    incident = book.why(book.ids[0])
    assert types(incident) == ["incident.opened.v1", "worker.exited.v1"]
    assert incident.commands[0].arguments == ("audit", book.ids[0])
    worker = book.why("n1/1")
    assert worker.seq == seq_of(story, ev.WorkerStartOrdered, -1)
    assert exited in [link.event.seq for link in worker.links]
    assert exited in [other.seq for other in worker.others]


def test_why_an_event_and_a_first_one():
    story = killed()
    book = IncidentBook(story.log)
    resolved = seq_of(story, ev.IncidentResolved)
    chain = book.why(f"#{resolved}")
    assert (chain.kind, chain.incident) == ("event", book.ids[0])
    assert chain.links[-1].event.type == "worker.exited.v1"
    assert [link.event.seq for link in chain.links] == sorted(
        (link.event.seq for link in chain.links), reverse=True
    )
    first = book.why("1")
    assert types(first) == ["leadership.taken.v1"]
    assert first.answer[1].startswith("nothing in the log led to it")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_event_of_a_long_night_has_a_chain_that_holds_together(seed):
    book = night_of(seed)
    longest = 0
    for seq in range(1, book.state.seq + 1, 37):
        chain = book.why(str(seq))
        told = {link.event.seq for link in chain.links}
        longest = max(longest, len(told))
        assert chain.links[0].event.seq == chain.seq == seq
        assert len(told) == len(chain.links) <= LINKS_MAX
        assert any(link.root for link in chain.links)
        if not chain.left_out:
            assert all(
                any(link.event.seq in other.event.because for other in chain.links)
                for link in chain.links[1:]
            )
    assert longest >= 10


def test_facts_follow_from_orders():
    story = killed()
    book = IncidentBook(story.log)
    told = {e.seq: e for e in book.entries()}
    because = {e.seq: [told[c].type for c in e.because] for e in told.values()}
    kinds = {e.type: because[e.seq] for e in told.values()}
    assert kinds["member.quiesced.v1"] == ["generation.closed.v1"]
    assert kinds["member.committed.v1"] == ["member.ready.v1"]
    assert kinds["member.ready.v1"] == ["transition.ordered.v1"]
    assert kinds["worker.started.v1"] == ["worker.start_ordered.v1"]
    assert kinds["worker.prepared.v1"] == ["worker.started.v1"]
    assert kinds["plan.solved.v2"] == ["plan.requested.v1"]
    assert kinds["worker.start_ordered.v1"] == ["plan.decided.v1", "worker.exited.v1"]
    assert {*kinds["transition.completed.v1"]} == {"transition.ordered.v1", "member.ready.v1"}


def test_a_close_names_all_that_had_broken_the_generation():
    """The first report is a survivor's; which node went away, the closed connections tell."""
    book = incident_of("at 6 s, n2 loses power")
    told = {e.seq: e for e in book.entries()}
    closes = [e for e in told.values() if e.type == "generation.closed.v1"]
    (close,) = [e for e in closes if told[e.cause[0]].type == "worker.peer_error.v1"]
    assert close.cause[0] in close.because
    clients = [told[c].fields["client"] for c in close.because if "client" in told[c].fields]
    assert clients
    assert {client.split("/")[1] for client in clients} == {"n2"}
    chain = book.why(str(close.seq))
    assert chain.answer[1].startswith(f"because #{close.cause[0]}, ")
    assert "the agent of n2" in chain.answer[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_close_follows_from_every_report_about_its_generation(seed):
    told = list(night_of(seed).entries())
    reports = {"worker.peer_error.v1", "worker.exception.v1", "task.stalled.v1"}
    ordered: dict[str, int] = {}
    closes = 0
    for event in told:
        task = event.fields.get("task")
        if event.type == "transition.ordered.v1" and not event.void:
            ordered[task] = event.seq
        if event.type != "generation.closed.v1" or task not in ordered:
            continue
        since = told[ordered[task] : event.seq - 1]
        expected = {e.seq for e in since if e.type in reports and e.fields["task"] == task}
        assert expected <= {*event.because}
        closes += bool(expected)
    assert closes


def test_the_loss_of_a_node_is_one_of_its_workers():
    story = powered_off()
    lost = seq_of(story, ev.NodeLost)
    book = IncidentBook(story.log)
    assert lost in [e.seq for e in book.entries("n2/1")]
    assert lost in [e.seq for e in book.status("n2/1").events]
    assert lost not in [e.seq for e in book.entries("n1/1")]


# --- Ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked,kind,name",
    [
        ("n2", "node", "n2"),
        ("n2/1", "worker", "n2/1"),
        ("gp", "task", "gpt"),
        ("inc-", "incident", None),
        ("#12", "event", "12"),
        ("1,0", "event", "10"),
        ("node:n1", "node", "n1"),
    ],
)
def test_what_an_id_means(asked, kind, name):
    state = killed().state
    found = find(state, asked)
    assert found.kind == kind
    assert found.id == (name or next(iter(state.incidents)))


@pytest.mark.parametrize(
    "asked,code,told",
    [
        ("n", "E-ID-AMBIGUOUS", "there are n1, n2"),
        ("gtp", "E-ID-UNKNOWN", "did you mean gpt?"),
        ("zzz", "E-ID-UNKNOWN", "it has 1 incident, 2 nodes, 1 task, 4 workers"),
        ("99999", "E-ID-SEQUENCE", "it ends with #"),
        ("0", "E-ID-SEQUENCE", "it ends with #"),
        ("worker:n1", "E-ID-AMBIGUOUS", "there are n1/0, n1/1"),
        ("node:gpt", "E-ID-UNKNOWN", "it has "),
        ("\x1b[2J\n", "E-ID-UNKNOWN", "it has "),
        ("", "E-ID-UNKNOWN", "it has "),
    ],
)
def test_what_means_nothing_or_too_much(asked, code, told):
    with pytest.raises(ConfigError) as caught:
        find(killed().state, asked)
    assert caught.value.code == code
    assert told in caught.value.why
    assert caught.value.fix
    assert caught.value.what.isprintable()


def test_one_name_for_two_things():
    story = running(1)
    story.submit(ev.TaskSpec(**{f: getattr(_spec(), f) for f in _spec().__struct_fields__}))
    with pytest.raises(ConfigError) as caught:
        find(story.state, "n1")
    assert caught.value.why == "there are node:n1, task:n1"
    assert find(story.state, "task:n1").kind == "task"


def _spec():
    import msgspec

    from tests.core.story import SPEC

    return msgspec.structs.replace(SPEC, task="n1")
