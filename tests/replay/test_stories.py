"""Stories of incidents of many kinds: whole, linked, and the same in text, JSON and struct."""

import json

import msgspec
import pytest

from tests.core.story import running
from tests.replay.histories import killed, powered_off
from tests.replay.simulated import SEEDS, incident_of, night_of
from unicron.controlplane.cli import incident_list, story_text
from unicron.controlplane.cli.log_source import Log
from unicron.controlplane.cli.opened import Opened
from unicron.controlplane.replay import IncidentBook, IncidentStory, IncidentSummary, Replayer


def only(story):
    book = IncidentBook(story.log)
    (incident,) = book.ids
    return book.story(incident)


def opened(book):
    log = Log(shown="x", cluster="c", birth="b", events=tuple(book._reading.log))
    return Opened(log=log, book=book, last_seq=len(log.events))


def values(view):
    """Every value in it, however deep."""
    if isinstance(view, dict):
        return [leaf for value in view.values() for leaf in values(value)]
    if isinstance(view, list | tuple):
        return [leaf for value in view for leaf in values(value)]
    return [view]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_incident_of_a_long_night_has_a_whole_story(seed):
    book = night_of(seed)
    assert len(book.ids) >= 4
    for incident in book.ids:
        story = book.story(incident)
        seqs = [e.seq for e in story.events]
        assert seqs == sorted({*seqs})
        assert story.incident in book.incidents()
        assert all(text and text.isprintable() for text in story.headline)
        assert all(e.seq in seqs for e in story.evidence)
        assert {a.seq for order in story.orders for a in order.answers} <= {*seqs}
        assert [p.task for p in story.tasks] == list(story.incident.tasks)
        assert [c.task for c in story.throughput] == list(story.incident.tasks)
        for event in story.events:
            assert event.because == tuple(sorted({*event.because}))
            assert all(cause < event.seq for cause in event.because)
        for curve in story.throughput:
            assert [p.at_ns for p in curve.points] == sorted(p.at_ns for p in curve.points)
        assert not [v for v in values(msgspec.to_builtins(story)) if isinstance(v, float)]


