"""The invariants as a whole: named, told in one sentence each, documented; those of a state at
rest and of a reduction."""

import re
import textwrap
from pathlib import Path

import pytest

from tests.core.planting import names, of_node, of_plan, of_state, of_task, of_worker
from tests.core.story import SPEC, Story, running
from tests.core.test_severity import exits
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.invariants import (
    INVARIANTS,
    rest_violations,
    samples_violations,
)
from unicron.controlplane.core.state import Cause, IncidentState

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
MOMENTS = {
    "event": "After every event:",
    "decision": "Of a decision, on the state it is made on:",
    "rest": "Of a state on which nothing is to be decided:",
    "reduction": "Of what members hold when they reduce:",
}


def listed() -> str:
    """The invariants as the page lists them."""
    lines = []
    for moment, title in MOMENTS.items():
        lines += [title, ""]
        for invariant in INVARIANTS:
            if invariant.moment == moment:
                item = f"- `{invariant.name}`: {invariant.sentence}"
                lines += textwrap.wrap(item, 104, subsequent_indent="  ", break_on_hyphens=False)
        lines.append("")
    return "\n".join(lines)


def test_the_page_lists_them_all():
    section = PAGE.read_text(encoding="utf-8").partition("\n## Invariants\n")[2]
    section = section.partition("\n## ")[0]
    assert listed().strip() in section, f"the section is to say:\n\n{listed()}"


def test_each_has_a_name_of_its_own_and_one_sentence():
    assert len({i.name for i in INVARIANTS}) == len(INVARIANTS) > 50
    for invariant in INVARIANTS:
        assert re.fullmatch(r"[A-Z][^.]*\.", invariant.sentence), invariant


def test_each_is_told_of_in_a_test():
    """By its name, in the tests that plant something wrong."""
    here = Path(__file__).parent
    tests = "".join(p.read_text(encoding="utf-8") for p in here.glob("test_*invariants.py"))
    assert [i.name for i in INVARIANTS if f'"{i.name}"' not in tests] == []


# --- At rest ------------------------------------------------------------------------------------


def shrunk(state):
    """It trains on three devices, was given four, and nobody is coming."""
    task = state.tasks["gpt"]
    gone = task.members[-1].worker
    state = of_worker(gone, status="exited")(state)
    committed = {k: v for k, v in task.committed.items() if k != gone}
    return of_task(members=task.members[:-1], committed=committed)(state)


STATE = running().state
EXITED = {name: replace(w, status="exited") for name, w in STATE.workers.items()}
WAITS, LEFT = "no_task_waits_without_a_limit", "no_worker_is_left_over"


def at_rest(state) -> set[str]:
    return names(rest_violations(state))


@pytest.mark.parametrize(
    "fields,why",
    [
        ({"broken": (ev.Sequence(1),)}, "it is broken"),
        ({"allocation": None}, "nobody plans it"),
        ({"committed": {}, "phase": "ordered", "overdue": True}, "has no limit"),
        ({"phase": "closed", "overdue": True}, "its answers have no limit"),
        ({"members": STATE.tasks["gpt"].members[:3], "committed": {}}, ""),
    ],
)
def test_a_task_that_waits_in_vain(fields, why):
    assert at_rest(STATE) == set()
    state = of_task(**fields)(STATE)
    assert at_rest(state) == ({WAITS} if why else set())
    assert why in " ".join(v.what for v in rest_violations(state))


@pytest.mark.parametrize(
    "change,why",
    [
        (lambda s: of_task(phase="closed")(replace(s, workers=EXITED)), "nobody comes"),
        (lambda s: replace(s, workers=EXITED), "are dead"),
        (of_node("n1", status="isolated"), ""),
        (shrunk, "isn't what the plan says"),
    ],
)
def test_a_task_whose_workers_are_not_as_the_plan_says(change, why):
    state = change(STATE)
    assert at_rest(state) == ({WAITS} if why else set())
    assert why in " ".join(v.what for v in rest_violations(state))


