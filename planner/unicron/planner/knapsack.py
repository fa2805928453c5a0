"""One option per row, as much score as fits: the multiple-choice knapsack, exactly, in integers.

The linear relaxation says what a unit of size is worth. An option's *reduced cost* is what it falls
short of the best option of its row at that price, and the score of any solution is the bound of the
relaxation less the reduced costs of its options and the price of what it leaves empty. So a search
for solutions within a gap of the bound needs only the options within the gap (the core), and the
dynamic programme over them drops every state that has used the gap up. The gap is widened until
something is found, which is then the best there is, or until it reaches the greedy solution.

Core problems: D. Pisinger, "A minimal algorithm for the multiple-choice knapsack problem",
European Journal of Operational Research 83 (1995).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import msgspec

# Additions of one search, about a second of Python; beyond it the greedy solution has to do.
WORK_MAX = 4_000_000
# The first search looks this share of the way from the bound down to the greedy solution.
FIRST_SHARE = 256
WIDER = 4

Row = Sequence[tuple[int, int]]  # size and score of each option
ReducedRow = list[tuple[int, int, int]]  # reduced cost, size, option; ascending


class Picked(msgspec.Struct, frozen=True, kw_only=True):
    """The option taken of each row; `exact`: no solution has a higher score.

    `core`: those of each row that a solution with this score or more can contain.
    """

    options: list[int]
    exact: bool
    core: list[list[int]]


def best_options(rows: Sequence[Row], capacity: int, work_max: int | None = None) -> Picked | None:
    """The best options whose sizes add up to no more than `capacity`; None if none do.

    Sizes are at least 0, scores may be negative, every row has an option. Among equal scores the
    answer depends on the order of the rows and options only.
    """
    fronts = [front_of(row) for row in rows]
    if sum(row[front[0]][0] for row, front in zip(rows, fronts, strict=True)) > capacity:
        return None
    relaxed = _relax(rows, fronts, capacity)
    if relaxed is None:
        options = [front[-1] for front in fronts]
        return Picked(options=options, exact=True, core=[[k] for k in options])
    core = _Core(rows, fronts, capacity, relaxed, WORK_MAX if work_max is None else work_max)
    return core.solve()


def reduced_row(row: Row, front: list[int], price: int, scale: int) -> tuple[ReducedRow, int]:
    """The options of the front by reduced cost at this price, and what the best of them is worth,
    both scaled."""
    worth = [scale * row[k][1] - price * row[k][0] for k in front]
    best = max(worth)
    return sorted((best - each, row[k][0], k) for each, k in zip(worth, front, strict=True)), best


def relaxed_price(rows: Sequence[Row], capacity: int) -> tuple[int, int]:
    """What a unit of size is worth, as a fraction; (0, 1) if everything fits."""
    relaxed = _relax(rows, [front_of(row) for row in rows], capacity)
    return (0, 1) if relaxed is None else (relaxed.price, relaxed.scale)


def front_of(row: Row) -> list[int]:
    """The options that score more than all smaller ones, by size."""
    found: list[int] = []
    for k in sorted(range(len(row)), key=lambda k: (row[k][0], -row[k][1])):
        if not found or row[k][1] > row[found[-1]][1]:
            found.append(k)
    return found


def hull_of(row: Row, front: list[int]) -> list[int]:
    """The options of the front that are best at some price of a unit of size."""
    hull: list[int] = []
    for k in front:
        size, score = row[k]
        while len(hull) > 1:
            (x0, y0), (x1, y1) = row[hull[-2]], row[hull[-1]]
            if (score - y1) * (x1 - x0) < (y1 - y0) * (size - x1):
                break
            hull.pop()
        hull.append(k)
    return hull


class _Relaxed(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of size is worth `price / scale`; `options` is what greed takes at that price."""

    price: int
    scale: int
    options: list[int]


def _relax(rows: Sequence[Row], fronts: list[list[int]], capacity: int) -> _Relaxed | None:
    """Fill up by what brings most per unit of size; None if everything fits."""
    steps = []
    options, room = [], capacity
    for i, (row, front) in enumerate(zip(rows, fronts, strict=True)):
        hull = hull_of(row, front)
        options.append(hull[0])
        room -= row[hull[0]][0]
        for step, (low, high) in enumerate(pairwise(hull)):
            size, score = row[high][0] - row[low][0], row[high][1] - row[low][1]
            steps.append((-score / size, i, step, size, score, high))
    steps.sort()
    price, scale = 0, 0
    stuck: set[int] = set()
    for _, i, _, size, score, high in steps:
        if i in stuck:
            continue
        if size <= room:
            room -= size
            options[i] = high
            continue
        stuck.add(i)
        if not scale:
            price, scale = score, size
    if not scale:
        return None
    return _Relaxed(price=price, scale=scale, options=_fill(rows, fronts, options, room))


