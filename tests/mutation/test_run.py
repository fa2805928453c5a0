"""A whole run over a toy: what tests notice is killed, what they don't is listed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

TOY = """
LIMITS = {"low": 1, "high": 9}


def clip(x):
    if x > LIMITS["high"]:
        return LIMITS["high"]
    return x


def climb(to):
    n = 0
    while n < to:
        n += 1
    return n


def forgotten(x):
    return x.y
"""
TESTS = """
import toy

HELD = toy.clip(50)  # what it was when this file was imported


def test_clip():
    assert toy.clip(50) == 9
    assert toy.clip(3) == 3


def test_held():
    assert HELD > 3


def test_climb():
    assert toy.climb(2) == 2
"""


OPTIONS = ["--subject", ".", "--file", "toy.py", "--tests", "test_toy.py"]
OPTIONS += ["--json", "out.json", "--patience", "0.5"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """(line of the toy, what its mutant adds) -> outcome."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.py").write_text(TOY, encoding="utf-8")
    (folder / "test_toy.py").write_text(TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    program = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(REPO)!r}]\n"
    program += "from tests.mutation.__main__ import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *OPTIONS],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert report["complete"]
    assert f"{report['score']:.1f} % of {len(report['mutants'])} mutants" in done.stdout
    assert "toy.py:6: survived: comparison\n    -    if x > LIMITS" in done.stdout
    return {
        (m["line"], "".join(d[1:].strip() for d in m["diff"] if d[0] == "+")): m["outcome"]
        for m in report["mutants"]
    }


def test_a_change_that_a_test_notices_is_killed(outcomes):
    assert outcomes[6, 'if x <= LIMITS["high"]:'] == "killed"
    assert outcomes[7, "return None"] == "killed"


def test_a_change_that_none_notices_survives(outcomes):
    """At the limit itself it makes no difference."""
    assert outcomes[6, 'if x >= LIMITS["high"]:'] == "survived"


def test_a_table_is_mutated_where_it_is_imported(outcomes):
    assert outcomes[2, 'LIMITS = {"low": 1, "high": 8}'] == "killed"
    assert outcomes[2, 'LIMITS = {"low": 2, "high": 9}'] == "survived"


def test_an_endless_loop_is_a_timeout(outcomes):
    assert outcomes[14, "n -= 1"] == "timed out"


def test_what_no_test_executes_is_not_covered(outcomes):
    assert outcomes[19, "return None"] == "not covered"
