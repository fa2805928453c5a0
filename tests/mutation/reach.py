"""Which tests execute which lines of the files that are mutated, and how long each takes."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Lines = dict[str, set[int]]


@dataclass(slots=True)
class Reach:
    """What was recorded. Tests by id. `cpu_s`: of those that passed; `lines`: file -> line ->
    ids; `early`: test file -> lines of functions that ran when it was imported; `broken`: tests
    that fail without any mutant; `loaded`: modules that were imported."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    early: dict[str, Lines] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def add(self, test: str, cpu_s: float, lines: Lines) -> None:
        """A test passed."""
        self.cpu_s[test] = cpu_s
        for path, numbers in lines.items():
            known = self.lines.setdefault(path, {})
            for number in numbers:
                known.setdefault(number, set()).add(test)

    def tests(self, path: Path, span: tuple[int, int]) -> tuple[set[str], set[str]]:
        """Tests that execute one of these lines; and those of them, or beside them, whose file
        executed one already when it was imported: they hold what came of it."""
        numbers = range(span[0], span[1] + 1)
        known = self.lines.get(str(path), {})
        executing = {test for n in numbers for test in known.get(n, ())}
        files = {f for f, early in self.early.items() if early[str(path)].intersection(numbers)}
        holding = {test for test in self.cpu_s if file_of(test) in files}
        return executing - holding, holding


def file_of(test: str) -> str:
    """The test's file, as pytest names it."""
    return test.partition("::")[0]


#: So many calls of a function are traced in a test, then one in so many: what is done a thousand
#: times is mostly the same, and tracing it would take most of the time.
TRACED, THEN_ONE_IN = 2000, 8


class Tracer:
    """Notes the lines of functions in the given files that are executed."""

    def __init__(self, paths: list[Path]) -> None:
        self.lines: Lines = {str(path): set() for path in paths}
        self.calls: dict[CodeType, int] = {}

    def start(self) -> None:
        """From here on, in this thread."""
        sys.settrace(self._call)

    def stop(self) -> Lines:
        """Up to here."""
        sys.settrace(None)
        return self.lines

    def _call(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        calls = self.calls.get(code)
        if calls is None:
            is_function = bool(code.co_flags & inspect.CO_NEWLOCALS)
            calls = 0 if is_function and code.co_filename in self.lines else -1
        if calls < 0:
            self.calls[code] = -1
            return None
        self.calls[code] = calls + 1
        if calls > TRACED and calls % THEN_ONE_IN:
            return None
        lines = self.lines[code.co_filename]
        lines.add(frame.f_lineno)

        def line(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            lines.add(frame.f_lineno)
            return line

        return line