def test_a_task_that_ended_and_left_somebody():
    assert at_rest(of_task(phase="completed")(STATE)) == {LEFT}
    apart = of_node("n2", status="isolated")(of_node("n1", status="isolated")(STATE))
    assert at_rest(of_task(phase="completed")(apart)) == set()


def test_a_device_that_is_kept_from_its_task():
    """Another task stands on it, is being stopped, and nobody looks at how long that takes."""
    told = "no_device_is_kept_without_a_limit"
    gpt = STATE.tasks["gpt"]
    other = replace(gpt, spec=replace(gpt.spec, task="bert"), members=())
    holding = replace(STATE.workers["n2/1"], task="bert", status="stopping")
    state = replace(STATE, tasks=STATE.tasks | {"bert": replace(other, allocation=None)})
    state = replace(state, workers=state.workers | {"n2/1": holding})
    assert told not in at_rest(state)
    stuck = of_worker("n2/1", overdue=True)(state)
    found = {v.invariant: v.what for v in rest_violations(stuck)}
    assert found[told] == "gpt waits for n2/1, held by bert (stopping)"


def test_a_node_that_is_forgotten():
    story = Story()
    story.join("n1")
    told = {"no_node_is_forgotten"}
    assert at_rest(story.state) == told
    assert at_rest(of_node("n2", sick="x")(STATE)) == told
    lost = of_node("n2", status="lost", reason="lost: x")(replace(STATE, workers=EXITED))
    assert told < at_rest(lost)


def test_evidence_that_waits():
    story = running()
    exits(story, "n2/1")
    assert "no_evidence_waits" in at_rest(story.state)
    cause = Cause(at=ev.Sequence(1), severity=1, what="x", node="n1")
    assert at_rest(of_state(causes=(cause,))(STATE)) == {"no_evidence_waits"}


@pytest.mark.parametrize("task", [None, "gpt"])
def test_an_incident_without_an_end(task):
    incident = IncidentState(
        incident="inc-1",
        opened=ev.Sequence(1),
        severity=2,
        task=task,
        node="n1",
        worker=None,
        what="x",
        evidence=(ev.Sequence(1),),
    )
    state = of_state(incidents={"inc-1": incident})(STATE)
    assert at_rest(state) == ({"no_incident_stays_open"} if task is None else set())
    assert "no_incident_stays_open" in at_rest(of_task(phase="failed")(state))


def test_a_plan_that_may_never_come(monkeypatch):
    asked = of_plan(wanted=ev.Sequence(1), request=ev.Sequence(2))(STATE)
    assert at_rest(asked) == set()
    monkeypatch.setattr("unicron.controlplane.core.waiting.deadlines", lambda state: {})
    assert at_rest(asked) == {"no_plan_waits_for_ever"}


def test_a_task_that_no_plan_came_for_waits_for_another_try():
    failures = limits.PLAN_FAILURES_MAX
    wanted = of_plan(wanted=ev.Sequence(1), failures=failures)
    assert at_rest(wanted(of_task(allocation=None)(STATE))) == set()
    assert at_rest(of_plan(failures=failures)(of_task(allocation=None)(STATE))) == {WAITS}


# --- When members reduce ------------------------------------------------------------------------

ALL = frozenset(range(SPEC.micro_batches))
SOME = frozenset(range(5))


@pytest.mark.parametrize(
    "parts,told",
    [
        ([(3, SOME), (3, ALL - SOME)], set()),
        ([(3, SOME), (4, ALL - SOME)], {"members_reduce_one_iteration"}),
        ([(SPEC.iterations, ALL)], {"members_reduce_one_iteration"}),
        ([], {"members_reduce_one_iteration", "samples_are_reduced_once"}),
        ([(3, SOME), (3, ALL - SOME - {7})], {"samples_are_reduced_once"}),
        ([(3, SOME), (3, ALL)], {"samples_are_reduced_once"}),
        ([(3, ALL | {SPEC.micro_batches})], {"samples_are_reduced_once"}),
    ],
)
def test_what_members_hold_when_they_reduce(parts, told):
    found = samples_violations(SPEC, parts, ev.Sequence(8))
    assert names(found) == told
    assert {v.seq for v in found} <= {8}
