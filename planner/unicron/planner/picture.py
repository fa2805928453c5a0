"""Who sits where, as text: a letter for each device, node or rack, whatever fits a screen.

    rack r1   a01 aaaaaaaa  a02 aaaabbbb  a03 ........
    a llama70b 12  b moe 4  . free 8

Pure; the width is the caller's.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from unicron.planner.plan import Plan
from unicron.planner.problem import NodeSupply, PlanProblem

#: Beyond so many nodes each is one letter, and beyond so many more each rack is.
_DEVICES_SHOWN = 64
_NODES_SHOWN = 4_096

FREE, GONE, DRAINING, SICK, MIXED, OTHERS = ".", "x", "d", "-", "+", "*"
_LETTERS = [
    c
    for c in string.ascii_lowercase + string.ascii_uppercase + string.digits
    if c not in (GONE, DRAINING)
]


def picture(problem: PlanProblem, plan: Plan, width: int = 80) -> tuple[str, ...]:
    """Lines of at most `width` columns: the racks in order of their names, and a legend."""
    letters = _letters(plan)
    cells = {node.node: list(_cells(node)) for node in problem.nodes}
    for assignment in plan.assignments:
        letter = letters.get(assignment.task, OTHERS)
        for slot in assignment.slots:
            cells[slot.node][slot.device] = letter
    racks = _racks(problem)
    gone = sorted(_gone(problem))
    if len(cells) <= _DEVICES_SHOWN:
        lines = list(_devices(racks, cells, gone, width))
        unit = ""
    elif len(cells) <= _NODES_SHOWN:
        lines = list(_nodes(racks, cells, gone, width))
        unit = "a letter is a node"
    else:
        lines = _wrapped(
            "",
            [_one(c for n in nodes for c in cells[n.node]) for nodes in racks.values()],
            width,
            "",
        )
        unit = "a letter is a rack"
    return (*lines, *_legend(plan, letters, cells, gone, unit, width))


def _letters(plan: Plan) -> dict[str, str]:
    """The largest tasks get a letter of their own."""
    running = [a for a in plan.assignments if a.layout is not None]
    running.sort(key=lambda a: (-len(a.slots), a.task))
    named = sorted(a.task for a in running[: len(_LETTERS)])
    return dict(zip(named, _LETTERS, strict=False))


def _cells(node: NodeSupply) -> Iterator[str]:
    """One for each device up to the highest healthy one."""
    healthy = set(node.devices)
    for device in range(max(healthy, default=-1) + 1):
        if device not in healthy:
            yield SICK
        else:
            yield DRAINING if node.draining else FREE


def _racks(problem: PlanProblem) -> dict[str, list[NodeSupply]]:
    racks: dict[str, list[NodeSupply]] = {}
    for node in sorted(problem.nodes, key=lambda n: (n.rack, n.node)):
        racks.setdefault(node.rack, []).append(node)
    return racks


def _gone(problem: PlanProblem) -> set[str]:
    """Nodes that tasks hold devices of and that aren't there any more."""
    held = {slot.node for task in problem.tasks for slot in task.placement}
    return held - {node.node for node in problem.nodes}


def _devices(
    racks: dict[str, list[NodeSupply]], cells: dict[str, list[str]], gone: list[str], width: int
) -> Iterator[str]:
    for rack, nodes in racks.items():
        yield from _wrapped(
            f"rack {rack}  " if rack else "",
            [f"{n.node} {''.join(cells[n.node]) or SICK}" for n in nodes],
            width,
            "  ",
        )
    if gone:
        yield from _wrapped("gone  ", [f"{name} {GONE}" for name in gone], width, "  ")


def _nodes(
    racks: dict[str, list[NodeSupply]], cells: dict[str, list[str]], gone: list[str], width: int
) -> Iterator[str]:
    margin = max(len(rack) for rack in racks)
    for rack, nodes in racks.items():
        head = f"rack {rack.ljust(margin)}  " if rack else ""
        yield from _wrapped(head, [_one(cells[n.node]) for n in nodes], width, "")
    if gone:
        yield f"gone  {GONE * len(gone)}"[:width]


def _one(cells: Iterable[str]) -> str:
    """One letter for several: the only task among them, or the sign that there are more."""
    found = Counter(cells)
    tasks = [c for c in found if c not in (FREE, DRAINING, SICK)]
    if len(tasks) > 1:
        return MIXED
    if tasks:
        return tasks[0]
    return max(found, key=lambda c: (found[c], c)) if found else SICK


def _wrapped(head: str, parts: Sequence[str], width: int, gap: str) -> list[str]:
    """The parts after the head, in as many lines as they need; further lines are indented."""
    lines, line = [], head
    for part in parts:
        fits = len(line) + (len(gap) if line != head and line.strip() else 0) + len(part) <= width
        if not fits and line.strip() and line != " " * len(head):
            lines.append(line.rstrip())
            line = " " * len(head)
        line += (gap if line.strip() and line != head else "") + part
    return [*lines, line.rstrip()] if line.strip() else lines


def _legend(
    plan: Plan,
    letters: dict[str, str],
    cells: dict[str, list[str]],
    gone: list[str],
    unit: str,
    width: int,
) -> list[str]:
    sizes = {a.task: len(a.slots) for a in plan.assignments}
    parts = [f"{letter} {task} {sizes[task]:,}" for task, letter in letters.items()]
    others = [a for a in plan.assignments if a.layout is not None and a.task not in letters]
    if others:
        parts.append(f"{OTHERS} {len(others):,} smaller tasks")
    counts = Counter(c for row in cells.values() for c in row)
    words = ((FREE, "free"), (DRAINING, "draining"), (SICK, "not healthy"))
    parts += [f"{sign} {word} {counts[sign]:,}" for sign, word in words if counts[sign]]
    if gone:
        parts.append(f"{GONE} gone {len(gone):,}")
    if unit:
        parts.append(f"({unit}; {MIXED} several tasks)")
    return _wrapped("", parts, width, "  ")
