"""Which kind of device a task goes for that may use several.

Each kind gets a price per device, which rises while the kind is asked for more than there is of it
and falls otherwise; at the end each task takes the kind that serves it best at these prices. Floats
are used, but only sums, products and quotients in a fixed order, so that every machine finds the
same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from unicron.planner.knapsack import front_of, hull_of

ROUNDS = 60

Points = Sequence[tuple[int, int]]  # devices and score


def decide_kinds(rows: Sequence[Mapping[str, Points]], rooms: Mapping[str, int]) -> list[str]:
    """The kind for each row, "" for a row without any; `rows` give the choices by kind.

    Rows with one kind take part, since they use it up. Doing nothing scores 0. `rooms` says how
    many devices there are of each kind.
    """
    curves = [{kind: _curve(points) for kind, points in row.items()} for row in rows]
    prices = dict.fromkeys(rooms, 0.0)
    for row in curves:
        for kind, curve in row.items():
            prices[kind] = max(prices[kind], -min(curve.falls, default=0.0))
    for turn in range(ROUNDS):
        used = dict.fromkeys(rooms, 0)
        for row in curves:
            kind, devices = _best(row, prices)
            used[kind] = used.get(kind, 0) + devices
        for kind, room in rooms.items():
            excess = (used[kind] - room) / max(room, 1)
            prices[kind] *= 1.0 + min(1.0, max(-1.0, excess)) / (2.0 + turn / 4)
    return [_best(row, prices)[0] for row in curves]


class _Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What is best of one kind at some price, from nothing on; `falls` are its slopes, negated."""

    points: list[tuple[int, int]]
    falls: list[float]


def _curve(choices: Points) -> _Curve:
    row = [(0, 0), *choices]
    points = [row[k] for k in hull_of(row, front_of(row))]
    falls = [(low[1] - high[1]) / (high[0] - low[0]) for low, high in pairwise(points)]
    return _Curve(points=points, falls=falls)


def _best(row: Mapping[str, _Curve], prices: Mapping[str, float]) -> tuple[str, int]:
    """The kind that brings most at these prices, and how many devices of it."""
    best, found = -1.0, ("", 0)
    for kind, curve in row.items():
        devices, score = curve.points[bisect_left(curve.falls, -prices[kind])]
        surplus = score - prices[kind] * devices
        if surplus > best:
            best, found = surplus, (kind, devices)
    return found
