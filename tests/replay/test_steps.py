"""The steps of incidents: those of known stories, and what holds for those of any log."""

from pathlib import Path

import pytest

from tests.core.story import STEP_NS
from tests.replay.histories import killed, night, powered_off, restless
from unicron import events as ev
from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.replay.steps import CUT, DONE, NAMES, OPEN
from unicron.controlplane.testing import scripted, seeds, simulation
from unicron.controlplane.testing.scenario import parse

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.txt"))


def only(story):
    """The steps of the only incident in the log."""
    book = IncidentBook(story.log)
    (incident,) = book.ids
    return book.steps(incident)


def brief(steps):
    return [(s.name, s.transition, s.first_seq, s.last_seq) for s in steps.steps]


def seqs(story, event):
    return [r.seq for r in story.log if isinstance(r.envelope.body, event)]


def test_a_killed_worker_step_by_step():
    story = killed()
    steps = only(story)
    exited = seqs(story, ev.WorkerExited)[-1]
    close, resolved = exited + 2, seqs(story, ev.IncidentResolved)[-1]
    order, again = seqs(story, ev.TransitionOrdered)[-2:]
    commits, ready = seqs(story, ev.MemberCommitted), seqs(story, ev.MemberReady)
    assert brief(steps) == [
        ("detect", 0, exited, exited),
        ("classify", 0, exited, exited + 1),
        ("quiesce", 1, close, close + 3),
        ("plan", 1, close + 3, order),
        ("regroup", 1, order, ready[-5]),
        ("redistribute", 1, ready[-7], commits[-7]),
        ("resume", 1, commits[-7], commits[-5]),
        ("regroup", 2, again, ready[-1]),
        ("transfer", 2, again, ready[-1]),
        ("redistribute", 2, ready[-4], commits[-4]),
        ("resume", 2, commits[-4], commits[-1]),
    ]
    assert {s.state for s in steps.steps} == {DONE}
    assert (steps.first_seq, steps.last_seq) == (exited, resolved)
    assert steps.end_ns - steps.start_ns == (resolved - exited) * STEP_NS
    first, rejoin = steps.transitions
    assert (first.closed, first.ordered, first.planned, first.state) == (1, 2, False, DONE)
    assert (rejoin.closed, rejoin.ordered, rejoin.planned, rejoin.state) == (None, 3, True, DONE)


def test_ranks_of_a_killed_worker_and_what_they_keep_and_owe():
    steps = only(killed())
    (quiesce,), (transfer,) = steps.named("quiesce"), steps.named("transfer")
    assert [(r.worker, r.rank, r.how) for r in quiesce.ranks] == [
        ("n1/0", 0, "quiesced"),
        ("n2/0", 1, "quiesced"),
        ("n2/1", 3, "quiesced"),
    ]
    assert [r.end_ns for r in quiesce.ranks] == [
        quiesce.start_ns + n * STEP_NS for n in range(1, 4)
    ]
    shares, planned = steps.named("redistribute")
    assert sum(r.kept for r in shares.ranks) + sum(r.owed for r in shares.ranks) == 12
    assert {(r.kept, r.owed) for r in planned.ranks} == {(None, None)}
    (joiner,) = transfer.ranks
    assert (joiner.worker, joiner.how) == ("n1/1", "ready")
    assert joiner.state_from is not None


def test_a_lost_node_is_detected_over_several_events_and_planned_for_twice():
    story = powered_off()
    steps = only(story)
    (detect,), (classify,) = steps.named("detect"), steps.named("classify")
    (lost,) = seqs(story, ev.NodeLost)
    assert (detect.first_seq, detect.last_seq) == (lost - 4, lost)
    assert (classify.last_seq, classify.cause) == (lost + 1, (lost,))
    local, solved = steps.named("plan")
    decided, requested = seqs(story, ev.PlanDecided)[-2:], seqs(story, ev.PlanRequested)[-1]
    assert (local.transition, local.last_seq) == (1, decided[0])
    assert (solved.transition, solved.first_seq, solved.last_seq) == (0, requested, decided[1])
    assert {r.node for s in steps.named("regroup") for r in s.ranks} == {"n1", "n3"}


