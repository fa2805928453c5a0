"""Whether groups of devices find nodes, as far as it depends on more than counting.

Nodes that are alike form a class: as many devices of the same kind, as many of them held by each
task that may stay, and avoided by the same tasks. Groups that need the same form a sort: of the
same size, on the same kind of device, and of tasks that avoid the same nodes. Groups of one sort
may go to any node of any class that admits them, and sizes divide one another; so a set of choices
can be placed if and only if its groups can be spread over the classes such that for every size the
groups of at least that size fit into each class.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from unicron.planner.objective import Board


class NodeClass(msgspec.Struct, frozen=True, kw_only=True):
    """`held` says how many devices of each such node a task holds that may stay, by position.

    `barred`: the tasks that avoid these nodes.
    """

    count: int
    kind: str
    devices: int
    held: tuple[tuple[int, int], ...]
    barred: frozenset[int]


class Sort(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Groups of `tp` devices of a kind ("": any); `like`: the first task that avoids the same."""

    tp: int
    kind: str
    like: int

    def fits(self, nodes: NodeClass) -> bool:
        """Whether a node of this class may hold such a group."""
        return (
            self.tp <= nodes.devices
            and self.kind in ("", nodes.kind)
            and self.like not in nodes.barred
        )


def node_classes(board: Board) -> tuple[NodeClass, ...]:
    """The classes of all nodes that may be used, in an order that depends on the problem only."""
    held: dict[str, Counter[int]] = {}
    for i, (task, row) in enumerate(zip(board.tasks, board.choices, strict=True)):
        if any(choice.stays and choice.layout is not None for choice in row):
            for slot in task.placement:
                held.setdefault(slot.node, Counter())[i] += 1
    avoiders: dict[str, set[int]] = {}
    for i, task in enumerate(board.tasks):
        for node in task.avoid:
            avoiders.setdefault(node, set()).add(i)
    alike = Counter(
        (
            node.kind,
            len(node.devices),
            tuple(sorted(held.get(node.node, Counter()).items())),
            tuple(sorted(avoiders.get(node.node, ()))),
        )
        for node in board.problem.nodes
        if node.devices and not node.draining
    )
    return tuple(
        NodeClass(count=count, kind=kind, devices=devices, held=holders, barred=frozenset(barred))
        for (kind, devices, holders, barred), count in sorted(alike.items())
    )


def likes(board: Board) -> list[int]:
    """For each task the first one that avoids the same nodes."""
    first: dict[frozenset[str], int] = {}
    return [first.setdefault(frozenset(task.avoid), i) for i, task in enumerate(board.tasks)]


def spread_size(board: Board) -> int:
    """How many ways there are for a sort of groups to go to a class of nodes, at most."""
    like = likes(board)
    sorts = {
        (choice.tp, choice.kind, like[i])
        for i, row in enumerate(board.choices)
        for choice in row
        if choice.layout is not None and not choice.stays
    }
    return len(sorts) * len(node_classes(board))
