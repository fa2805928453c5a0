"""What a mutant changes: for each kind of node, the replacements of its text.

Each operator yields (start, end, new text). What is left out, and why, is said in walk.py.
"""

import ast
import builtins
import itertools
import re
from collections.abc import Iterator

from tests.mutation.source import Source

Change = tuple[int, int, str]

COMPARED: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
CALCULATED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
    ast.BitXor: ("^", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
CHOSEN = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: A number from here on is a measure, not a count: it is doubled and halved.
LARGE = 1000


def compared(src: Source, node: ast.Compare) -> Iterator[Change]:
    """Another comparison."""
    sides = itertools.pairwise([node.left, *node.comparators])
    for (left, right), op in zip(sides, node.ops, strict=True):
        sign, others = COMPARED[type(op)]
        at, text = src.between(left, right)
        pattern = re.escape(sign).replace(r"\ ", r"\s+")
        found = re.search(rf"\b{pattern}\b" if sign[0].isalpha() else pattern, text)
        for other in others:
            yield at + found.start(), at + found.end(), other


def swapped(src: Source, node: ast.BoolOp) -> Iterator[Change]:
    """`and` for `or`, everywhere in the node."""
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    text = src.text(node.values[0])
    for left, right in itertools.pairwise(node.values):
        _, sign = src.between(left, right)
        text += re.sub(rf"\b{old}\b", new, sign) + src.text(right)
    yield src.start(node.values[0]), src.end(node.values[-1]), text


def clauses(src: Source, node: ast.BoolOp) -> Iterator[Change]:
    """One operand less: it becomes what changes nothing."""
    neutral = "True" if isinstance(node.op, ast.And) else "False"
    for value in node.values:
        yield src.start(value), src.end(value), neutral


def negated(src: Source, test: ast.expr) -> Iterator[Change]:
    """A condition turned round, where its comparison isn't turned round already."""
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        new = f"({src.text(test.operand)})" if _is_not(test) else f"(not ({src.text(test)}))"
        yield src.start(test), src.end(test), new


def _is_not(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def dropped_filter(src: Source, node: ast.comprehension) -> Iterator[Change]:
    """A comprehension that takes in everything."""
    for test in node.ifs:
        yield src.start(test), src.end(test), "True"


def unary(src: Source, node: ast.UnaryOp) -> Iterator[Change]:
    """Without its sign."""
    yield src.start(node), src.end(node), f"({src.text(node.operand)})"


def calculated(src: Source, node: ast.BinOp) -> Iterator[Change]:
    """Another calculation; of a union, one side only."""
    if is_text(node.left) or is_text(node.right):
        return
    sign, other = CALCULATED[type(node.op)]
    at, text = src.between(node.left, node.right)
    offset = text.index(sign)
    yield at + offset, at + offset + len(sign), other
    if isinstance(node.op, ast.BitOr):
        yield src.start(node), src.end(node), f"({src.text(node.left)})"
        yield src.start(node), src.end(node), f"({src.text(node.right)})"


def is_text(node: ast.expr) -> bool:
    """A string, written out."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def augmented(src: Source, node: ast.AugAssign) -> Iterator[Change]:
    """Another calculation in place."""
    sign, other = CALCULATED[type(node.op)]
    at, text = src.between(node.target, node.value)
    offset = text.index(sign + "=")
    yield at + offset, at + offset + len(sign) + 1, other + "="


def number(src: Source, node: ast.Constant) -> Iterator[Change]:
    """A little more and a little less; twice and half of what is large."""
    value = node.value
    others = [value * 2, value // 2] if value >= LARGE else [value + 1, value - 1]
    for other in others:
        if other >= 0:
            yield src.start(node), src.end(node), str(other)


def truth(src: Source, node: ast.Constant) -> Iterator[Change]:
    """True for False and the other way round."""
    yield src.start(node), src.end(node), str(not node.value)


def word(src: Source, node: ast.Constant) -> Iterator[Change]:
    """Another word; something for nothing."""
    yield src.start(node), src.end(node), repr(node.value + "_")


def key_text(src: Source, node: ast.JoinedStr) -> Iterator[Change]:
    """A key that begins otherwise, or says one thing less."""
    yield (
        src.start(node),
        src.end(node),
        ast.unparse(ast.JoinedStr([ast.Constant("_"), *node.values])),
    )
    for i, part in enumerate(node.values):
        if isinstance(part, ast.FormattedValue) and len(node.values) > 1:
            rest = ast.JoinedStr([*node.values[:i], *node.values[i + 1 :]])
            yield src.start(node), src.end(node), ast.unparse(rest)


def elements(src: Source, node: ast.Tuple | ast.List | ast.Set) -> Iterator[Change]:
    """One element less; one in what is empty."""
    start, end = src.start(node), src.end(node)
    if not node.elts:
        yield start, end, "(None,)" if isinstance(node, ast.Tuple) else "[None]"
    elif len(node.elts) == 1:
        yield start, end, {ast.Tuple: "()", ast.List: "[]", ast.Set: "set()"}[type(node)]
    elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
        for kept in reversed(node.elts):
            first, last = src.bracketed(kept)
            yield start, end, f"({src.data[first:last].decode()},)"
    else:
        yield from _cuts(src, [src.bracketed(e) for e in node.elts])


def entries(src: Source, node: ast.Dict) -> Iterator[Change]:
    """One entry less; one in what is empty."""
    if not node.keys:
        yield src.start(node), src.end(node), "{None: None}"
    elif len(node.keys) == 1:
        yield src.start(node), src.end(node), "{}"
    else:
        spans = []
        for key, value in zip(node.keys, node.values, strict=True):
            first, last = src.bracketed(value)
            stars = src.data[:first].rstrip()[-2:] == b"**"
            at = src.bracketed(key)[0] if key is not None else src.data[:first].rindex(b"**")
            assert stars is (key is None)
            spans.append((at, last))
        yield from _cuts(src, spans)


def _cuts(src: Source, spans: list[tuple[int, int]]) -> Iterator[Change]:
    """Each of them cut out, with the comma that then is one too many."""
    for i, (start, end) in enumerate(spans):
        if i + 1 < len(spans):
            yield start, spans[i + 1][0], ""
        else:
            yield spans[i - 1][1], end, ""


def arguments(src: Source, node: ast.Call, people: frozenset[str]) -> Iterator[Change]:
    """A field that stays as it was, or that nobody fills in."""
    named = [k for k in node.keywords if k.arg is not None and k.arg not in people]
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    for keyword in named:
        value = keyword.value
        if name in ("replace", *CHOSEN, "sorted"):
            before = [a for a in (*node.args, *(k.value for k in node.keywords))]  # noqa: C416
            i = before.index(value)
            if i:
                yield src.bracketed(before[i - 1])[1], src.bracketed(value)[1], ""
        elif not isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Dict | ast.JoinedStr):
            yield src.start(value), src.end(value), "None"


def calls(src: Source, node: ast.Call) -> Iterator[Change]:
    """The other one of a pair; no order; the call not made: its first argument instead."""
    if not isinstance(node.func, ast.Name):
        return
    name = node.func.id
    if name in CHOSEN:
        yield src.start(node.func), src.end(node.func), CHOSEN[name]
    if name == "sorted":
        yield src.start(node), src.end(node), f"list({src.text(node.args[0])})"
    ours = name.lower() == name and not hasattr(builtins, name)
    several = len(node.args) + len(node.keywords) > 1
    if ours and several and node.args and isinstance(node.args[0], ast.Name | ast.Call):
        yield src.start(node), src.end(node), src.text(node.args[0])


def sliced(src: Source, node: ast.Slice) -> Iterator[Change]:
    """All of it."""
    yield src.start(node), src.end(node), ":"


def cases(src: Source, node: ast.Match) -> Iterator[Change]:
    """A case that never applies; one alternative of it less."""
    for case in node.cases:
        pattern = case.pattern
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
            continue
        end = src.end(pattern) if case.guard is None else src.end(case.guard)
        yield end, end, " if False" if case.guard is None else " and False"
        if isinstance(pattern, ast.MatchOr):
            for left in pattern.patterns:
                rest = " | ".join(src.text(p) for p in pattern.patterns if p is not left)
                yield src.start(pattern), src.end(pattern), rest


def returned(src: Source, node: ast.Return, *, boolean: bool) -> Iterator[Change]:
    """Nothing; of a yes or no, always yes and always no."""
    if node.value is None or isinstance(node.value, ast.Constant):
        return
    for new in ("True", "False") if boolean else ("None",):
        yield src.start(node.value), src.end(node.value), new


def removed(src: Source, node: ast.stmt) -> Iterator[Change]:
    """The statement isn't there."""
    yield src.start(node), src.end(node), "pass"
