"""The tiers of all choices as single integers, as the dynamic programme and CP-SAT add them up."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from unicron.planner.objective import TIERS, Board
from unicron.planner.validation import EXACT_MAX


def packed(
    board: Board, first: int, last: int, rows: Sequence[Sequence[int]] | None = None
) -> tuple[list[list[int]], int]:
    """Tiers `first` to `last - 1` of every choice as one integer, and a bound of their sum.

    Packed sums compare as the lists of sums do: each tier is scaled past all that the lower ones
    can add up to. Within `rows`, if they are given, which say the choices of each task that count;
    each tier is less what the least of them has. Python's integers don't overflow; who needs a
    limit looks at the bound.
    """
    considered = [
        row if rows is None else [row[k] for k in rows[i]] for i, row in enumerate(board.choices)
    ]
    factors: list[int] = []
    least: list[list[int]] = []
    scale, bound = 1, 0
    for tier in reversed(range(first, last)):
        values = [[choice.tiers[tier] for choice in row] for row in considered]
        lowest = [min(row) for row in values]
        reach = sum(max(row) - low for row, low in zip(values, lowest, strict=True))
        factors.insert(0, scale)
        least.insert(0, lowest)
        bound += reach * scale
        scale *= reach + 1
    offsets = [
        sum(low[i] * factor for low, factor in zip(least, factors, strict=True))
        for i in range(len(considered))
    ]
    scores = [
        [sum(map(mul, choice.tiers[first:last], factors)) - offset for choice in row]
        for row, offset in zip(board.choices, offsets, strict=True)
    ]
    return scores, bound


def stages(
    board: Board, rows: Sequence[Sequence[int]] | None = None
) -> tuple[tuple[int, int], ...]:
    """The tiers in as few groups as keep every packed sum below 2**53, first group first.

    Small clusters need one group. `validate` keeps each tier alone below the limit, so this ends.
    """
    groups: list[tuple[int, int]] = []
    first = 0
    while first < TIERS:
        last = TIERS
        while packed(board, first, last, rows)[1] >= EXACT_MAX:
            last -= 1
            assert last > first, "one tier alone leaves the exact range; validate should refuse it"
        groups.append((first, last))
        first = last
    return tuple(groups)
