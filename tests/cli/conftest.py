"""The command line in this process, on history files in an empty folder."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.core.story import running
from unicron.controlplane.cli.main import main

GOLDEN = Path(__file__).parent / "golden"
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_VERSIONS = re.compile(r"\blogic \d+, fold \d+\b")


class Cli:
    """`cli("audit", "--log", "x")` gives exit code, stdout and stderr."""

    def __call__(self, *arguments):
        return CliRunner().invoke(main, [str(a) for a in arguments], prog_name="unicron")

    def json(self, *arguments, exit_code=0):
        """The one document on stdout."""
        done = self(*arguments, "--json")
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout)


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # so that paths in what is printed are short and always the same
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return Cli()


@pytest.fixture
def story():
    """One node of two devices; one worker dies and comes back."""
    told = running(1)
    told.exit("n1/1")
    told.settle()
    return told


@pytest.fixture
def log(cli, story):
    """The story as a history file."""
    story.history(Path("log.ndjson"))
    return "log.ndjson"


def golden(name, text):
    """`text` is what the golden file says, hashes and versions of the rules left out. With
    GOLDEN=write in the environment the file is written anew: commit the difference only if you can
    say why it is right."""
    masked = _VERSIONS.sub("logic <n>, fold <n>", _HASH.sub("<hash>", text))
    if os.environ.get("GOLDEN") == "write":
        (GOLDEN / name).write_text(masked, encoding="utf-8")
    assert masked == (GOLDEN / name).read_text(encoding="utf-8")
