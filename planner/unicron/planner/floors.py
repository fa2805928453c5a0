"""Which minimum sizes hold when not all of them can.

Minimum sizes are hard. If they can't all be met, they are taken in order of importance and each is
kept that can be met together with those before it; the others are given up, and those tasks park.
"""

from __future__ import annotations

from collections.abc import Callable

from unicron.planner.objective import Board, minimum_order


def must_run(board: Board, feasible: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """Positions of the tasks whose minimum is kept; `feasible` says whether a set can run at once.

    Asks once if all fits, which is the usual case, and once per task otherwise.
    """
    wanted = [
        i
        for i in minimum_order(board.tasks)
        if board.tasks[i].min_devices > 0 and board.tasks[i].options
    ]
    kept = frozenset(wanted)
    if feasible(kept):
        return kept
    kept = frozenset()
    for i in wanted:
        if feasible(kept | {i}):
            kept |= {i}
    return kept


def countable_floors(board: Board) -> frozenset[int]:
    """The minimums that hold as far as counting devices can tell: exact on a countable board."""
    smallest = [
        min((choice.devices for choice in row if choice.layout is not None), default=0)
        for row in board.choices
    ]
    return must_run(board, lambda tasks: sum(smallest[i] for i in tasks) <= board.capacity)
