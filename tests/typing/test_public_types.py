"""The public API as type checkers see it: right uses pass, and each mistake is found, by both."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPO = HERE.parents[1]


def _mypy(file):
    """Lines with an error."""
    done = _run("mypy", "--no-error-summary", "--hide-error-context", "-O", "json", str(file))
    found = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    return {e["line"] for e in found if e["severity"] == "error" and Path(e["file"]).samefile(file)}


def _pyright(file):
    found = json.loads(_run("pyright", "--outputjson", str(file)))["generalDiagnostics"]
    return {e["range"]["start"]["line"] + 1 for e in found if e["severity"] == "error"}


def _run(tool, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("checker", [_mypy, _pyright])
def test_right_uses_pass(checker):
    assert not checker(HERE / "uses.py")


@pytest.mark.parametrize("checker", [_mypy, _pyright])
def test_every_mistake_is_found_and_nothing_else(checker):
    lines = (HERE / "misuses.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# wrong" in line}
    assert len(wrong) > 10
    assert checker(HERE / "misuses.py") == wrong