@pytest.mark.parametrize("seed", SEEDS)
def test_text_and_json_come_from_the_same_struct(seed):
    """Every row, number and sentence of the view is in both."""
    book = night_of(seed)
    shown = opened(book)
    report = Replayer(shown.log.events).replay()
    listed = json.loads(incident_list.as_json(shown, report))["items"]
    fields = [
        {k: v for k, v in i.items() if k in IncidentSummary.__struct_fields__} for i in listed
    ]
    assert msgspec.convert(fields, tuple[IncidentSummary, ...]) == book.incidents()
    rows = incident_list.as_text(shown, report).splitlines()
    for summary, row in zip(book.incidents(), rows[3:], strict=False):
        assert row.startswith(summary.id)
        assert summary.what in row
    for incident in book.ids[:: max(1, len(book.ids) // 5)]:
        story = book.story(incident, report)
        document = json.loads(story_text.as_json(shown, story, report))
        fields = {k: document[k] for k in IncidentStory.__struct_fields__}
        assert msgspec.convert(fields, IncidentStory) == story
        text = story_text.as_text(shown, story, report)
        told = [*story.headline[1:], *(e.what for e in story.events), *story.disagreements]
        told += [e.what for e in story.evidence] + [
            line for p in story.plans for line in p.explanation
        ]
        told += [n.what for n in story.now] + [story.trust.chain, story.trust.state_digest]
        assert [line for line in told if line not in text] == []


def test_who_was_hit_before_during_and_after():
    (passage,) = only(killed()).tasks
    assert passage.hit
    sizes = [(m.devices, m.generation) for m in (passage.before, passage.during, passage.after)]
    assert sizes == [(4, 1), (3, 2), (4, 3)]
    assert passage.before.workers == ("n1/0", "n2/0", "n1/1", "n2/1")
    assert passage.during.workers == ("n1/0", "n2/0", "n2/1")
    assert passage.whole is None
    assert 0 < passage.during.gflops < passage.before.gflops == passage.after.gflops


def test_a_headline_says_what_whom_how_long_and_how_it_ended():
    story = only(killed())
    what, whom, cost, outcome = story.headline
    assert what == "Worker n1/1 exited abnormally (signal 9)."
    assert whom == (
        f"gpt stood still for {story.incident.stall_ms} ms and went on with 3 of 4 devices; it had "
        f"all 4 again after {story.incident.duration_ms} ms."
    )
    assert outcome == "Outcome: trains on 4 devices, generation 3."
    assert cost.startswith("It cost ")
    assert cost.endswith(" device-seconds), until it had what it had before.")


def test_decisions_tell_what_else_could_have_been_done():
    story = only(powered_off())
    local, solved = story.plans
    assert (local.source, local.taken, local.comparable) == ("local", True, True)
    assert [(g.task, g.devices) for g in local.before] == [("gpt", 6)]
    assert [(g.task, g.devices) for g in local.after] == [("gpt", 4)]
    waiting = next(a for a in local.alternatives if a.name == "wait")
    assert waiting.what == "gpt stands still"
    assert waiting.waf_milli == 0
    assert waiting.loss_milli == local.value_milli - waiting.value_milli > 0
    assert solved.request_seq == solved.computed_at < solved.solved_seq < solved.seq
    assert local.explanation == ("gpt shrinks from 6 to 4 devices",)


def test_alternatives_are_worth_what_the_planner_says():
    found = [
        (plan, other)
        for seed in SEEDS
        for incident in night_of(seed).ids
        for plan in night_of(seed).story(incident).plans
        for other in plan.alternatives
    ]
    assert {other.name for _, other in found} >= {"wait", "dp", "local"}
    for plan, other in found:
        assert plan.comparable
        assert other.loss_milli == plan.value_milli - other.value_milli
        assert other.value_milli <= other.waf_milli


def test_orders_have_the_answers_that_name_them_or_follow_from_them():
    orders = {o.type: o for o in only(killed()).orders}
    closed = orders["generation.closed.v1"]
    assert [a.who for a in closed.answers] == ["worker/n1/0", "worker/n2/0", "worker/n2/1"]
    started = orders["worker.start_ordered.v1"]
    assert [a.what.split(" ", 3)[3] for a in started.answers] == ["runs as process 1"]
    assert orders["transition.ordered.v1"].answers


def test_a_loss_names_what_was_seen_of_it_and_not_the_nodes_admission():
    story = only(powered_off())
    lost = next(e for e in story.events if e.type == "node.lost.v1")
    closed = [e.seq for e in story.events if e.type == "connection.closed.v1"]
    assert len(closed) == 3
    assert {*closed} <= {*lost.because}
    admitted = [e for e in IncidentBook(powered_off().log).entries("n2") if "admits" in e.what]
    assert admitted[0].seq not in lost.because


def test_a_second_life_of_a_worker_does_not_hide_its_closed_connection():
    story = running(3)
    story.exit("n2/1")
    story.settle()
    story.lose("n2")
    story.settle()
    book = IncidentBook(story.log)
    lost = next(e for e in book.story(book.ids[1]).events if e.type == "node.lost.v1")
    told = [e.what for e in book.entries() if e.seq in lost.because]
    assert any("worker n2/1 to the log closed" in text for text in told)


def test_an_agent_that_died_alone_is_told_as_that():
    (incident,) = incident_of("at 5 s, the agent of n2 is killed for 8 s").incidents()
    assert "were still connected to the log: its agent alone had died" in incident.what
    (incident,) = incident_of("at 5 s, the agent of n2 is killed for 1 s").incidents()
    assert incident.what.startswith("a new agent of n2 took over, which ends the workers")
    assert "its connection had been closed for 1." in incident.what


def test_a_store_that_died_is_told_and_not_only_the_worker_that_missed_it():
    stores = [f"the store of n{n} is killed" for n in (1, 2, 3)]
    happened = [*stores, "n2/0 loses its connections in reduction"]
    text = "\n".join(f"at 5 s, {each}" for each in happened)
    book = incident_of(text)
    (incident,) = book.incidents()
    assert incident.severity in (2, 3)
    assert incident.what.startswith("the store of n")
    assert " reports: " in incident.what
    assert any(
        "the store of n" in line and "had died and was back with #" in line
        for line in book.story(incident.id).disagreements
    )


def test_symptoms_are_told_from_causes():
    book = night_of(SEEDS[0])
    stories = [book.story(i) for i in book.ids]
    weights = {e.weight for s in stories for e in s.evidence}
    assert weights == {"cause", "symptom", "suspicion"}
    told = [line for s in stories for line in s.disagreements]
    assert any("reported a lost peer: a symptom" in line for line in told)
    assert any("raised it to SEV" in line for line in told)


def test_how_things_stand_now_and_what_to_type():
    story = only(powered_off())
    assert [(n.kind, n.name, n.state) for n in story.now] == [
        ("node", "n2", "isolated"),
        ("task", "gpt", "running"),
    ]
    assert story.commands[0].arguments == ("why", "n2")


def test_trust_is_that_of_the_report():
    log = killed().log
    book = IncidentBook(log)
    unlooked = book.story(book.ids[0]).trust
    assert (unlooked.verified, unlooked.to_seq, unlooked.redecided) == (None, len(log), 0)
    report = Replayer(log).verify()
    trust = book.story(book.ids[0], report).trust
    assert (trust.verified, trust.from_seq, trust.to_seq) == (True, 1, len(log))
    assert (trust.state_digest, trust.chain) == (report.digest, report.chain)
    assert trust.redecided == report.redecided > 0
    (leader,) = trust.leaders
    assert (leader.term, leader.instance, leader.version) == (1, "i1", "test")
