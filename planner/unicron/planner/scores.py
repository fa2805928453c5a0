"""The tiers of all choices as single integers, as the dynamic programme and CP-SAT add them up."""

from __future__ import annotations

from unicron.planner.objective import TIERS, Board
from unicron.planner.validation import EXACT_MAX


def packed(board: Board, first: int, last: int) -> tuple[list[list[int]], int]:
    """Tiers `first` to `last - 1` of every choice as one integer, and a bound of their sum.

    Packed sums compare as the lists of sums do: each tier is scaled past all that the lower ones
    can add up to. Python's integers don't overflow; who needs a limit looks at the bound.
    """
    factors = [0] * (last - first)
    scale, bound = 1, 0
    for tier in reversed(range(first, last)):
        factors[tier - first] = scale
        reach = sum(max(abs(choice.tiers[tier]) for choice in row) for row in board.choices)
        bound += reach * scale
        scale *= 2 * reach + 1
    scores = [
        [
            sum(
                tier * factor
                for tier, factor in zip(choice.tiers[first:last], factors, strict=True)
            )
            for choice in row
        ]
        for row in board.choices
    ]
    return scores, bound


def stages(board: Board) -> tuple[tuple[int, int], ...]:
    """The tiers in as few groups as keep every packed sum below 2**53, first group first.

    Small clusters need one group. `validate` keeps each tier alone below the limit, so this ends.
    """
    groups: list[tuple[int, int]] = []
    first = 0
    while first < TIERS:
        last = TIERS
        while packed(board, first, last)[1] >= EXACT_MAX:
            last -= 1
            assert last > first, "one tier alone leaves the exact range; validate should refuse it"
        groups.append((first, last))
        first = last
    return tuple(groups)
