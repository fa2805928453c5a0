"""Problems for the planner's tests: short constructors, and random ones."""

from __future__ import annotations

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
