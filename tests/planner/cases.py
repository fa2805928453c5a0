"""Problems for the planner's tests: short constructors, random ones, and a brute-force oracle.

The oracle shares nothing with the planner but the data types: it tries every combination of
layouts and packs the groups by trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import cache

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import (
    Layout,
    LayoutOption,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
    TenantQuota,
)

# The same examples every time: a red test names the change that made it red.
QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def slots(*names: str) -> tuple[Slot, ...]:
    """`slots("n0/1", "n0/2-4")`: devices 1, 2, 3, 4 of node n0."""
    found = []
    for name in names:
        node, _, devices = name.partition("/")
        first, _, last = devices.partition("-")
        found += [Slot(node=node, device=d) for d in range(int(first), int(last or first) + 1)]
    return tuple(found)


def names(held: tuple[Slot, ...]) -> list[str]:
    return [f"{slot.node}/{slot.device}" for slot in held]


def node(name: str, devices: int, kind: str = "gpu") -> NodeSupply:
    return NodeSupply(node=name, kind=kind, devices=tuple(range(devices)))


def layout(dp: int, tp: int = 1, pp: int = 1) -> Layout:
    return Layout(tp=tp, pp=pp, dp=dp)


def linear(largest: int, gflops: int = 100, tp: int = 1) -> tuple[LayoutOption, ...]:
    """Options dp = 1 .. largest, `gflops` for each device."""
    return tuple(
        LayoutOption(layout=layout(dp, tp), throughput_gflops=gflops * dp * tp)
        for dp in range(1, largest + 1)
    )


def task(name: str, options: tuple[LayoutOption, ...], **fields: object) -> TaskDemand:
    values: dict[str, object] = {
        "task": name,
        "weight_milli": 1000,
        "min_devices": min((o.layout.devices for o in options), default=1),
        "max_devices": max((o.layout.devices for o in options), default=1),
        "options": options,
        **fields,
    }
    return msgspec.convert(values, TaskDemand)


def running(
    name: str, options: tuple[LayoutOption, ...], held: tuple[Slot, ...], **fields: object
) -> TaskDemand:
    """A task that runs on these slots with the first option of that size."""
    current = next(o.layout for o in options if o.layout.devices == len(held))
    return task(name, options, current=current, placement=held, **fields)


def problem(nodes: list[NodeSupply], tasks: list[TaskDemand], **fields: int) -> PlanProblem:
    return PlanProblem(
        computed_at=fields.get("computed_at", 42),
        nodes=tuple(nodes),
        tasks=tuple(tasks),
        expected_run_ms=fields.get("expected_run_ms", 1_000_000),
    )


def change(value, **fields: object):
    return msgspec.structs.replace(value, **fields)


def with_task(base: PlanProblem, name: str, **fields: object) -> PlanProblem:
    """The problem with some fields of one task changed."""
    return change(
        base,
        tasks=tuple(change(t, **fields) if t.task == name else t for t in base.tasks),
    )


def of(plan: Plan, name: str):
    return next(a for a in plan.assignments if a.task == name)


# --- random problems -----------------------------------------------------------------------------


@st.composite
def problems(draw, sizes: tuple[int, ...] = (1,), *, hits: bool = True, tasks_max: int = 3):
    """Small clusters that have lost something: dead nodes, dead devices, hit and parked tasks."""
    devices = 4
    fleet = [f"n{i}" for i in range(draw(st.sampled_from([4, 4, 3, 3, 2, 1, 0])))]
    free = {name: list(range(devices)) for name in fleet}
    tasks = [
        draw(_tasks(name, sizes, free, hits))
        for name in "abc"[: draw(st.sampled_from([tasks_max] * 4 + list(range(tasks_max))))]
    ]
    supply = []
    for name in fleet:
        healthy = draw(st.sampled_from([tuple(range(devices))] * 5 + [(0, 1, 3), (2, 3), (1,), ()]))
        if draw(st.sampled_from([True] * 5 + [False])):
            supply.append(NodeSupply(node=name, kind="gpu", devices=healthy))
    return PlanProblem(
        computed_at=draw(st.integers(0, 1000)),
        nodes=tuple(supply),
        tasks=tuple(draw(st.permutations(tasks))),
        expected_run_ms=draw(st.sampled_from([1_000, 50_000, 10_000_000])),
    )


@st.composite
def _tasks(draw, name: str, sizes: tuple[int, ...], free: dict[str, list[int]], hits: bool):
    every = [
        Layout(tp=tp, pp=pp, dp=dp)
        for tp in sizes
        for pp in (1, 2)
        for dp in range(1, 7)
        if tp * pp * dp <= 8
    ]
    fewest = draw(st.sampled_from([2, 2, 2, 1, 0]))
    chosen = draw(st.lists(st.sampled_from(every), min_size=fewest, max_size=5, unique=True))
    options = tuple(
        LayoutOption(layout=each, throughput_gflops=draw(st.integers(1, 12))) for each in chosen
    )
    smallest = min((each.devices for each in chosen), default=1)
    small = sorted(chosen, key=lambda each: each.devices)[:2]
    current = draw(st.sampled_from([None, *small, *small, *chosen, every[0]]))
    held = None if current is None else _hold(free, current)
    return TaskDemand(
        task=name,
        weight_milli=draw(st.sampled_from([1, 500, 1000, 1000, 2000])),
        min_devices=draw(st.sampled_from([0, 1, smallest])),
        max_devices=8,
        options=options,
        current=None if held is None else current,
        placement=held or (),
        hit=hits and draw(st.sampled_from([False, False, True])),
        transition_ms=draw(st.sampled_from([0, 500, 30_000])),
        priority=draw(st.integers(0, 1)),
    )


def _hold(free: dict[str, list[int]], current: Layout) -> tuple[Slot, ...] | None:
    """Take the first whole groups that are free; None, and nothing taken, if there are too few."""
    groups = [
        [Slot(node=name, device=d) for d in devices[i : i + current.tp]]
        for name, devices in free.items()
        for i in range(0, len(devices) - current.tp + 1, current.tp)
    ][: current.devices // current.tp]
    if len(groups) < current.devices // current.tp:
        return None
    taken = tuple(slot for group in groups for slot in group)
    for slot in taken:
        free[slot.node].remove(slot.device)
    return taken


@st.composite
def sided_problems(draw, sizes: tuple[int, ...] = (1,), *, hits: bool = True, tasks_max: int = 3):
    """With kinds, quotas, floors by speed, nodes avoided and draining, and state to move."""
    base = draw(problems(sizes, hits=hits, tasks_max=tasks_max))
    nodes = tuple(
        change(
            n,
            kind=draw(st.sampled_from(["new", "new", "old"])),
            draining=draw(st.sampled_from([False] * 5 + [True])),
        )
        for n in base.nodes
    )
    kinds = {n.node: n.kind for n in nodes}
    tasks = tuple(draw(_sided(t, kinds)) for t in base.tasks)
    quotas = []
    for tenant in ("x", "y"):
        mine = [t for t in tasks if t.tenant == tenant]
        named = all(o.kind for t in mine for o in t.options)
        for kind in ("", "new") if named else ("",):
            if draw(st.sampled_from([True, False])):
                most = draw(st.integers(0, 8))
                quotas.append(TenantQuota(tenant=tenant, kind=kind, max_devices=most))
    return change(
        base,
        nodes=nodes,
        tasks=tasks,
        quotas=tuple(quotas),
        link_bytes_per_s=draw(st.sampled_from([0, 1000])),
    )


@st.composite
def _sided(draw, t: TaskDemand, kinds: dict[str, str]):
    """One task with more to it."""
    fields: dict[str, object] = {
        "tenant": draw(st.sampled_from(["", "x", "x", "y"])),
        "state_bytes": draw(st.sampled_from([0, 100, 5000])),
        "min_gflops": draw(st.sampled_from([0, 0, 0, 3, 8])),
    }
    if draw(st.sampled_from([True, False])):
        names = draw(st.sampled_from([("new",), ("old",), ("new", "old"), ("new", "old")]))
        fields["options"] = tuple(
            change(o, kind=name, throughput_gflops=o.throughput_gflops + (name == "new"))
            for o in t.options
            for name in names
        )
        if t.current is not None:
            held = [kinds[s.node] for s in t.placement if s.node in kinds]
            fields["current_kind"] = (*held, names[0])[0]
    if kinds and draw(st.sampled_from([True, False, False])):
        fields["avoid"] = tuple(draw(st.sets(st.sampled_from(sorted(kinds)), max_size=2)))
    return change(t, **fields)


# --- the oracle ----------------------------------------------------------------------------------


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
