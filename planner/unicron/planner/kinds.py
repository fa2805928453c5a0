"""Which kind of device a task goes for that may use several.

Each limit gets a price per device, which rises while more devices are asked for than it allows and
falls otherwise; at the end each task takes the kind that serves it best at these prices. Floats are
used, but only sums, products and quotients in a fixed order, so that every machine finds the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from unicron.planner.knapsack import front_of, hull_of

ROUNDS = 80
# By how much an excess of so many per cent changes the price at first; in SLOW rounds half of it.
GAIN = 2.0
SLOW = 8.0


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What a task may do with one kind: devices and score of what is best at some price per device.

    `falls` are the slopes between them, negated. `limits` are the numbers of those that count it.
    """

    points: list[tuple[int, int]]
    falls: list[float]
    limits: tuple[int, ...]


def curve(choices: Sequence[tuple[int, int]], limits: tuple[int, ...]) -> Curve:
    """The curve through some of these choices, at least one."""
    points = [choices[k] for k in hull_of(choices, front_of(choices))]
    falls = [(low[1] - high[1]) / (high[0] - low[0]) for low, high in pairwise(points)]
    return Curve(points=points, falls=falls, limits=limits)


def decide_kinds(rows: Sequence[Mapping[str, Curve]], most: Sequence[int]) -> list[str]:
    """The kind for each row, "" for a row without any; `rows` give the curves by kind.

    Rows with one kind take part, since they use it up. `most` is what each limit allows.
    """
    steepest = max(
        (-min(each.falls, default=0.0) for row in rows for each in row.values()), default=0.0
    )
    prices = [steepest] * len(most)
    for turn in range(ROUNDS):
        used = [0] * len(most)
        for row in rows:
            kind, devices = _best(row, prices)
            for limit in row[kind].limits if kind in row else ():
                used[limit] += devices
        step = GAIN / (1.0 + turn / SLOW)
        for limit, allowed in enumerate(most):
            excess = (used[limit] - allowed) / max(allowed, 1)
            prices[limit] *= 1.0 + min(1.0, max(-0.9, step * excess))
    return [_best(row, prices)[0] for row in rows]


def _best(row: Mapping[str, Curve], prices: Sequence[float]) -> tuple[str, int]:
    """The kind that brings most at these prices, and how many devices of it."""
    best, found = 0.0, ("", 0)
    for kind, each in row.items():
        price = sum(prices[limit] for limit in each.limits)
        devices, score = each.points[bisect_left(each.falls, -price)]
        surplus = score - price * devices
        if surplus > best or not found[0]:
            best, found = surplus, (kind, devices)
    return found
