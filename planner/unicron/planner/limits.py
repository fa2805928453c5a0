"""How many devices may be used together: by kind, and by each tenant's quota.

Every limit is a sum over choices, so that counting says whether a set of choices keeps it. Whether
groups then find nodes is another matter; see `Board.uniform`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from unicron.planner.objective import Board, Choice, count_rooms


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of these tasks take at most `most` devices of a kind (of all kinds: "").

    `tasks` are positions on the board; None stands for all of them. Only choices in tensor parallel
    groups of at least `tp` devices count.
    """

    kind: str
    most: int
    tasks: frozenset[int] | None = None
    tp: int = 1

    def counts(self, task: int, choice: Choice) -> bool:
        """Whether the devices of this choice count."""
        return (
            (self.tasks is None or task in self.tasks)
            and (not self.kind or self.kind == choice.kind)
            and choice.tp >= self.tp
        )


def kind_limits(board: Board, block: int = 1) -> tuple[Limit, ...]:
    """What there is of each kind that a choice names, and of all kinds if one names none.

    The latter comes first. Each node's devices are counted in whole blocks.
    """
    rooms = board.rooms[max(block, board.sizes[0])]
    return tuple(Limit(kind=kind, most=rooms[kind]) for kind in _named(board))


def group_limits(board: Board) -> tuple[Limit, ...]:
    """What there is for large groups, where they can't use as much as small ones."""
    return tuple(
        Limit(kind=kind, most=board.rooms[size][kind], tp=size)
        for kind in _named(board)
        for smaller, size in pairwise(board.sizes)
        if board.rooms[size][kind] < board.rooms[smaller][kind]
    )


def common_limits(board: Board, block: int) -> tuple[Limit, ...]:
    """Who avoids nodes keeps to what there is on nodes that nobody avoids: more than is needed.

    Whoever is placed where, those tasks find their devices then.
    """
    picky = frozenset(i for i, task in enumerate(board.tasks) if task.avoid)
    avoided = {node for i in picky for node in board.tasks[i].avoid}
    rooms = count_rooms((n for n in board.problem.nodes if n.node not in avoided), block)
    kinds = _named(board) if picky else ()
    return tuple(Limit(kind=kind, most=rooms.get(kind, 0), tasks=picky) for kind in kinds)


def _named(board: Board) -> list[str]:
    rooms = board.rooms[board.sizes[0]]
    named = {choice.kind for row in board.choices for choice in row if choice.layout is not None}
    if "" in named:
        # Where there is only one kind, its limit says the same.
        named = {kind for kind in named if not kind or rooms[kind] < rooms[""]}
    return sorted(named)


def quota_limits(board: Board) -> tuple[Limit, ...]:
    """The tenants' quotas, without those that can't be exceeded."""
    tenants: dict[str, list[int]] = {}
    for i, task in enumerate(board.tasks):
        tenants.setdefault(task.tenant, []).append(i)
    found = []
    for quota in sorted(board.problem.quotas, key=lambda quota: (quota.tenant, quota.kind)):
        mine = tenants.get(quota.tenant, [])
        limit = Limit(kind=quota.kind, most=quota.max_devices, tasks=frozenset(mine))
        if sum(max(_counted(limit, i, board.choices[i])) for i in mine) > limit.most:
            found.append(limit)
    return tuple(found)


def _counted(limit: Limit, task: int, row: Sequence[Choice]) -> list[int]:
    return [choice.devices if limit.counts(task, choice) else 0 for choice in row]


class Tally:
    """Devices in use under each limit, while choices are taken and given back."""

    def __init__(self, limits: Sequence[Limit], block: int = 1) -> None:
        self.limits, self.block = limits, block
        self.left = [limit.most for limit in limits]

    def size(self, choice: Choice) -> int:
        """The devices of a choice, in whole blocks."""
        return -(-choice.devices // self.block) * self.block

    def fits(self, task: int, choice: Choice, instead: Choice | None = None) -> bool:
        """Whether the task may take this choice, `instead` of one that it took before."""
        size = self.size(choice)
        freed = 0 if instead is None else self.size(instead)
        return all(
            not limit.counts(task, choice)
            or size <= left + (freed if instead and limit.counts(task, instead) else 0)
            for limit, left in zip(self.limits, self.left, strict=True)
        )

    def take(self, task: int, choice: Choice, instead: Choice | None = None) -> None:
        """Count this choice, and `instead` no longer."""
        for number, limit in enumerate(self.limits):
            if limit.counts(task, choice):
                self.left[number] -= self.size(choice)
            if instead is not None and limit.counts(task, instead):
                self.left[number] += self.size(instead)

    def slack(self, task: int, choice: Choice) -> int:
        """What would be left under the tightest limit that counts this choice."""
        left = (
            left
            for limit, left in zip(self.limits, self.left, strict=True)
            if limit.counts(task, choice)
        )
        return min(left, default=0) - self.size(choice)

    @property
    def kept(self) -> bool:
        """Whether no limit is exceeded."""
        return min(self.left, default=0) >= 0