@pytest.mark.parametrize("make", [killed, powered_off])
def test_an_incident_that_is_open_has_open_steps(make):
    """At each point of its story: what is done is done, and what began last is open."""
    log = make().log
    (whole,) = (IncidentBook(log).steps(i) for i in IncidentBook(log).ids)
    opened = next(s.last_seq for s in whole.named("classify"))
    for until in range(opened, whole.last_seq):
        book = IncidentBook(log[:until])
        steps = book.steps(book.ids[-1])
        check(steps, log[:until])
        assert steps.last_seq is None
        finished = [s for s in whole.steps if s.last_seq <= until and s.name != "plan"]
        for step in finished:
            assert step in steps.steps, f"at #{until}: {step}"
        open_ = {s.name for s in steps.steps if s.state == OPEN}
        running = {s.name for s in whole.steps if s.first_seq <= until < s.last_seq}
        # That a plan is being made shows by its request only, if it has one.
        assert running - {"plan", "redistribute"} <= open_ <= running


def check(steps, log):
    """What holds for the steps of any incident."""
    end = steps.last_seq or len(log)
    end_ns = steps.end_ns or max(r.at_ns for r in log[:end])
    assert [(s.first_seq, NAMES.index(s.name)) for s in steps.steps] == sorted(
        (s.first_seq, NAMES.index(s.name)) for s in steps.steps
    )
    for step in steps.steps:
        assert step.name in NAMES
        assert steps.first_seq <= step.first_seq <= (step.last_seq or end) <= end
        assert steps.start_ns <= step.start_ns <= (step.end_ns or end_ns) <= end_ns
        assert (step.last_seq is None) == (step.end_ns is None) == (step.state == OPEN)
        assert step.state != OPEN or steps.last_seq is None
        assert all(0 < c <= end for c in step.cause)
        numbers = {t.number for t in steps.transitions} | {0}
        assert step.transition in numbers
        for part in step.ranks:
            assert (part.seq is None) == (part.end_ns is None) == (not part.how)
            assert step.start_ns <= part.start_ns <= (part.end_ns or end_ns)
            assert (part.end_ns or step.start_ns) <= (step.end_ns or end_ns)
            assert step.state != DONE or part.seq is not None
            assert part.seq is None or part.seq <= (step.last_seq or end)
    assert [t.number for t in steps.transitions] == list(range(1, len(steps.transitions) + 1))
    for transition in steps.transitions:
        names = [s.name for s in steps.steps if s.transition == transition.number]
        assert names.count("quiesce") == (transition.closed is not None)
        assert names.count("regroup") == (transition.ordered is not None)
        assert transition.state != DONE or names.count("resume") == 1
        if transition.closed is not None and transition.ordered is not None:
            assert "plan" in names


def all_steps(log):
    book = IncidentBook(log)
    found = [book.steps(incident) for incident in book.ids]
    for steps in found:
        check(steps, log)
    return found


def test_steps_of_every_scenario():
    seen, states = set(), set()
    for path in SCENARIOS:
        log = scripted.run(parse(path.read_text(encoding="utf-8"), path.name)).outcome.log
        for steps in all_steps(log):
            seen |= {s.name for s in steps.steps}
            states |= {s.state for s in steps.steps}
    assert seen == set(NAMES)
    assert {DONE, CUT} <= states


@pytest.mark.parametrize("seed", range(4))
def test_steps_under_random_faults(seed):
    log = simulation.run(seeds.options_of(seed)).log
    found = all_steps(log)
    assert len(found) > 1
    middle = found[len(found) // 2]
    assert all_steps(log[: (middle.first_seq + middle.last_seq) // 2])


@pytest.mark.parametrize("make", [night, *(lambda seed=s: restless(seed) for s in range(5))])
def test_steps_where_facts_land_between_a_decision_and_its_basis(make):
    found = all_steps(make().log)
    assert len(found) >= 2
