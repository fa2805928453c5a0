"""Every incident in this folder: its run, its expectations, its trace."""

import os
from pathlib import Path

import pytest

from unicron.controlplane.testing import scripted
from unicron.controlplane.testing.scenario import parse

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_scenario(path):
    """With GOLDEN=write in the environment the trace is written anew: commit the difference only
    if you can say why it is right."""
    scenario = parse(path.read_text(encoding="utf-8"), path.name)
    report = scripted.run(scenario)
    assert report.held, "\n".join(["", *report.wrong(), "", report.golden])
    if os.environ.get("GOLDEN") == "write":
        path.write_text(report.text, encoding="utf-8")
    else:
        assert report.same_trace, "\n".join(
            [
                "",
                *report.difference(),
                "",
                "the trace is another than it was: if you can say why this one is right, write it",
                "anew with GOLDEN=write pytest tests/scenarios, and commit the difference",
            ]
        )
