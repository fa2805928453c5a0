"""All mutants of a file. What is left out, in whatever file:

- what says how code is declared, not what it does: imports, annotations, type aliases, type
  variables, decorators, keywords of a class definition, `__all__`, docstrings;
- assertions, since they state what can't happen, and the arguments of what is raised;
- text for people: a string with a space in it or without a letter, an f-string with such a part
  (and what is put into it), what is added to a text, and what is passed as reason, what, why, fix,
  outcome, evidence or message.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mutation import operators as op
from tests.mutation.source import Mutant, Source

#: Names of fields that hold a text for people.
PEOPLE = frozenset({"reason", "what", "why", "fix", "outcome", "evidence", "message"})

#: Decorators under which the function itself can still be reached.
PLAIN = frozenset({"property", "staticmethod", "classmethod"})

#: Names that make a type when they are subscripted.
GENERIC = frozenset({"dict", "list", "tuple", "set", "frozenset", "type", "Callable"})

Span = tuple[int, int]


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of the file, in the order of the text. No two of them read the same."""
    walk = _Walk(Source(path))
    walk.visit(walk.src.tree)
    found = {(m.start, m.end, m.text): m for m in walk.found}
    return sorted(found.values(), key=lambda m: (m.start, m.end, m.text))


class _Walk(ast.NodeVisitor):
    """Where in the file we are, and what was found."""

    def __init__(self, src: Source) -> None:
        self.src = src
        self.found: list[Mutant] = []
        self.scopes: list[str] = []
        self.function = ""
        self.boolean = False
        self.bound: set[str] = set()
        self.lines: Span = (0, 0)

    def add(self, operator: str, node: ast.AST, changes: Iterable[op.Change]) -> None:
        for start, end, text in changes:
            if self.src.data[start:end].decode() == text:
                continue
            self.found.append(
                Mutant(
                    path=self.src.path,
                    data=self.src.data,
                    operator=operator,
                    line=self.src.data.count(b"\n", 0, start) + 1,
                    lines=self.lines,
                    function=self.function,
                    start=start,
                    end=end,
                    text=text,
                )
            )

    # --- Declarations ---------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        """Left out."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Left out."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Left out."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Its body only."""
        self.scopes.append(node.name)
        self._block(node.body)
        self.scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Defaults are evaluated where the function is defined, its body where it is called."""
        self.lines = (node.lineno, node.body[0].lineno - 1)
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            self.visit(default)
        outer = self.function, self.boolean, self.bound
        self.scopes.append(node.name)
        if not self.function and {_name(d) for d in node.decorator_list} <= PLAIN:
            self.function = ".".join(self.scopes)
        self.boolean = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        self.bound = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        self._block(node.body, last=True)
        self.scopes.pop()
        self.function, self.boolean, self.bound = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Not its annotation; nothing of a type alias."""
        alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
        if node.value is not None and not alias:
            self.visit(node.value)

    # --- Statements -----------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], *, last: bool = False) -> None:
        for i, node in enumerate(body):
            end = node.end_lineno or node.lineno
            inner = getattr(node, "body", None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                end = max(node.lineno, inner[0].lineno - 1)
            self.lines = (node.lineno, end)
            if self._removable(node, last=last and i + 1 == len(body)):
                self.add("statement", node, op.removed(self.src, node))
            self.visit(node)
            self.bound |= _targets(node)

    def _removable(self, node: ast.stmt, *, last: bool) -> bool:
        """Would the function still make sense without it?"""
        if not self.function or _is_docstring(node):
            return False
        if isinstance(node, ast.Assign):
            return _targets(node) <= self.bound
        if isinstance(node, ast.AugAssign) and op.is_text(node.value):
            return False
        kinds = (ast.Expr, ast.AugAssign, ast.For, ast.Raise, ast.Continue, ast.Break)
        return isinstance(node, kinds) or (isinstance(node, ast.Return) and not last)

    def generic_visit(self, node: ast.AST) -> None:
        """Blocks keep count of the statements that a change is in."""
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._block(value)
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)
            elif isinstance(value, ast.AST):
                self.visit(value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Not a list of public names, nor a type variable."""
        names = _targets(node)
        kind = node.value.func if isinstance(node.value, ast.Call) else None
        if "__all__" in names or (isinstance(kind, ast.Name) and kind.id == "TypeVar"):
            return
        self.visit(node.value)
        for target in node.targets:
            if not isinstance(target, ast.Name | ast.Tuple):
                self.visit(target)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Its text is for people; that it is raised is the statement itself."""

    def visit_Expr(self, node: ast.Expr) -> None:
        """Not a docstring."""
        if not _is_docstring(node):
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """What comes back."""
        self.add("return", node, op.returned(self.src, node, boolean=self.boolean))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Turned round."""
        self.add("condition", node, op.negated(self.src, node.test))
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Turned round."""
        self.add("condition", node, op.negated(self.src, node.test))
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        """Without one of its cases."""
        self.add("case", node, op.cases(self.src, node))
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        """A type's name isn't code."""

    def visit_Continue(self, node: ast.Continue) -> None:
        """The loop ends instead."""
        self.add("loop", node, [(self.src.start(node), self.src.end(node), "break")])

    def visit_Break(self, node: ast.Break) -> None:
        """The loop goes on instead."""
        self.add("loop", node, [(self.src.start(node), self.src.end(node), "continue")])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Another sign."""
        if not op.is_text(node.value):
            self.add("arithmetic", node, op.augmented(self.src, node))
        self.visit(node.value)

    # --- Expressions ----------------------------------------------------------------------------

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Turned round."""
        self.add("condition", node, op.negated(self.src, node.test))
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Turned round, or without its filter."""
        for test in node.ifs:
            self.add("condition", node, op.negated(self.src, test))
        self.add("filter", node, op.dropped_filter(self.src, node))
        self.visit(node.iter)
        for test in node.ifs:
            self.visit(test)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Another comparison."""
        self.add("comparison", node, op.compared(self.src, node))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`and` for `or`; without one of its clauses."""
        self.add("boolean", node, op.swapped(self.src, node))
        self.add("clause", node, op.clauses(self.src, node))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Without its sign."""
        self.add("sign", node, op.unary(self.src, node))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Another calculation."""
        self.add("arithmetic", node, op.calculated(self.src, node))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Another value."""
        if isinstance(node.value, bool):
            self.add("truth", node, op.truth(self.src, node))
        elif isinstance(node.value, int | float):
            self.add("number", node, op.number(self.src, node))
        elif isinstance(node.value, str) and not is_for_people(node.value):
            self.add("string", node, op.word(self.src, node))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A key; a text for people is left out with all that is put into it."""
        parts = [p.value for p in node.values if isinstance(p, ast.Constant)]
        if not any(" " in p for p in parts):
            self.add("string", node, op.key_text(self.src, node))

    def visit_Tuple(self, node: ast.Tuple) -> None:
        """Without one of its elements."""
        if isinstance(node.ctx, ast.Load):
            self.add("element", node, op.elements(self.src, node))
            self.generic_visit(node)

    visit_List = visit_Tuple  # type: ignore[assignment]

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Not what is a type."""
        if not (isinstance(node.value, ast.Name) and node.value.id in GENERIC):
            self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        """Without one of its elements."""
        self.add("element", node, op.elements(self.src, node))
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Without one of its entries."""
        self.add("element", node, op.entries(self.src, node))
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        """Without bounds."""
        self.add("slice", node, op.sliced(self.src, node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Not made, made of another function, or with less."""
        self.add("call", node, op.calls(self.src, node))
        self.add("argument", node, op.arguments(self.src, node, PEOPLE))
        self.visit(node.func)
        for value in node.args:
            self.visit(value)
        for keyword in node.keywords:
            if keyword.arg not in PEOPLE:
                self.visit(keyword.value)


def is_for_people(text: str) -> bool:
    """A sentence, or punctuation between its parts. An empty string is a value."""
    return " " in text or (text != "" and not any(c.isalpha() for c in text))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _targets(node: ast.stmt) -> set[str]:
    """Names that the statement binds."""
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in stored if isinstance(n.ctx, ast.Store)}


def all_mutants(paths: Iterable[Path]) -> Iterator[Mutant]:
    """Those of several files."""
    for path in paths:
        yield from mutants_of(path)
