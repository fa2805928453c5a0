"""Problems for the planner's tests: short constructors, random ones, and a brute-force oracle.

The oracle shares nothing with the planner but the data types: it tries every combination of
layouts and packs the groups by trial.
"""

from __future__ import annotations

import itertools
from functools import cache

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from unicron.planner.plan import Plan
from unicron.planner.problem import (
    Layout,
    LayoutOption,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
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


# --- the oracle ----------------------------------------------------------------------------------


def brute_force(base: PlanProblem) -> tuple[tuple[bool, ...], int, int]:
    """Minimums met by priority, value, and minus the tasks touched, of the best plan there is."""
    healthy = {n.node: set(n.devices) for n in base.nodes}
    order = sorted(
        base.tasks, key=lambda t: (-t.priority, t.current is None, -t.weight_milli, t.task)
    )
    best = None
    for combination in itertools.product(*(_ways(base, t, healthy) for t in order)):
        if not _fits(healthy, order, combination):
            continue
        met = tuple(
            way[0] is not None
            for t, way in zip(order, combination, strict=True)
            if t.min_devices > 0
        )
        value = sum(way[2] for way in combination)
        touched = sum(t.hit or not way[1] for t, way in zip(order, combination, strict=True))
        best = max(best or (met, value, -touched), (met, value, -touched))
    assert best is not None, "parking everybody always fits"
    return best


def _ways(base: PlanProblem, t: TaskDemand, healthy: dict[str, set[int]]):
    """(layout, stays, value) of everything that may be done with a task."""
    speed = {o.layout: o.throughput_gflops for o in t.options}
    lost = t.weight_milli * speed.get(t.current, 0) * t.transition_ms // base.expected_run_ms
    ways = [(None, t.current is None, 0 if t.current is None and not t.hit else -lost)]
    for each, gflops in speed.items():
        ways.append((each, False, t.weight_milli * gflops - lost))
        intact = each == t.current and all(
            slot.device in healthy.get(slot.node, ()) for slot in t.placement
        )
        if intact:
            price = lost if t.hit else 0
            ways.append((each, True, t.weight_milli * gflops - price))
    return ways


def _fits(healthy, tasks, combination) -> bool:
    room = {name: len(devices) for name, devices in healthy.items()}
    groups = []
    for t, (each, stays, _) in zip(tasks, combination, strict=True):
        if stays:
            for slot in t.placement:
                room[slot.node] -= 1
        elif each is not None:
            groups += [each.tp] * (each.pp * each.dp)
    return _packs(tuple(sorted(room.values())), tuple(sorted(groups)))


@cache
def _packs(room: tuple[int, ...], groups: tuple[int, ...]) -> bool:
    """Whether the groups can be put into the rooms, by trying."""
    if not groups:
        return True
    if sum(groups) > sum(room):
        return False
    for i in range(len(room)):
        if room[i] >= groups[-1]:
            left = sorted((*room[:i], room[i] - groups[-1], *room[i + 1 :]))
            if _packs(tuple(left), groups[:-1]):
                return True
    return False
