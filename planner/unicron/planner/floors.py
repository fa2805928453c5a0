"""Which floors hold when not all of them can.

Floors (minimum sizes and speeds) are hard. If they can't all be met, they are taken in order of
importance and each is kept that can be met together with those before it; the others are given up.
"""

from __future__ import annotations

from collections.abc import Sequence

from unicron.planner.limits import Tally
from unicron.planner.objective import Board
from unicron.planner.pricing import has_floor, minimum_order


def wanted_floors(board: Board) -> list[int]:
    """Positions of the tasks whose floor one of their choices meets, those kept longest first."""
    return [
        i
        for i in minimum_order(board.tasks)
        if has_floor(board.tasks[i]) and any(choice.floored for choice in board.choices[i])
    ]


def countable_floors(
    board: Board, tally: Tally, rows: Sequence[Sequence[int]] | None = None
) -> dict[int, int]:
    """The floors that hold as far as counting devices can tell: task to a choice that meets it.

    The choices fit together, and are taken from the tally. Exact if no task has a choice of kinds:
    then the smallest choice is the least under every limit. A task that has takes the kind that
    leaves most. Only the choices in `rows` are considered, if they are given.
    """
    found: dict[int, int] = {}
    for i in wanted_floors(board):
        row = board.choices[i]
        smallest: dict[str, int] = {}
        for k in range(len(row)) if rows is None else rows[i]:
            if row[k].floored:
                best = smallest.setdefault(row[k].kind, k)
                if row[k].devices < row[best].devices:
                    smallest[row[k].kind] = k
        fitting = [k for k in smallest.values() if tally.fits(i, row[k])]
        if fitting:
            found[i] = max(fitting, key=lambda k: tally.slack(i, row[k]))
            tally.take(i, row[found[i]])
    return found
