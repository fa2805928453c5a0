"""Which choice each task takes, as far as counting devices decides it."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from unicron.planner.floors import countable_floors, wanted_floors
from unicron.planner.knapsack import best_options
from unicron.planner.limits import (
    Limit,
    Tally,
    common_limits,
    group_limits,
    kind_limits,
    quota_limits,
)
from unicron.planner.objective import TIERS, Board, Choice
from unicron.planner.prices import dual
from unicron.planner.scores import packed

# How often the tasks are asked in turn what they could use of what is left.
PASSES_MAX = 4


def choose(board: Board, *, careful: bool = False) -> tuple[list[Choice], bool]:
    """One choice for each task under all limits, and whether none are better as far as counts go.

    Each kind is a knapsack. Tasks with a choice of kinds are given one first, by what the devices
    bring. Where a quota is exceeded, the tenant's tasks are cut down to it by a knapsack of their
    own, and the others share what that leaves.

    If one is careful, devices are counted in whole blocks of the largest group size and tasks that
    avoid nodes keep to those that nobody avoids, so that what fits can be placed more easily.
    """
    search = _Search(board, board.sizes[-1] if careful else 1, careful=careful)
    picks = search.fill()
    if not search.exact:
        search.improve(picks)
    return [row[k] for row, k in zip(board.choices, picks, strict=True)], search.exact


def core(board: Board) -> list[list[int]]:
    """Of each task the choices that a best plan can contain, as far as counts tell: all of them
    where the constraints don't decompose."""
    search = _Search(board, 1, careful=False)
    search.fill()
    if not search.exact:
        return [list(range(len(row))) for row in board.choices]
    return [sorted(ks) for ks in search.core]


def block_devices(board: Board, *, careful: bool = False) -> int:
    """In what multiples devices are counted; all sizes are whole ones of it unless careful."""
    if careful:
        return board.sizes[-1]
    unit = 0
    for task in board.tasks:
        for option in task.options:
            unit = gcd(unit, option.layout.devices)
            if unit == 1:
                return 1
    return unit or 1


class _Search:
    """`open` are the choices of each task that keep the floors, `rows` those still considered."""

    def __init__(self, board: Board, block: int, *, careful: bool) -> None:
        self.board, self.block = board, block
        self.scores, _ = packed(board, 0, TIERS)
        kinds = kind_limits(board, block)
        # One pool if somebody takes any kind; what there is of each is a side issue then.
        self.pooled = bool(kinds) and not kinds[0].kind
        self.pools = kinds[:1] if self.pooled else kinds
        self.sides = (*kinds[len(self.pools) :], *quota_limits(board))
        self.sides += common_limits(board, block) if careful else group_limits(board)
        self.floors = countable_floors(board, self._tally())
        self.open = [
            [k for k, choice in enumerate(row) if i not in self.floors or choice.floored]
            for i, row in enumerate(board.choices)
        ]
        self.rows = list(self.open)
        self.core = list(self.open)
        self.exact = not careful
        self._decide_kinds()

    def _tally(self) -> Tally:
        return Tally((*self.pools, *self.sides), self.block)

    def _kinds_of(self, i: int) -> set[str]:
        """The kinds that the task may still use."""
        row = self.board.choices[i]
        return {row[k].kind for k in self.rows[i] if row[k].layout is not None}

    def _decide_kinds(self) -> None:
        """Leave each task the choices of one kind, unless kinds don't matter."""
        flexible = [i for i in range(len(self.rows)) if len(self._kinds_of(i)) > 1]
        if flexible and len(self.floors) < len(wanted_floors(self.board)):
            self.exact = False  # with other kinds there might have been room for more
        if self.pooled or not flexible:
            return
        self.exact = False
        decided = dual(self.board, (*self.pools, *self.sides), self.rows).kinds
        for i in flexible:
            self._keep_kind(i, decided[i])
        floors = countable_floors(self.board, self._tally(), self.rows)
        if floors.keys() == self.floors.keys():
            self.floors = floors
            return
        for i in flexible:
            self.rows[i] = self.open[i]
            k = self.floors.get(i)
            self._keep_kind(i, decided[i] if k is None else self.board.choices[i][k].kind)

    def _keep_kind(self, i: int, kind: str) -> None:
        row = self.board.choices[i]
        self.rows[i] = [k for k in self.rows[i] if row[k].layout is None or row[k].kind == kind]

    def fill(self) -> list[int]:
        """Share the pools; cut tasks down where a side limit is exceeded, and share again."""
        for _ in range(len(self.sides) + 1):
            picks = self._share()
            exceeded = [limit for limit in self.sides if self._used(limit, picks) > limit.most]
            if not exceeded:
                return picks
            self.exact = False
            for limit in exceeded:
                self._cut(limit, picks)
        return self._least()

    def _least(self) -> list[int]:
        """What the floors need and no more, which fits under all limits."""
        return [self.floors.get(i, 0) for i in range(len(self.rows))]

    def _share(self) -> list[int]:
        """Each pool on its own."""
        picks = self._least()
        kinds = [self._kinds_of(i) for i in range(len(picks))]
        for limit in self.pools:
            tasks = [i for i, own in enumerate(kinds) if self.pooled or limit.kind in own]
            self._solve(limit, tasks, self.rows, picks)
        return picks

    def _solve(
        self, limit: Limit, tasks: list[int], rows: Sequence[list[int]], picks: list[int]
    ) -> None:
        """Take the best of these choices of these tasks under one limit."""
        found = best_options(
            [[(self._size(limit, i, k), self.scores[i][k]) for k in rows[i]] for i in tasks],
            limit.most,
        )
        assert found is not None, "floors that fit together don't"
        self.exact &= found.exact
        for i, option, core in zip(tasks, found.options, found.core, strict=True):
            picks[i] = rows[i][option]
            self.core[i] = [rows[i][k] for k in core]

    def _cut(self, limit: Limit, picks: list[int]) -> None:
        """Let the tasks that count under this limit have what fits under it, and no more."""
        tasks = [i for i in range(len(picks)) if limit.tasks is None or i in limit.tasks]
        rows = list(self.rows)
        for i in tasks:
            row, least = self.board.choices[i], self.floors.get(i, 0)
            now = row[picks[i]].devices
            rows[i] = [k for k in self.rows[i] if row[k].devices <= now or k == least]
        self._solve(limit, tasks, rows, picks)
        for i in tasks:
            self.rows[i] = sorted({picks[i], self.floors.get(i, 0)})

    def _used(self, limit: Limit, picks: list[int]) -> int:
        return sum(self._size(limit, i, k) for i, k in enumerate(picks))

    def _size(self, limit: Limit, i: int, k: int) -> int:
        choice = self.board.choices[i][k]
        return -(-choice.devices // self.block) * self.block if limit.counts(i, choice) else 0

    def improve(self, picks: list[int]) -> None:
        """Give each task in turn the best that fits, while that is better than what it has."""
        tally = self._tally()
        choices = self.board.choices
        for i, k in enumerate(picks):
            tally.take(i, choices[i][k])
        for _ in range(PASSES_MAX):
            before = list(picks)
            for i, row in enumerate(choices):
                now, scores = picks[i], self.scores[i]
                better = [k for k in self.open[i] if scores[k] > scores[now]]
                for k in sorted(better, key=lambda k: -scores[k]):
                    if tally.fits(i, row[k], row[now]):
                        tally.take(i, row[k], row[now])
                        picks[i] = k
                        break
            if picks == before:
                return
