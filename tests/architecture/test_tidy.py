"""Sizes, names and words: what a reviewer shouldn't have to say twice."""

import ast
import re

import pytest

from tests.architecture.sources import REPO, files

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
LINE_COLUMNS_MAX = 100

CODE = [path for path in files() if path.suffix == ".py"]
TEXT = [path for path in files() if path.suffix not in {".png", ".svg", ".gz", ".ico", ".bin"}]

# A module is named after its subject; these name none.
SUBJECTLESS = {"util", "utils", "helper", "helpers", "common", "misc", "stuff"}

# Put together here so that this file doesn't find itself.
MARKS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")
MACHINE = re.compile(r"(?<![\w.})-])/(wo" + r"rk|ro" + r"ot|home/[a-z]\w*)(?=/|[\s\"'`),;:]|$)")
INDEX = re.compile(r"https?://\S*sim" + r"ple\b")


def label(path):
    return str(path.relative_to(REPO))


def functions_too_long(source):
    """Name, line and length of each function whose body, without docstring, is too long."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            if lines > FUNCTION_LINES_MAX:
                yield node.name, node.lineno, lines


def matches(pattern):
    return [
        f"{label(path)}:{number} {line.strip()[:80]}"
        for path in TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def listing(found):
    return "\n".join(["", *found])


def test_files_have_one_subject_and_stay_short():
    found = [
        f"{label(path)} has {lines} lines"
        for path in CODE
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    ]
    assert not found, listing(found)


def test_functions_stay_short():
    found = [
        f"{label(path)}:{line} {name} has {lines} lines"
        for path in CODE
        for name, line, lines in functions_too_long(path.read_text(encoding="utf-8"))
    ]
    assert not found, listing(found)


def test_lines_stay_narrow():
    found = [
        f"{label(path)}:{number} has {len(line)} columns"
        for path in CODE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LINE_COLUMNS_MAX
    ]
    assert not found, listing(found)


def test_modules_are_named_after_their_subject():
    found = [
        label(path)
        for path in CODE
        if SUBJECTLESS & {part.strip("_") for part in path.relative_to(REPO).with_suffix("").parts}
    ]
    assert not found, listing(found)


@pytest.mark.parametrize("pattern", [MARKS, MACHINE, INDEX], ids=["marks", "machine", "index"])
def test_no_marks_no_paths_of_one_machine_no_index_addresses(pattern):
    assert not matches(pattern), listing(matches(pattern))


def test_the_rules_see_something():
    assert len(CODE) > 10
    long = "def f():\n    '''Doc.'''\n" + "    x = 1\n" * (FUNCTION_LINES_MAX + 1)
    assert [name for name, _, _ in functions_too_long(long)] == ["f"]
    assert not list(functions_too_long(long.replace("    x = 1\n", "", 1)))
    for bad in ("/wo" + "rk/main", "'/ro" + "ot'", "cd /home/" + "anna/x"):
        assert MACHINE.search(bad), bad
    for good in ("/workers/1", "tree/root", "https://x.org/work/", "agent/work"):
        assert not MACHINE.search(good), good
    assert MARKS.search("# TO" + "DO later")
    assert INDEX.search("https://index.example/sim" + "ple/")
