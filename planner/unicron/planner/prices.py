"""What a device is worth under each limit, and what that says about every choice.

At given prices per device each task takes what brings most after paying for it, on its own. What
they bring together, and what all devices cost, is a bound that no plan can exceed (the Lagrangian
dual). The lowest bound is looked for by following the excess of what is asked for over what there
is, in steps that assume the plan to be found a small share below the bound; if the bound won't
fall, the share is taken to be smaller.

A choice that falls short of the best one of its task by more than the bound exceeds a known plan
can't be part of a better plan. Prices are integers in the end, so that this is exact; on the way
they are floats, but only sums, products and quotients in a fixed order, so that every machine finds
the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from unicron.planner.knapsack import front_of, hull_of
from unicron.planner.limits import Limit
from unicron.planner.objective import Board

ROUNDS = 120
# How far below the bound a plan is assumed, and after how many rounds without progress nearer.
SHARE, PATIENCE, NEARER = 0.02, 5, 0.5


class Dual(msgspec.Struct, frozen=True, kw_only=True):
    """The lowest bound found, in thousandths of a weighted GFLOP/s, and what it says of choices.

    `short`: for each task by how much each of its choices falls short of the best. `kinds`: the
    kind of device that serves each task best ("" for one that does best to park).
    """

    bound: int
    short: list[dict[int, int]]
    kinds: list[str]

    def within(self, value: int) -> list[list[int]]:
        """The choices of each task that a plan worth `value` or more can contain."""
        slack = self.bound - value
        return [[k for k, each in row.items() if each <= slack] for row in self.short]


class _Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of one task that the same limits count (their numbers), to be had at one price.

    `points` are devices and value of those that are best at some price, `falls` the slopes between
    them, negated.
    """

    kind: str
    limits: tuple[int, ...]
    choices: list[int]
    points: list[tuple[int, int]]
    falls: list[float]


def dual(
    board: Board, limits: Sequence[Limit], rows: Sequence[Sequence[int]], target: int | None = None
) -> Dual:
    """The bound for plans of these choices under these limits; a plan of value `target` exists."""
    curves = [_curves(board, limits, i, row) for i, row in enumerate(rows)]
    prices = [round(price) for price in _descend(curves, [each.most for each in limits], target)]
    bound = sum(price * limit.most for price, limit in zip(prices, limits, strict=True))
    short, kinds = [], []
    for choices, some in zip(board.choices, curves, strict=True):
        worth: dict[int, int] = {}
        for one in some:
            each = sum(prices[limit] for limit in one.limits)
            for k in one.choices:
                worth[k] = choices[k].tiers[0] - each * choices[k].devices
        best = max(worth.values())
        bound += best
        short.append({k: best - worth[k] for k in sorted(worth)})
        kinds.append(next(choices[k].kind for k in worth if worth[k] == best))
    return Dual(bound=bound, short=short, kinds=kinds)


def _curves(board: Board, limits: Sequence[Limit], i: int, row: Sequence[int]) -> list[_Curve]:
    choices = board.choices[i]
    parked = [k for k in row if choices[k].layout is None]
    alike: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    counted: dict[tuple[str, int], tuple[int, ...]] = {}
    for k in row:
        choice = choices[k]
        if choice.layout is None:
            continue
        key = (choice.kind, choice.tp)
        if key not in counted:
            counted[key] = tuple(n for n, each in enumerate(limits) if each.counts(i, choice))
        alike.setdefault((choice.kind, counted[key]), []).append(k)
    if not alike:
        alike = {("", ()): []}
    found = []
    for (kind, numbers), own in alike.items():
        ks = [*parked, *own]
        every = [(choices[k].devices, choices[k].tiers[0]) for k in ks]
        points = [every[k] for k in hull_of(every, front_of(every))]
        falls = [(low[1] - high[1]) / (high[0] - low[0]) for low, high in pairwise(points)]
        found.append(_Curve(kind=kind, limits=numbers, choices=ks, points=points, falls=falls))
    return found


def _descend(
    curves: Sequence[Sequence[_Curve]], most: Sequence[int], target: int | None
) -> list[float]:
    """The prices with the lowest bound that was met."""
    steepest = max((-min(one.falls, default=0.0) for some in curves for one in some), default=0.0)
    prices = [0.0] * len(most)
    for some in curves:
        for one in some:
            for limit in one.limits[:1]:  # the pool; quotas cost nothing at first
                prices[limit] = steepest / 4
    best, lowest = prices, float("inf")
    share, waited = SHARE, 0
    for _ in range(ROUNDS):
        bound, used = _answer(curves, most, prices)
        waited += 1
        if bound < lowest:
            best, lowest, waited = prices, bound, 0
        elif waited >= PATIENCE:
            share, waited, prices = share * NEARER, 0, best
            bound, used = _answer(curves, most, prices)
        excess = [
            0 if price == 0.0 and asked < there else asked - there
            for price, asked, there in zip(prices, used, most, strict=True)
        ]
        square = sum(each * each for each in excess)
        if not square:
            break
        below = max(lowest - target, 1.0) if target is not None else share * abs(lowest)
        step = (bound - lowest + below * (share / SHARE if target is not None else 1.0)) / square
        prices = [max(0.0, price + step * each) for price, each in zip(prices, excess, strict=True)]
    return best


def _answer(
    curves: Sequence[Sequence[_Curve]], most: Sequence[int], prices: Sequence[float]
) -> tuple[float, list[int]]:
    """The bound at these prices, and how many devices are asked for under each limit."""
    used = [0] * len(most)
    bound = 0.0
    for price, there in zip(prices, most, strict=True):
        bound += price * there
    for some in curves:
        found: tuple[float, int, _Curve] | None = None
        for one in some:
            each = 0.0
            for limit in one.limits:
                each += prices[limit]
            devices, value = one.points[bisect_left(one.falls, -each)]
            worth = value - each * devices
            if found is None or worth > found[0]:
                found = (worth, devices, one)
        if found is not None:
            bound += found[0]
            for limit in found[2].limits:
                used[limit] += found[1]
    return bound, used
