"""The operators change what they say, leave out what the rule says, and always give valid code."""

import pytest

from tests.mutation.walk import mutants_of


def changed(tmp_path, text):
    """Every mutant of the text as (operator, its changed lines without sign and indent)."""
    path = tmp_path / "subject.py"
    path.write_text(text, encoding="utf-8")
    found = []
    for mutant in mutants_of(path):
        compile(mutant.source(), "subject", "exec")
        new = [line[1:].strip() for line in mutant.diff() if line.startswith("+")]
        found.append((mutant.operator, " ".join(new)))
    return found


def inside(tmp_path, *lines):
    """The mutants of a function's body."""
    text = "\n".join(["def f(a, b, c=None):", *(f"    {line}" for line in lines), ""])
    return changed(tmp_path, text)


@pytest.mark.parametrize(
    "code,operator,expected",
    [
        ("return a < b", "comparison", {"return a <= b", "return a >= b"}),
        ("return a is not b", "comparison", {"return a is b"}),
        ("return a  not  in b", "comparison", {"return a  in b"}),
        ("return a == b == c", "comparison", {"return a != b == c", "return a == b != c"}),
        ("return a and b and c", "boolean", {"return a or b or c"}),
        ("return (a or b) and c", "clause", {"return (True) and c", "return (a or b) and True"}
         | {"return (False or b) and c", "return (a or False) and c"}),
        ("return f if a() else b", "condition", {"return f if (not (a())) else b"}),
        ("return [x for x in a if x()]", "filter", {"return [x for x in a if True]"}),
        ("return not a", "sign", {"return (a)"}),
        ("return a - b", "arithmetic", {"return a + b"}),
        ("return a | b", "arithmetic", {"return a & b", "return (a)", "return (b)"}),
        ("a += b", "arithmetic", {"a -= b"}),
        ("return 5", "number", {"return 6", "return 4"}),
        ("return 4000", "number", {"return 8000", "return 2000"}),
        ("return True", "truth", {"return False"}),
        ('return "on"', "string", {"return 'on_'"}),
        ('return f"{a}:{b}"', "string", {"return f'_{a}:{b}'", "return f':{b}'", "return f'{a}:'"}),
        ("return a, (b or c)", "element", {"return (a,)", "return ((b or c),)"}),
        ("return [a, b, c]", "element", {"return [b, c]", "return [a, c]", "return [a, b]"}),
        ("return {a}", "element", {"return set()"}),
        ("return ()", "element", {"return (None,)"}),
        ("return {a: b, **c}", "element", {"return {**c}", "return {a: b}"}),
        ("return replace(a, b=c, d=e)", "argument", {"return replace(a, d=e)"}
         | {"return replace(a, b=c)"}),
        ("return Made(a=b, reason=c)", "argument", {"return Made(a=None, reason=c)"}),
        ("return min(a, b)", "call", {"return max(a, b)"}),
        ("return sorted(a)", "call", {"return list(a)"}),
        ("return step(a, b)", "call", {"return a"}),
        ("return a[1:]", "slice", {"return a[:]"}),
        ("return a", "return", {"return None"}),
    ],
)  # fmt: skip
def test_an_operator_changes_what_it_says(tmp_path, code, operator, expected):
    made = inside(tmp_path, code)
    assert {new for kind, new in made if kind == operator} == expected


def test_statements_go_where_the_function_still_makes_sense(tmp_path):
    made = inside(tmp_path, "a = f(a)", "new = a", "g(new)", "return new")
    gone = [m for m in made if m == ("statement", "pass")]
    assert len(gone) == 2  # not the first binding of `new`, nor the last return


def test_a_yes_or_no_is_said_both_ways(tmp_path):
    made = changed(tmp_path, "def f(a) -> bool:\n    return a.x\n")
    assert made == [("return", "return False"), ("return", "return True")]


def test_loops_and_cases(tmp_path):
    made = inside(
        tmp_path,
        "for x in a:",
        "    match x:",
        "        case 1 | 2:",
        "            continue",
        "        case _:",
        "            break",
    )
    assert ("loop", "break") in made
    assert ("loop", "continue") in made
    cases = {new for kind, new in made if kind == "case"}
    assert cases == {"case 1 | 2 if False:", "case 1:", "case 2:"}


def test_tables_and_defaults_are_of_the_import(tmp_path):
    path = tmp_path / "subject.py"
    path.write_text('T = {"a": 1, "b": 2}\n\ndef f(x=0):\n    return x.y\n', encoding="utf-8")
    places = {(m.function, m.line) for m in mutants_of(path)}
    assert places == {("", 1), ("", 3), ("f", 4)}


def test_what_says_nothing_to_the_program_is_left_out(tmp_path):
    text = '''"""A docstring."""
import os
from typing import TypeAlias, TypeVar
__all__ = ["f"]
T = TypeVar("T")
Kind: TypeAlias = int | str
Table = dict[str, frozenset[str]]

@dataclass(frozen=True)
class C(Base, frozen=True):
    """Another."""
    x: dict[str, int]

def f(a: int | None) -> str | None:
    """One more."""
    assert a > 0, "never"
    say("a text for people", f"{a} of {1 + 1}", reason="x")
    raise Bad(f"no {a}", 7)
'''
    assert changed(tmp_path, text) == [("statement", "pass"), ("statement", "pass")]