def _fill(rows: Sequence[Row], fronts: list[list[int]], options: list[int], room: int) -> list[int]:
    """Use the room that is left, each time for what brings most."""
    while room > 0:
        gain, i, k = max(
            (
                (row[k][1] - row[now][1], -i, -k)
                for i, (row, front, now) in enumerate(zip(rows, fronts, options, strict=True))
                for k in front
                if row[now][0] < row[k][0] <= row[now][0] + room
            ),
            default=(0, 0, 0),
        )
        if gain <= 0:
            break
        i, k = -i, -k
        room -= rows[i][k][0] - rows[i][options[i]][0]
        options[i] = k
    return options


class _Core:
    """The search around the relaxation; costs and gaps are scaled by `relaxed.scale`."""

    def __init__(
        self,
        rows: Sequence[Row],
        fronts: list[list[int]],
        capacity: int,
        relaxed: _Relaxed,
        work_max: int,
    ) -> None:
        self.capacity, self.relaxed, self.work = capacity, relaxed, work_max
        price, scale = relaxed.price, relaxed.scale
        bound = price * capacity
        self.scores = rows
        self.rows: list[ReducedRow] = []
        for row, front in zip(rows, fronts, strict=True):
            reduced, best = reduced_row(row, front, price, scale)
            bound += best
            self.rows.append(reduced)
        self.bound = bound
        self.gap = self._gap_of(relaxed.options)

    def _gap_of(self, options: list[int]) -> int:
        """By how much a solution falls short of the bound."""
        score = sum(row[k][1] for row, k in zip(self.scores, options, strict=True))
        return self.bound - self.relaxed.scale * score

    def _picked(self, options: list[int], *, exact: bool) -> Picked:
        gap = self._gap_of(options)
        core = [[k for _, _, k in row[: _count_within(row, gap)]] for row in self.rows]
        return Picked(options=options, exact=exact, core=core)

    def solve(self) -> Picked:
        """Widen the gap until a solution lies within it."""
        gap = self.gap // FIRST_SHARE
        while True:
            options = self._search(gap)
            if options is not None:
                return self._picked(options, exact=True)
            if self.work < 0:
                return self._picked(self.relaxed.options, exact=False)
            gap = min(self.gap, max(1, gap * WIDER))

    def _search(self, gap: int) -> list[int] | None:
        """The best solution that falls short of the bound by at most `gap`; None if none does.

        None too if the work was too much (`self.work` < 0).
        """
        cores = [row[: _count_within(row, gap)] for row in self.rows]
        order = sorted(range(len(cores)), key=lambda i: (len(cores[i]), i))
        least = sum(min(size for _, size, _ in core) for core in cores)
        most = sum(max(size for _, size, _ in core) for core in cores)
        states: dict[int, int] = {0: 0}  # size -> reduced cost
        ways: list[dict[int, tuple[int, int]]] = []
        for i in order:
            core = cores[i]
            least -= min(size for _, size, _ in core)
            most -= max(size for _, size, _ in core)
            states, way = self._extend(states, core, gap, least, most)
            ways.append(way)
            if not states or self.work < 0:
                return None
        price = self.relaxed.price
        size = min(states, key=lambda size: states[size] + price * (self.capacity - size))
        options = [0] * len(cores)
        for i, way in zip(reversed(order), reversed(ways), strict=True):
            size, options[i] = way[size]
        return options

    def _extend(
        self,
        states: dict[int, int],
        core: ReducedRow,
        gap: int,
        least: int,
        most: int,
    ) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
        """The states with one more row; what the rows after it take is between the last two."""
        if len(core) == 1:
            _, size, k = core[0]
            return (
                {used + size: cost for used, cost in states.items()},
                {used + size: (used, k) for used in states},
            )
        price, highest = self.relaxed.price, self.capacity - least
        reached: dict[int, int] = {}
        way: dict[int, tuple[int, int]] = {}
        for used, cost in states.items():
            for extra, size, k in core:
                total, then = cost + extra, used + size
                if total > gap:
                    break
                self.work -= 1
                if then > highest or total >= reached.get(then, gap + 1):
                    continue
                if total + price * (self.capacity - then - most) > gap:
                    continue
                reached[then] = total
                way[then] = (used, k)
            if self.work < 0:
                break
        return undominated(reached, price), way


def _count_within(row: ReducedRow, gap: int) -> int:
    return bisect_right(row, gap, key=lambda option: option[0])


def undominated(states: dict[int, int], price: int) -> dict[int, int]:
    """Without those that score no more than a smaller one."""
    kept: dict[int, int] = {}
    best: int | None = None
    for size in sorted(states):
        score = price * size - states[size]
        if best is None or score > best:
            best = score
            kept[size] = states[size]
    return kept
