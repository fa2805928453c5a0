"""A source text and the edits that make mutants of it.

Positions are byte offsets, as the syntax tree counts columns in bytes.
"""

import ast
import difflib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One small change of one file. `data`: the file without it. `lines`: first and last line of
    the statement (or its head) whose execution can show the change. `function`: qualified name of
    the outermost function around it, "" for what runs when the module is imported."""

    path: Path
    data: bytes
    operator: str
    line: int
    lines: tuple[int, int]
    function: str
    start: int
    end: int
    text: str

    def source(self) -> bytes:
        """The whole file with the change in it."""
        return self.data[: self.start] + self.text.encode() + self.data[self.end :]

    def diff(self) -> list[str]:
        """The lines that go ("-") and come ("+")."""
        before = self.data.decode().splitlines()
        after = self.source().decode().splitlines()
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


class Source:
    """One file, its tree, and where in the text a node stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        self.tree = ast.parse(self.data)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def start(self, node: ast.expr | ast.stmt | ast.pattern) -> int:
        """Where the node begins; brackets around it aren't part of it."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.pattern) -> int:
        """Where it ends."""
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt | ast.pattern) -> str:
        """What is written there."""
        return self.data[self.start(node) : self.end(node)].decode()

    def between(self, left: ast.expr, right: ast.expr) -> tuple[int, str]:
        """Offset and text of what stands between two nodes, comments blanked out."""
        start = self.end(left)
        text = self.data[start : self.start(right)]
        lines = [line.partition(b"#") for line in text.split(b"\n")]
        blanked = b"\n".join(code + b" " * len(mark + rest) for code, mark, rest in lines)
        return start, blanked.decode()

    def bracketed(self, node: ast.expr) -> tuple[int, int]:
        """Start and end of the node with the brackets of its own around it, as in `(a or b)`.
        For an element of a list of at least two, or of one in other brackets than round ones."""
        start, end = self.start(node), self.end(node)
        while True:
            before, after = self.data[:start].rstrip(), self.data[end:].lstrip()
            if not (before.endswith(b"(") and after.startswith(b")")):
                return start, end
            start, end = len(before) - 1, len(self.data) - len(after) + 1
