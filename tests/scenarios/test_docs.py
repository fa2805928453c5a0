"""docs/scenarios.md: its tables hold every word of the language, its examples run as printed."""

import os
import re
from pathlib import Path

import pytest

from tests.architecture.sources import REPO
from tests.cli.conftest import Cli
from unicron.controlplane.core import deadlines
from unicron.controlplane.core.tables import NODE, TASK, WORKER
from unicron.controlplane.testing import scripted
from unicron.controlplane.testing.expectations import EXPECTATIONS
from unicron.controlplane.testing.moments import MOMENTS
from unicron.controlplane.testing.scenario import SETTINGS, parse
from unicron.controlplane.testing.sentences import SENTENCES

PAGE = REPO / "docs" / "scenarios.md"
WRITE = os.environ.get("GOLDEN") == "write"
GROUPS = {
    "What there is, and how the run goes": [form for form, _ in SETTINGS],
    "When something happens": MOMENTS,
    "What happens": [form for form, _ in SENTENCES],
    "What is expected, after `expect`": [form for form, _ in EXPECTATIONS],
}
HEADS = {"What there is, and how the run goes": "| sentence | meaning, or what holds without it |"}


def words():
    lines = [""]
    for title, forms in GROUPS.items():
        lines += [f"### {title}", "", HEADS.get(title, "| sentence | meaning |"), "|---|---|"]
        lines += [f"| `{form.shape}` | {form.about} |" for form in forms]
        lines.append("")
    return "\n".join(lines)


def part(pattern, new=None):
    """The text that the pattern's group matches; with `new`, replaced in the page if asked."""
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(pattern, page, re.DOTALL)
    assert found is not None, pattern
    if new is not None and WRITE:
        PAGE.write_text(page[: found.start(1)] + new + page[found.end(1) :], encoding="utf-8")
        return new
    return found[1]


def example():
    return part(r"\n```scenario\n(.*?)```")


def test_the_tables_hold_every_word():
    told = words()
    assert part(r"<!-- words: [^\n]* -->\n(.*?)<!-- /words -->", told) == told


def test_the_worked_example_prints_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last-night.txt").write_text(example(), encoding="utf-8")
    done = Cli()("scenario", "last-night.txt")
    assert done.exit_code == 0, done.output
    assert part(r"\n```output\n(.*?)```", done.stdout) == done.stdout


def test_the_worked_example_holds_with_the_line_added():
    line = part(r"\n```scenario-line\n(.*?)```")
    text = example().replace("\nuntil ", f"\n{line}\nuntil ")
    report = scripted.run(parse(text, "last-night.txt"))
    assert report.code == 0, report.wrong()


def test_the_line_of_the_trace_is_one():
    line = part(r"## The trace\n\n```\n(.*?)```")
    files = (REPO / "tests" / "scenarios").glob("*.txt")
    assert any(line in path.read_text(encoding="utf-8") for path in files)


def test_every_word_of_the_status_column_is_explained():
    tables = part(r"\n## The trace\n(.*?)\n## Exit codes")
    heads = {"node": NODE, "worker": WORKER, "task": TASK}
    for kind, statuses in heads.items():
        table = tables.partition(f"| a {kind} is | when |\n|---|---|\n")[2].partition("\n\n")[0]
        assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(statuses)
    waits = re.findall(r'f"(\w+):\{', Path(deadlines.__file__).read_text(encoding="utf-8"))
    assert len(waits) == 9
    table = tables.partition("| wait | limit of |\n|---|---|\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == waits


@pytest.mark.parametrize("path", re.findall(r"`(tests/\S+\.py)`", PAGE.read_text("utf-8")))
def test_the_tests_it_names_are_there(path):
    assert (REPO / path).is_file()
