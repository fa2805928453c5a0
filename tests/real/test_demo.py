"""The demo as a person or a program runs it, in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unicron.controlplane.local import processes

pytestmark = pytest.mark.real

_COMMAND = [sys.executable, "-m", "unicron.controlplane.cli"]


def _start(tmp_path: Path, *arguments: str) -> "subprocess.Popen[str]":
    """`unicron demo` with a temporary folder of its own, whose name marks all its processes."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return subprocess.Popen(
        [*_COMMAND, "demo", "--log", str(tmp_path / "log.ndjson"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        start_new_session=True,
    )


def _below(process: "subprocess.Popen[str]") -> dict[int, str]:
    """Pid and title of every process it has started so far, at whatever depth."""
    return {pid: processes.title_of(pid) for pid in processes.descendants(process.pid)}


def _still(pids: dict[int, str]) -> dict[int, str]:
    """Those that live on, under the same title."""
    alive = processes.parents()
    return {p: t for p, t in pids.items() if p in alive and processes.title_of(p) == t}


def _until(process: "subprocess.Popen[str]", words: str) -> list[str]:
    """Its lines up to the first with the words."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            break
    return lines


def _kill_template(process: "subprocess.Popen[str]") -> None:
    (pid,) = [p for p, t in _below(process).items() if t == "unicron: fork server template"]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(200)
def test_demo_holds_and_tells_it(tmp_path: Path) -> None:
    process = _start(tmp_path, "--json")
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out[-3000:] + err[-2000:]
    assert "workers ready" in out
    result = json.loads(out.splitlines()[-1])
    assert result["ok"] is True
    assert result["bit_identical"] is True
    assert result["digest"] == result["reference_digest"]
    faults = result["faults"]
    assert [(f["kind"], f["worker"], f["task"], f["phase"], f["severity"]) for f in faults] == [
        ("worker", "n2/1", "gpt", "forward", 2),
        ("stop", "n1/1", "gpt", "forward", 2),
        ("exception", "n1/0", "gpt", "backward", 2),
        ("node", "n2", "gpt", "backward", 1),
        ("node", "n2", "light", None, 1),
    ]
    assert {f["incident"] for f in faults} == {i["id"] for i in result["incidents"]}
    assert all(i["lost_flop"] > 0 for i in result["incidents"])
    told = ("SIGKILL", "no progress", "software", "lost", "lost")
    for fault, seen in zip(faults, told, strict=True):
        assert seen in fault["seen"]
        assert any("at once" in decision for decision in fault["decided"])
        for name in ("noticed_ms", "plan_ms", "resume_ms", "restored_ms"):
            assert fault[name] > 0
    redone = sum(f["redone_microbatches"] for f in faults if f["task"] == "gpt")
    assert redone > 0
    assert sum(f["kept_microbatches"] for f in faults) > 0
    assert result["forward_passes"] == result["iterations"] * 12 + redone
    gpt, light = result["tasks"]
    assert (gpt["task"], gpt["devices"][-3:]) == ("gpt", [2, 3, 4])
    assert (light["task"], light["devices"]) == ("light", [4, 2, 1, 2])
    assert gpt["bit_identical"] and light["bit_identical"]
    for word in ("SEV", "KEPT", "REDONE", "NOTICED", "PLAN", "RESUME", "WHOLE"):
        assert re.search(rf"^{word} +\w", out, re.MULTILINE), f"{word} is not explained"
    assert list((tmp_path / "scratch").iterdir()) == []
    audit = subprocess.run(
        [*_COMMAND, "replay", "--verify", "--json", "--log", result["log"]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(audit.stdout)["schema"] == "unicron.replay/1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["starting", "workers ready"])
def test_a_signal_leaves_nothing(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    process = _start(tmp_path, "--faults", "none")
    _until(process, moment)
    time.sleep(0.3)  # in the midst of something
    below = _below(process)
    assert any("nats-server" in title for title in below.values())
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert not _still(below)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not (tmp_path / "log.ndjson").exists()


def test_somebody_else_does_the_killing(tmp_path: Path) -> None:
    """A worker that is found by its title and killed, unannounced."""
    process = _start(tmp_path, "--faults", "none", "--json", "--iterations", "16")
    lines = _until(process, "workers ready")
    victims = [
        pid
        for pid, title in _below(process).items()
        if title.startswith("unicron: worker n") and " gpt " in title
    ]
    assert len(victims) == 4
    os.kill(victims[0], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, "".join(lines) + out[-3000:] + err[-2000:]
    result = json.loads(out.splitlines()[-1])
    (fault,) = result["faults"]
    assert fault["kind"] == "worker"
    assert fault["noticed_ms"] is None  # nobody told us when it was
    assert fault["iteration"] is not None
    assert fault["resume_ms"] > 0
    assert fault["restored_ms"] > 0
    assert result["bit_identical"] is True


def test_a_fault_whose_iteration_is_over_comes_later(tmp_path: Path) -> None:
    """Both are named for the same iteration; the second waits until the first is over."""
    faults = "worker:n2/1@4/forward/1,exception:n1/1@4"
    process = _start(tmp_path, "--faults", faults, "--json", "--iterations", "20")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out[-3000:] + err[-2000:]
    assert "exception:n1/1@4/forward: the task is already in iteration" in out
    first, second = json.loads(out.splitlines()[-1])["faults"]
    assert first["iteration"] == 4 < second["iteration"]
    assert first["incident"] != second["incident"]


def test_the_template_is_killed_while_the_task_trains(tmp_path: Path) -> None:
    """Another one is started for what needs it: the third node and the reference."""
    process = _start(tmp_path, "--faults", "none", "--json", "--iterations", "12")
    _until(process, "workers ready")
    _kill_template(process)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out[-3000:] + err[-2000:]
    assert "the fork server template was killed: starting another one" in out
    assert json.loads(out.splitlines()[-1])["bit_identical"] is True


def test_a_control_plane_that_was_stopped_is_named(tmp_path: Path) -> None:
    process = _start(tmp_path, "--faults", "none", "--iterations", "16")
    _until(process, "workers ready")
    (pid,) = [p for p, t in _below(process).items() if t.startswith("unicron: control plane")]
    os.kill(pid, signal.SIGSTOP)
    said = _until(process, "nothing heard from")
    os.kill(pid, signal.SIGCONT)
    out, err = process.communicate(timeout=120)
    assert f"nothing heard from the control plane for 3 s: its process {pid} is stopped" in said[-1]
    assert f"kill -CONT {pid}" in said[-1]
    assert "the control plane is heard again, after" in out
    assert process.returncode == 0, out[-3000:] + err[-2000:]


def test_a_reference_that_fails_does_not_take_the_report_along(tmp_path: Path) -> None:
    faults = "worker:n2/1@4/forward/1"
    process = _start(tmp_path, "--faults", faults, "--json", "--iterations", "12")
    _until(process, "for reference")
    _kill_template(process)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    cut = "can't be said: the reference run failed"
    assert f"x the final state is bit-identical (gpt: {cut}" in out
    assert "+ each task completed" in out
    result = json.loads(out.splitlines()[-1])
    assert (result["ok"], result["bit_identical"], result["reference_digest"]) == (
        False,
        False,
        None,
    )
    assert result["digest"] is not None
    assert [f["kind"] for f in result["faults"]] == ["worker"]
    assert list((tmp_path / "scratch").iterdir()) == []
