"""What the demo tells of its incidents is what `unicron audit` tells of its log."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.core.story import SPEC
from tests.replay.histories import night
from unicron import events as ev
from unicron.controlplane.cli import demo_report
from unicron.controlplane.core.state import TaskState
from unicron.controlplane.local.compared import SAME, TaskOutcome, verdicts
from unicron.controlplane.local.demo import DemoOptions, DemoResult
from unicron.controlplane.local.faultrows import fault_rows
from unicron.controlplane.local.measure import Work
from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.replay.headline import cost_words
from unicron.controlplane.replay.units import duration


@pytest.fixture
def story(cli):
    told = night()
    told.history(Path("night.ndjson"))
    return told


@pytest.fixture
def result(story):
    """A demo of one task whose faults nobody announced."""
    work = Work(forwards={}, contributed={}, losses={}, commits=[])
    task = TaskOutcome(spec=SPEC, work=work, digest=None, reference=None, missing="none was run")
    return DemoResult(
        options=DemoOptions(iterations=3, seed=1, faults=(), log_path=Path("night.ndjson")),
        state=story.state,
        events=story.log,
        shots=[],
        rows=fault_rows([], story.state, story.log, {"gpt": work}),
        checks=verdicts((task,), story.state, story.log),
        tasks=(task,),
        took_s=1.0,
    )


def test_incidents_and_costs_are_those_of_the_audit(cli, result):
    told = json.loads(demo_report.as_json(result))
    audited = cli.json("audit", "--log", "night.ndjson")["items"]
    assert told["incidents"] == audited
    assert [fault["incident"] for fault in told["faults"]] == [item["id"] for item in audited]
    assert [fault["outcome"] for fault in told["faults"]] == [item["outcome"] for item in audited]


def test_the_text_tells_the_same_costs_and_events(result, story):
    text = demo_report.text(result)
    book = IncidentBook(story.log)
    for incident in book.incidents():
        assert f"{cost_words(incident)}; stood still for {duration(incident.stall_ms)}" in text
        assert all(event.what in text for event in book.story(incident.id).events)


def test_what_was_seen_first_is_what_the_audit_has_first(result, story):
    """The demo counts to there from the fault, the audit from there on."""
    for row, incident in zip(result.rows, IncidentBook(story.log).incidents(), strict=True):
        order = story.log[incident.first_evidence_seq - 1 :]
        planned = next(r for r in order if isinstance(r.envelope.body, ev.TransitionOrdered))
        assert row.plan_ms == (planned.at_ns - incident.first_evidence_at_ns) / 1e6


def test_a_check_holds_only_if_it_holds_for_every_task(result, story):
    """What is the same of all tasks is said once, anything else with their names."""
    one = result.tasks[0]
    spec = msgspec.structs.replace(SPEC, task=ev.TaskId("bert"))
    state = msgspec.structs.replace(story.state, tasks=story.state.tasks | {"bert": ENDED})
    both = verdicts((one, msgspec.structs.replace(one, spec=spec)), state, story.log)
    found = {check.name: check for check in both}
    done = found["each task completed"]
    assert "gpt: " in done.detail
    assert "bert: completed, iteration 100 of 100" in done.detail
    assert not found[SAME].ok
    assert found[SAME].detail == "can't be said: the reference run failed, none was run"


ENDED = TaskState(spec=SPEC, phase="completed", since=1, submitted=1, iteration=100)
