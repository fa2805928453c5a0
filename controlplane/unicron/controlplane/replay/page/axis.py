"""Time from left to right, in percent of the width: to scale, but for stretches in which nothing
happened and that would leave no room for the rest. Those are cut short, and marked as such."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

#: A stretch longer than this part of all the others is cut short ...
_LONG: Final = 0.5
#: ... to this part of the width; so many may be.
_CUT_WIDTH: Final = 0.08
_CUTS_MAX: Final = 4
_TICKS: Final = 7
_SECOND: Final = 1_000_000_000
_DAY: Final = 86_400 * _SECOND
#: Milliseconds, then seconds, minutes and hours.
_ROUND: Final = (
    *(f * 10**p for p in range(6, 9) for f in (1, 2, 5)),
    *(s * _SECOND for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)),
    *(h * 3600 * _SECOND for h in (2, 3, 6, 12, 24)),
)
_TICK_ROOM: Final = 7.0


class Axis:
    """`times`: when something happened, ns, any order; at least one."""

    def __init__(self, times: Iterable[int]) -> None:
        stops = sorted(set(times))
        if len(stops) == 1:
            stops.append(stops[0] + 1)
        gaps = [b - a for a, b in pairwise(stops)]
        self._cut = _cut(gaps)
        room = 1 - _CUT_WIDTH * len(self._cut)
        scaled = sum(g for i, g in enumerate(gaps) if i not in self._cut)
        self._stops, self._x = stops, [0.0]
        self._step_ns = _nice(scaled / _TICKS)
        for index, gap in enumerate(gaps):
            width = _CUT_WIDTH if index in self._cut else room * gap / scaled
            self._x.append(self._x[-1] + 100 * width)

    @property
    def start_ns(self) -> int:
        return self._stops[0]

    @property
    def end_ns(self) -> int:
        return self._stops[-1]

    def at(self, time_ns: int) -> float:
        """Percent from the left; what lies outside is at the edge."""
        if time_ns >= self.end_ns:
            return 100.0
        index = bisect_right(self._stops, time_ns) - 1
        if index < 0:
            return 0.0
        left, right = self._stops[index], self._stops[index + 1]
        share = (time_ns - left) / (right - left)
        return self._x[index] + share * (self._x[index + 1] - self._x[index])

    def cuts(self) -> tuple[tuple[int, int], ...]:
        """The stretches that are cut short, from and to (ns)."""
        return tuple((self._stops[i], self._stops[i + 1]) for i in sorted(self._cut))

    def ticks(self, zero_ns: int) -> tuple[int, ...]:
        """Round times (ns), counted from `zero_ns`, far enough apart to be labelled; none in what
        is cut short."""
        found: list[int] = []
        for index, (left, right) in enumerate(pairwise(self._stops)):
            if index in self._cut:
                continue
            first = -((zero_ns - left) // self._step_ns)
            for n in range(first, (right - zero_ns) // self._step_ns + 1):
                time = zero_ns + n * self._step_ns
                if not found or self.at(time) - self.at(found[-1]) >= _TICK_ROOM:
                    found.append(time)
        return tuple(found)


def _cut(gaps: list[int]) -> set[int]:
    cut: set[int] = set()
    for index in sorted(range(len(gaps)), key=lambda i: (-gaps[i], i))[:_CUTS_MAX]:
        others = sum(g for i, g in enumerate(gaps) if i not in cut and i != index)
        if not others or gaps[index] <= _LONG * others:
            break
        cut.add(index)
    return cut


def _nice(length: float) -> int:
    """A round time of at least `length` ns, as people count it."""
    found = next((s for s in _ROUND if s >= length), None)
    return found if found is not None else _DAY * math.ceil(length / _DAY)
