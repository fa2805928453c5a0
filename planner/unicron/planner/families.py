"""Many knapsacks that differ in a row or two and in the capacity, each as good as solved alone.

What takes time in a knapsack is to price all options at the relaxation's price, and to add row to
row. Any price gives a bound that holds, and one near the best gives a close one, so a neighbour's
price will do: it is taken once. And sums over the rows before and after any place don't depend on
the capacity: they are kept, and a knapsack that differs in one row joins them around it.

Reduced costs, gaps and the core are those of `knapsack.py`: whatever falls short of the bound by no
more than the gap is found, and the gap is widened until something is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from unicron.planner.knapsack import (
    ReducedRow,
    Row,
    front_of,
    reduced_row,
    relaxed_price,
    undominated,
)

#: The gap's first width, in thousandths of the price of the whole capacity, and how it grows.
_FIRST_SHARE = 1 << 16
_WIDER = 2
#: Additions of one search; beyond it the answer has to come from elsewhere.
WORK_MAX = 2_000_000

_Way = dict[int, tuple[int, int]]  # size -> size before, option


class _Sums(msgspec.Struct, gc=False):
    """What some rows add up to, within a gap: sizes ascending, the reduced cost of each, and how it
    was reached. No sum is there that is larger than another one and scores no more."""

    sizes: list[int]
    costs: list[int]
    way: _Way


class Family:
    """Rows that many knapsacks share."""

    def __init__(self, rows: Sequence[Row], capacity: int, like: Family | None = None) -> None:
        """`capacity`: of the knapsack in the middle, from which the price is taken. `like`: a
        family of much the same rows, to begin with its gap."""
        self._price, self._scale = relaxed_price(rows, capacity)
        self._cores = [self._priced(row) for row in rows]
        self._least = [min(size for _, size, _ in core) for core in self._cores]
        self._gap = max(1, self._price * capacity // _FIRST_SHARE)
        if like is not None and like._gap > 0:
            self._gap = max(1, like._gap * self._scale // like._scale)
        self._before: list[_Sums] = []  # of rows 0 to i - 1
        self._after: list[_Sums] = []  # of rows i to the last
        self._kept: tuple[int, ReducedRow, list[_Sums]] | None = None

    def _priced(self, row: Row) -> ReducedRow:
        return reduced_row(row, front_of(row), self._price, self._scale)[0]

    def solve(self, capacity: int, instead: Mapping[int, Row]) -> list[int] | None:
        """An option of each row, of those in `instead` for the rows that it names; None if nothing
        fits, or if it was too much work."""
        cores = {i: self._priced(row) for i, row in instead.items()}
        smallest = sum(self._least) + sum(
            min(size for _, size, _ in core) - self._least[i] for i, core in cores.items()
        )
        if smallest > capacity:
            return None
        while True:
            found = self._within(capacity, cores)
            if found is not None or self._gap < 0:
                return found
            self._widen()

    def _within(self, capacity: int, cores: Mapping[int, ReducedRow]) -> list[int] | None:
        """The best options, if they fall short of the bound by no more than the gap."""
        if not self._before:
            self._add_up()
        if self._gap < 0:
            return None
        if len(cores) < 2:
            i = next(iter(cores), len(self._cores) // 2)
            core = cores.get(i, self._cores[i] if self._cores else [(0, 0, 0)])
            joined = self._joined(self._before[i], core, self._after[i + 1], capacity)
            return None if joined is None else self._traced(i, *joined)
        *others, last = sorted(cores)
        first = others[0]
        detour = self._detour(cores, first, last)
        joined = self._joined(detour[-1], cores[last], self._after[last + 1], capacity)
        if joined is None:
            return None
        return self._traced(last, *joined, first=first, detour=detour)

    def _detour(self, cores: Mapping[int, ReducedRow], first: int, last: int) -> list[_Sums]:
        """Sums of the rows up to `first`, `first` + 1 and so on to the one before `last`, with the
        cores given. The newest is kept, since the next knapsack often has the same first one."""
        if len(cores) > 2:
            sums, found = self._before[first], []
            for i in range(first, last):
                sums = self._with(sums, cores.get(i, self._cores[i]))
                found.append(sums)
            return found
        if self._kept is None or self._kept[:2] != (first, cores[first]):
            self._kept = (first, cores[first], [self._with(self._before[first], cores[first])])
        kept = self._kept[2]
        for i in range(first + len(kept), last):
            kept.append(self._with(kept[-1], self._cores[i]))
        return kept[: last - first]

    def _widen(self) -> None:
        self._gap *= _WIDER
        self._before, self._after, self._kept = [], [], None

    def _add_up(self) -> None:
        nothing = _Sums(sizes=[0], costs=[0], way={})
        self._before = list(self._chain(nothing, self._cores))
        self._after = list(self._chain(nothing, self._cores[::-1]))[::-1]

    def _chain(self, start: _Sums, cores: Iterable[ReducedRow]) -> Iterable[_Sums]:
        work, sums = WORK_MAX, start
        yield sums
        for core in cores:
            sums = self._with(sums, core)
            work -= len(sums.sizes)
            if work < 0:
                self._gap = -1
            yield sums

    def _with(self, sums: _Sums, core: ReducedRow) -> _Sums:
        """The sums with one row more."""
        if len(core) == 1 or core[1][0] > self._gap:
            _, size, k = core[0]
            return _Sums(
                sizes=[used + size for used in sums.sizes],
                costs=sums.costs,
                way={used + size: (used, k) for used in sums.sizes},
            )
        reached: dict[int, int] = {}
        way: _Way = {}
        gap = self._gap
        for extra, size, k in core:
            room = gap - extra
            if room < 0:
                break
            for used, cost in zip(sums.sizes, sums.costs, strict=True):
                if cost <= room:
                    total, then = cost + extra, used + size
                    if total < reached.get(then, gap + 1):
                        reached[then] = total
                        way[then] = (used, k)
        kept = undominated(reached, self._price)
        return _Sums(sizes=list(kept), costs=list(kept.values()), way=way)

    def _joined(
        self, before: _Sums, core: ReducedRow, after: _Sums, capacity: int
    ) -> tuple[int, int, int] | None:
        """Size before, option, and size after of the best that fits; None if its shortfall is more
        than the gap."""
        price, gap = self._price, self._gap
        best = gap + 1
        found: tuple[int, int, int] | None = None
        sizes, costs = after.sizes, after.costs
        for extra, size, k in core:
            if extra > gap:
                break
            # Of those that fit the largest scores most, or it would not be there.
            j = bisect_right(sizes, capacity - size - before.sizes[0]) - 1
            for used, cost in zip(before.sizes, before.costs, strict=True):
                room = capacity - used - size
                while j >= 0 and sizes[j] > room:
                    j -= 1
                if j < 0:
                    break
                short = extra + cost + costs[j] + price * (room - sizes[j])
                if short < best:
                    best, found = short, (used, k, sizes[j])
        return found

    def _traced(
        self,
        i: int,
        size: int,
        option: int,
        rest: int,
        *,
        first: int = 0,
        detour: Sequence[_Sums] = (),
    ) -> list[int]:
        """The options of all rows; those from `first` to `i` - 1 on the detour, if there is one."""
        options = [0] * len(self._cores)
        options[i : i + 1] = [option]
        for j in range(i - 1, -1, -1):
            sums = detour[j - first] if detour and j >= first else self._before[j + 1]
            size, options[j] = sums.way[size]
        for j in range(i + 1, len(self._cores)):
            rest, options[j] = self._after[j].way[rest]
        return options
