"""What the best plan comes to, found by trying everything.

It shares nothing with the planner but the data types: it tries every combination of layouts and
packs the groups by trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import cache

import msgspec

from tests.planner.cases import of
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import Layout, PlanProblem, TaskDemand


class Way(msgspec.Struct, frozen=True):
    """One thing to do with a task, and what the objective says of it."""

    layout: Layout | None
    kind: str
    stays: bool
    met: bool
    value: int
    touched: bool
    moved: int
    moved_bytes: int


#: Floors met by their order (before them whether all draining nodes are empty, if there are any),
#: value, and minus the tasks touched, devices taken anew, bytes moved.
Rank = tuple[tuple[bool, ...], int, int, int, int]


def brute_force(base: PlanProblem) -> Rank:
    """What the best plan there is comes to."""
    order = in_order(base)
    best: Rank | None = None
    for combination in itertools.product(*(ways(base, t) for t in order)):
        if _within_quotas(base, order, combination) and _fits(base, order, combination):
            found = rank(base, order, combination)
            best = found if best is None else max(best, found)
    assert best is not None, "parking everybody always fits"
    return best


def rank_of(base: PlanProblem, plan: Plan) -> Rank:
    """What this plan comes to."""
    order = in_order(base)
    return rank(base, order, [_way_of(base, t, of(plan, t.task)) for t in order])


def in_order(base: PlanProblem) -> list[TaskDemand]:
    """Whose floor is kept longest comes first."""
    return sorted(
        base.tasks, key=lambda t: (-t.priority, t.current is None, -t.weight_milli, t.task)
    )


def _way_of(base: PlanProblem, t: TaskDemand, given: Assignment) -> Way:
    stays = (given.layout, given.kind, given.slots) == (t.current, t.current_kind, t.placement)
    return _way(base, t, given.layout, given.kind, stays=stays)


def rank(base: PlanProblem, order: list[TaskDemand], combination: Iterable[Way]) -> Rank:
    """What these ways come to, one for each task in `order`."""
    combination = list(combination)
    met = tuple(
        way.met
        for t, way in zip(order, combination, strict=True)
        if t.min_devices > 0 or t.min_gflops > 0
    )
    if any(n.draining for n in base.nodes):
        left = {n.node for n in base.nodes if n.draining}
        stuck = any(
            way.stays and slot.node in left
            for t, way in zip(order, combination, strict=True)
            for slot in t.placement
        )
        met = (not stuck, *met)
    return (
        met,
        sum(way.value for way in combination),
        -sum(way.touched for way in combination),
        -sum(way.moved for way in combination),
        -sum(way.moved_bytes for way in combination),
    )


def ways(base: PlanProblem, t: TaskDemand) -> list[Way]:
    """Everything that may be done with a task."""
    nodes = {n.node: n for n in base.nodes}
    found = [_way(base, t, None, "", stays=t.current is None)]
    for option in t.options:
        found.append(_way(base, t, option.layout, option.kind, stays=False))
        same = (option.layout, option.kind) == (t.current, t.current_kind)
        if same and all(
            slot.node in nodes
            and slot.device in nodes[slot.node].devices
            and not nodes[slot.node].draining
            and slot.node not in t.avoid
            and option.kind in ("", nodes[slot.node].kind)
            for slot in t.placement
        ):
            found.append(_way(base, t, option.layout, option.kind, stays=True))
    return found


def _way(base: PlanProblem, t: TaskDemand, new: Layout | None, kind: str, *, stays: bool) -> Way:
    speed = {(o.layout, o.kind): o.throughput_gflops for o in t.options}
    gflops = speed.get((new, kind), 0)
    nodes = {n.node: n for n in base.nodes}
    alive = [s for s in t.placement if s.node in nodes and s.device in nodes[s.node].devices]
    kept = [
        s
        for s in alive
        if not nodes[s.node].draining and s.node not in t.avoid and kind in ("", nodes[s.node].kind)
    ]
    size = 0 if new is None else new.devices
    anew = 0 if stays else max(0, size - len(kept))
    same = (new, kind) == (t.current, t.current_kind)
    if same and size and not stays:
        anew = max(anew, 1)
    receiving = 0
    if t.current is not None and new is not None and not stays:
        receiving = anew if (new.tp, new.pp) == (t.current.tp, t.current.pp) else size
    touched = t.hit or not stays
    cost = 0
    if touched:
        each = (
            math.ceil(1000 * t.state_bytes / base.link_bytes_per_s) if base.link_bytes_per_s else 0
        )
        turns = math.ceil(receiving / len(alive)) if alive else min(receiving, 1)
        lost = t.weight_milli * speed.get((t.current, t.current_kind), 0)
        cost = lost * (t.transition_ms + turns * each) // base.expected_run_ms
    floor = t.min_devices > 0 or t.min_gflops > 0
    return Way(
        layout=new,
        kind=kind,
        stays=stays,
        met=not floor or (new is not None and gflops >= t.min_gflops),
        value=t.weight_milli * gflops - cost,
        touched=touched,
        moved=anew,
        moved_bytes=receiving * t.state_bytes,
    )


def _within_quotas(base: PlanProblem, order: list[TaskDemand], combination) -> bool:
    return all(
        sum(
            way.layout.devices
            for t, way in zip(order, combination, strict=True)
            if way.layout and t.tenant == quota.tenant and quota.kind in ("", way.kind)
        )
        <= quota.max_devices
        for quota in base.quotas
    )


def _fits(base: PlanProblem, order: list[TaskDemand], combination) -> bool:
    room = {n.node: 0 if n.draining else len(n.devices) for n in base.nodes}
    groups = []
    for t, way in zip(order, combination, strict=True):
        if way.stays:
            for slot in t.placement:
                room[slot.node] -= 1
        elif way.layout is not None:
            able = tuple(
                i
                for i, n in enumerate(base.nodes)
                if n.node not in t.avoid and way.kind in ("", n.kind)
            )
            groups += [(way.layout.tp, able)] * (way.layout.pp * way.layout.dp)
    return _packs(tuple(room.values()), tuple(sorted(groups)))


@cache
def _packs(room: tuple[int, ...], groups: tuple[tuple[int, tuple[int, ...]], ...]) -> bool:
    """Whether the groups can be put into the rooms that they may use, by trying."""
    if not groups:
        return True
    if sum(size for size, _ in groups) > sum(room):
        return False
    size, able = groups[-1]
    return any(
        room[i] >= size and _packs((*room[:i], room[i] - size, *room[i + 1 :]), groups[:-1])
        for i in able
    )
