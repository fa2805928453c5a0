"""Whole runs: seeds that hold, runs that failed once, and what a failing one says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from unicron.controlplane.cli.main import main
from unicron.controlplane.core import decide, limits, rules_transition
from unicron.controlplane.testing import campaign, kept
from unicron.controlplane.testing.audit import Auditor
from unicron.controlplane.testing.faults import KINDS
from unicron.controlplane.testing.options import Fault
from unicron.controlplane.testing.seeds import options_of

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
SEEDS = range(12)


@pytest.fixture(scope="module")
def auditor():
    with Auditor() as auditor:
        yield auditor


@pytest.fixture(scope="module")
def results(auditor):
    return [campaign.examine(options_of(seed), auditor)[1] for seed in SEEDS]


def test_seeds_hold(results):
    assert [(r.seed, r.violations) for r in results if r.code] == []


def test_runs_are_long_and_hard(results):
    """Over 100 seeds the average is 2,000 events; here are only a few of them."""
    assert sum(r.events for r in results) / len(results) >= 1_500
    assert all(r.faults_fired >= 10 for r in results)


def test_nothing_was_left_out(results):
    """Every kind of fault fired somewhere, and what is hard to get at came about."""
    fired = {kind for r in results for kind in r.fired}
    assert fired >= {fault.kind for seed in SEEDS for fault in options_of(seed).faults}
    marks: dict[str, int] = {}
    for result in results:
        for name, count in result.marks.items():
            marks[name] = marks.get(name, 0) + count
    wanted = {
        *("overtaken", "void", "repeated", "unknown", "keeps", "step forward", "transfer"),
        *("planned", "after a fault", "IncidentEscalated", "NodeIsolated", "NodeReturned"),
        "released",
        *("TaskFailed", "TaskCompleted", "TaskStalled", "TaskMeasured", "WorkerSlow"),
        "PlanDropped",
        *("DeadlinePassed", "NodeLost", "NodeRecovered", "LeadershipTaken", "StoreBound"),
    }
    assert {name for name in wanted if not marks.get(name)} == set()
    assert marks["overtaken"] >= 0.05 * sum(r.decisions for r in results)


def test_what_failed_once_holds(auditor):
    found = {p.stem: campaign.examine(kept.read(str(p)), auditor)[1].violations for p in KEPT}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_the_same_seed_gives_the_same_trace_under_any_hash_seed():
    traces = [
        subprocess.run(
            [sys.executable, "-m", "unicron.controlplane.cli", "sim", "--seed", "10", "--trace"],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=100,
            check=True,
        ).stdout
        for seed in ("1", "31337")
    ]
    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) > 500


# --- The command ----------------------------------------------------------------------------------


def unicron(*arguments):
    return CliRunner().invoke(main, ["sim", *arguments], standalone_mode=True)


def test_it_begins_with_seed_and_commit_and_ends_with_a_verdict():
    run = unicron("--seed", "22")
    assert run.exit_code == 0
    assert run.output.startswith("seed 22, ")
    assert run.output.splitlines()[0].split(", ")[1].split()[0] in ("commit", "version")
    assert run.output.endswith("+ holds: invariants, liveness, replay\n")


def test_json_says_it_to_machines():
    told = json.loads(unicron("--seed", "22", "--json").output)
    assert told["ok"] is True
    assert told["seed"] == 22
    assert told["events"] == sum(told["marks"].values()) - _beside_events(told["marks"])
    assert told["faults_fired"] == sum(told["fired"].values()) >= 10
    assert told["violations"] == []
    assert len(told["digest"]) == 64


def _beside_events(marks):
    """Marks that aren't types of events; and what has no type isn't counted as one."""
    beside = ("overtaken", "void", "repeated", "keeps", "step forward", "from nothing")
    beside += ("transfer", "planned", "after a fault", "released")
    return sum(marks.get(name, 0) for name in beside)


def test_an_invariant_that_breaks_is_exit_code_10(monkeypatch):
    """Planted: a lost node is never isolated."""
    rules = tuple(r for r in decide.RULES if r.__name__ != "isolate")
    monkeypatch.setattr(decide, "RULES", rules)
    run = unicron("--seed", "8")
    assert run.exit_code == 10, run.output
    assert "x " in run.output.splitlines()[-1]


def test_what_never_ends_is_exit_code_11(monkeypatch):
    """Planted: no task is ever completed."""
    rules = tuple(r for r in decide.RULES if r is not rules_transition.finish_task)
    monkeypatch.setattr(decide, "RULES", rules)
    run = unicron("--seed", "13")
    assert run.exit_code == 11, run.output
    assert "x liveness at #" in run.output
    assert "gpt is running" in run.output


def test_a_replay_that_differs_is_exit_code_12(monkeypatch):
    """Planted: whoever replays has other limits than whoever decided."""
    monkeypatch.setattr(limits, "STOP_GRACE_MS", 1)
    run = unicron("--seed", "10")
    assert run.exit_code == 12, run.output
    assert "x replay: #" in run.output


def test_a_failing_seed_is_shrunk_and_kept(monkeypatch, tmp_path):
    """Planted as above; what is kept needs fewer faults, fails as well, and holds once mended."""
    rules = tuple(r for r in decide.RULES if r.__name__ != "isolate")
    with monkeypatch.context() as patch:
        patch.setattr(decide, "RULES", rules)
        assert unicron("--seed", "8", "--keep", str(tmp_path)).exit_code == 10
        (path,) = tmp_path.glob("*.json")
        assert unicron("--run", str(path)).exit_code == 10
    assert len(kept.read(str(path)).faults) < len(options_of(8).faults) / 4
    assert unicron("--run", str(path)).exit_code == 0


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        (("--seeds", "3", "--trace"), "--trace shows one run"),
        (("--run", __file__, "--seed", "3"), "takes its seed from the file"),
        (("--run", __file__), "doesn't hold a simulated run"),
        (("--seeds", "0"), "Invalid value"),
    ],
)
def test_wrong_use(arguments, complaint):
    run = unicron(*arguments)
    assert run.exit_code == 2
    assert complaint in run.output


# --- Seeds ----------------------------------------------------------------------------------------


def test_a_seed_is_data():
    assert options_of(5) == options_of(5)
    assert options_of(5) != options_of(6)
    assert {f.kind for seed in range(40) for f in options_of(seed).faults} == set(KINDS)
    assert all(isinstance(fault, Fault) for fault in options_of(5).faults)
