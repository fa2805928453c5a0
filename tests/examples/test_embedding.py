"""The examples run as they stand, and print what their comments promise."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _run(name, tmp_path):
    """What it prints; warnings are errors, and nothing else may be said on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert not list(tmp_path.iterdir())
    return done.stdout.splitlines()


def test_a_scheduler_of_its_own(tmp_path):
    said = _run("embed_scheduler.py", tmp_path)
    assert said[:4] == [
        "ordered   gpt generation 1 at DP 4",
        "incident  SEV2: worker n2/1 exited abnormally (signal 9)",
        "ordered   gpt generation 2 at DP 3",
        "ordered   gpt generation 3 at DP 4",
    ]
    asked = next(line for line in said if line.startswith("asked"))
    assert asked.startswith("asked     gpt goes from 4 to ")
    assert asked.endswith(": approved")
    assert {"completed urgent", "completed gpt"} <= {*said}
    assert said[-1].endswith("decided again: True")


def test_it_is_short():
    assert len((EXAMPLES / "embed_scheduler.py").read_text().splitlines()) < 80


@pytest.mark.real
def test_a_log_that_outlives_the_control_plane(tmp_path):
    said = _run("embed_nats.py", tmp_path)
    assert said[:3] == ["leading   in term 1", "trains    on 4 devices", "trains    on 2 devices"]
    assert said[3].startswith("completed gpt in generation ")
    assert said[4] == "again     gpt is completed, second leads"
    assert said[5].endswith("holds: True")
