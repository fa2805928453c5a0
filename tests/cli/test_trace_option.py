import json
import os
import subprocess
import sys
from pathlib import Path

from tests.replay.histories import night


def spans(path):
    (resource,) = json.loads(Path(path).read_bytes())["resourceSpans"]
    return resource["scopeSpans"][0]["spans"]


def test_the_trace_of_one_incident_and_the_same_bytes_again(cli, log):
    plain = cli("audit", "--log", log, "inc-")
    done = cli("audit", "--log", log, "inc-", "--trace", "one.json")
    assert done.exit_code == 0
    assert done.stdout == plain.stdout
    assert f"1 trace with {len(spans('one.json'))} spans written to one.json" in done.stderr
    assert spans("one.json")[0]["name"] == "incident"
    cli("audit", "--log", log, "inc-", "--trace", "again.json")
    assert Path("one.json").read_bytes() == Path("again.json").read_bytes()


def test_traces_of_all_incidents_hold_that_of_each(cli):
    night().history(Path("night.ndjson"))
    assert cli("audit", "--log", "night.ndjson", "--trace", "all.json").exit_code == 0
    ids = [i["id"] for i in cli.json("audit", "--log", "night.ndjson")["items"]]
    together = []
    for incident in ids:
        cli("audit", "--log", "night.ndjson", incident, "--trace", f"{incident}.json")
        together += spans(f"{incident}.json")
    assert len(ids) == 2
    assert spans("all.json") == together


def test_a_file_that_cannot_be_written(cli, log, monkeypatch):
    done = cli("audit", "--log", log, "--trace", "no/such/folder.json")
    assert done.exit_code == 2
    assert "there is no folder no/such" in done.stderr

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = cli("audit", "--log", log, "--trace", "one.json")
    assert done.exit_code == 2
    assert "can't write the traces to one.json" in done.stderr
    assert "E-TRACE-FILE" in done.stderr
    assert not Path("one.json").exists()


def test_nothing_is_replaced_unless_told(cli, log):
    Path("one.json").write_text("mine")
    done = cli("audit", "--log", log, "--trace", "one.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "a trace replaces nothing by itself" in done.stderr
    assert Path("one.json").read_text() == "mine"
    assert cli("audit", "--log", log, "--trace", "one.json", "--force").exit_code == 0
    assert spans("one.json")[0]["name"] == "incident"


def test_a_trace_on_stdout_is_all_there_is(cli, log):
    command = [sys.executable, "-m", "unicron.controlplane.cli", "audit", "--log", log]
    done = subprocess.run([*command, "--trace", "-"], capture_output=True, check=True)
    cli("audit", "--log", log, "--trace", "all.json")
    assert done.stdout == Path("all.json").read_bytes()
    assert done.stderr == b""
    assert not Path("-").exists()
