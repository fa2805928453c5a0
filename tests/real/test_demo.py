"""The demo as a person or a program runs it, in a process of its own."""

import json
import os
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


@pytest.mark.timeout(200)
def test_demo_holds_and_tells_it(tmp_path: Path) -> None:
    process = _start(tmp_path, "--json", "--iterations", "28")
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out[-3000:] + err[-2000:]
    assert "workers ready" in out
    result = json.loads(out.splitlines()[-1])
    assert result["ok"] is True
    assert result["bit_identical"] is True
    assert result["digest"] == result["reference_digest"]
    assert result["iterations"] == 28
    first, second = result["faults"]
    assert (first["kind"], first["worker"], first["phase"]) == ("worker", "n2/1", "forward")
    assert (second["kind"], second["worker"], second["phase"]) == ("node", "n2", "backward")
    redone = first["redone_microbatches"] + second["redone_microbatches"]
    assert redone > 0
    assert first["kept_microbatches"] > 0
    assert result["forward_passes"] == 28 * 12 + redone
    for name in ("detect_ms", "plan_ms", "resume_ms"):
        assert first[name] > 0
        assert second[name] > 0
    assert list((tmp_path / "scratch").iterdir()) == []
    audit = subprocess.run(
        [*_COMMAND, "replay", "--verify", "--json", "--log", result["log"]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(audit.stdout)["schema"] == "unicron.replay/1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["starting", "workers ready"])
def test_a_signal_leaves_nothing(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    process = _start(tmp_path, "--faults", "none")
    assert process.stdout is not None
    for line in process.stdout:
        if moment in line:
            break
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
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "workers ready" in line:
            break
    victims = [
        pid for pid, title in _below(process).items() if title.startswith("unicron: worker n")
    ]
    assert len(victims) == 4
    os.kill(victims[0], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, "".join(lines) + out[-3000:] + err[-2000:]
    result = json.loads(out.splitlines()[-1])
    (fault,) = result["faults"]
    assert fault["kind"] == "worker"
    assert fault["detect_ms"] is None  # nobody told us when it was
    assert result["bit_identical"] is True
