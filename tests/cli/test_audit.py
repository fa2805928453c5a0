from pathlib import Path

import pytest

from tests.cli.conftest import golden
from tests.core.story import running
from tests.replay.histories import night
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.replay import IncidentBook


@pytest.fixture
def nightly(cli):
    """A log with two incidents; its book."""
    story = night()
    story.history(Path("night.ndjson"))
    return IncidentBook(story.log)


def test_all_incidents(cli, log):
    done = cli("audit", "--log", log)
    assert done.exit_code == 0
    golden("audit_list.txt", done.stdout)


def test_the_story_of_one(cli, log):
    done = cli("audit", "--log", log, "inc-")
    assert done.exit_code == 0
    golden("audit_story.txt", done.stdout)


def test_a_log_without_incidents(cli):
    story = running(1)
    story.history(Path("calm.ndjson"))
    done = cli("audit", "--log", "calm.ndjson")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"cluster c up to #{story.state.seq}: 0 incidents, 0 open")
    assert done.stdout.endswith("next: unicron replay --verify --log calm.ndjson\n")
    assert cli.json("audit", "--log", "calm.ndjson")["items"] == []


def test_an_open_incident(cli):
    story = running(2)
    story.held.append(("quiesce", "n2/0"))
    story.exit("n1/1")
    story.settle()
    story.history(Path("open.ndjson"))
    done = cli("audit", "--log", "open.ndjson")
    assert "1 incident, 1 open" in done.stdout
    assert "; ! still open" in done.stdout
    assert " -  " in done.stdout
    (item,) = cli.json("audit", "--log", "open.ndjson")["items"]
    assert item["is_open"] is True
    assert item["resolved_seq"] is item["duration_ms"] is None


def test_incidents_as_json(cli, nightly):
    document = cli.json("audit", "--log", "night.ndjson")
    assert document["schema"] == "unicron.audit.incidents/1"
    assert document["at_seq"] == document["verified_to"] == nightly.state.seq
    assert [item["id"] for item in document["items"]] == list(nightly.ids)
    first = document["items"][0]
    milliseconds = first["first_evidence_seq"] - 1  # in a story one passes with each event
    assert first["first_evidence_at"] == f"2026-09-21T14:13:20.{milliseconds:03}Z"
    assert first["detect_ms"] == 1


def test_a_story_as_json_has_what_the_view_has(cli, nightly):
    for incident in nightly.ids:
        document = cli.json("audit", "--log", "night.ndjson", incident)
        assert document["schema"] == "unicron.audit.incident/1"
        told = nightly.story(incident)
        assert [e["seq"] for e in document["events"]] == [e.seq for e in told.events]
        assert [e["what"] for e in document["events"]] == [e.what for e in told.events]
        assert document["incident"]["duration_ms"] == told.incident.duration_ms
        text = cli("audit", "--log", "night.ndjson", incident).stdout
        assert all(event.what in text for event in told.events)


def test_a_unique_beginning_names_an_incident(cli, nightly):
    first, second = nightly.ids
    unique = next(first[:n] for n in range(len(first)) if not second.startswith(first[:n]))
    whole = cli("audit", "--log", "night.ndjson", first)
    assert whole.exit_code == 0
    assert cli("audit", "--log", "night.ndjson", unique).stdout == whole.stdout


def test_a_beginning_of_several(cli, nightly):
    done = cli("audit", "--log", "night.ndjson", "inc-")
    assert done.exit_code == 2
    assert "'inc-' begins 2 incidents (E-AUDIT-AMBIGUOUS)" in done.stderr
    assert ", ".join(nightly.ids) in done.stderr


def test_an_incident_that_is_not_there(cli, nightly, log):
    done = cli("audit", "--log", "night.ndjson", "inc-1-gpt")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no incident 'inc-1-gpt' in this log (E-AUDIT-INCIDENT)" in done.stderr
    assert "did you mean inc-" in done.stderr
    assert "it has 1 incident\n" in cli("audit", "--log", log, "x").stderr


@pytest.mark.parametrize("named", ["5", "#5"])
def test_an_event_is_no_incident(cli, log, named):
    done = cli("audit", "--log", log, named)
    assert done.exit_code == 2
    assert f"{named} is no incident (E-AUDIT-INCIDENT)" in done.stderr
    assert "unicron why 5" in done.stderr


@pytest.mark.parametrize("name,kind", [("gpt", "task"), ("n1", "node"), ("n1/1", "worker")])
def test_what_is_no_incident_but_something_else(cli, log, name, kind):
    done = cli("audit", "--log", log, name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{name} is a {kind}, not an incident (E-AUDIT-INCIDENT)" in done.stderr
    assert f"try: unicron why {name}, or unicron events --for {name}\n" in done.stderr


def test_an_audit_says_that_the_record_does_not_hold(cli, story):
    forged = story.log[-1].envelope
    story.write(_verdict(forged), story.state)
    story.history(Path("forged.ndjson"))
    done = cli("audit", "--log", "forged.ndjson")
    assert done.exit_code == 1
    assert f"x the record does not hold at #{len(story.log)}: " in done.stdout
    document = cli.json("audit", "--log", "forged.ndjson", exit_code=1)
    assert document["verified_to"] == len(story.log) - 1
    assert document["divergence"]["seq"] == len(story.log)


def _verdict(envelope):
    return Verdict(body=envelope.body, cause=envelope.cause, incident=envelope.incident)


def test_hostile_text_in_the_log_commands_no_terminal(cli):
    story = running(1)
    story.raises("n1/1", "software", "\x1b]0;owned\x07\n</script>\r\u202e")
    story.settle()
    story.history(Path("hostile.ndjson"))
    for arguments in (["audit"], ["audit", "inc"], ["replay", "--until", str(story.state.seq)]):
        done = cli(*arguments, "--log", "hostile.ndjson")
        assert done.exit_code == 0
        assert {c for c in done.stdout if not c.isprintable()} == {"\n"}
        assert "\x1b" not in cli(*arguments, "--log", "hostile.ndjson", "--json").stdout
