"""What can be done with each task, and what each of it is worth, with ties broken.

Ties are decided in this order: value (see `pricing.py`), fewest tasks touched, fewest devices taken
anew, fewest bytes moved, devices to the lowest task names, first layout in order of size. Each of
them is a sum over tasks, so one list of integers per choice, compared from the left after adding
up, says it all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from unicron.planner.pricing import (
    Ground,
    Standing,
    ground,
    has_floor,
    link_ms,
    running_milli,
    standing,
)
from unicron.planner.problem import Layout, LayoutOption, NodeSupply, PlanProblem, TaskDemand

TIERS = 6
# Bytes moved are counted in units that keep their sum over all tasks below this.
BYTES_MAX = 2**52

Shapes: TypeAlias = Counter[tuple[str, int]]  # nodes by their kind and number of devices
Rooms: TypeAlias = dict[str, int]  # devices by kind; "" is all kinds together


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be done with a task.

    `stays`: it keeps exactly the slots it holds, in their order (or stays parked); a hit task that
    stays restarts in place. `kind` is that of the option. `floored`: the task's floor is met.
    `tiers` is the list above; `waf` the weighted throughput without the price of the change.
    """

    layout: Layout | None
    stays: bool
    waf: int
    tiers: tuple[int, ...]
    kind: str = ""
    floored: bool = True
    devices: int = 0

    @property
    def tp(self) -> int:
        """Devices of one tensor-parallel group, 0 if parked."""
        return 0 if self.layout is None else self.layout.tp


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A problem prepared for the solvers: tasks by name, and what is worth doing with each.

    Choices that can't be part of a best plan are left out (see `_choices`), and so is what the
    cluster has no room for. The first choice of each task is to park it.

    `sizes` are the tensor parallel sizes on offer, ascending; each divides the next. `rooms` says
    for each of them how many devices its groups can use.

    `uniform`: a choice is worth its devices, wherever they are. Then a set of choices can be placed
    if and only if it takes no more than there is: groups of different sizes don't stand in each
    other's way, nobody avoids a node, and nobody takes any kind where others want a certain one.
    """

    problem: PlanProblem
    nodes: Ground
    tasks: tuple[TaskDemand, ...]
    standings: tuple[Standing, ...]
    choices: tuple[tuple[Choice, ...], ...]
    sizes: tuple[int, ...]
    rooms: dict[int, Rooms]
    uniform: bool


def board(problem: PlanProblem, nodes: Ground | None = None) -> Board:
    """Prepare a valid problem for the solvers."""
    nodes = nodes or ground(problem)
    tasks = tuple(sorted(problem.tasks, key=lambda task: task.task))
    standings = tuple(standing(task, nodes) for task in tasks)
    sizes = tuple(sorted({option.layout.tp for task in tasks for option in task.options})) or (1,)
    shapes = _shapes(problem.nodes)
    rooms = {size: _rooms(shapes, size) for size in sizes}
    uniform = _is_uniform(nodes, tasks, standings, sizes, shapes)
    unit = _bytes_unit(tasks)
    return Board(
        problem=problem,
        nodes=nodes,
        tasks=tasks,
        standings=standings,
        choices=tuple(
            _choices(
                _Scale(problem, task, now, rank, unit),
                _reach(nodes, task, rooms),
                movable=not uniform,
            )
            for rank, (task, now) in enumerate(zip(tasks, standings, strict=True))
        ),
        sizes=sizes,
        rooms=rooms,
        uniform=uniform,
    )


def _shapes(nodes: Iterable[NodeSupply]) -> Shapes:
    """The nodes that may be used: how many have so many healthy devices of a kind."""
    return Counter((node.kind, len(node.devices)) for node in nodes if not node.draining)


def count_rooms(nodes: Iterable[NodeSupply], size: int) -> Rooms:
    """Devices by kind that groups of this size can use, those of draining nodes left out."""
    return _rooms(_shapes(nodes), size)


def _rooms(shapes: Shapes, size: int) -> Rooms:
    rooms = {"": 0}
    for (kind, devices), count in shapes.items():
        usable = count * (devices // size * size)
        rooms[""] += usable
        if kind:
            rooms[kind] = rooms.get(kind, 0) + usable
    return rooms


def _usable_avoided(nodes: Ground, task: TaskDemand) -> list[str]:
    """Nodes that the task could use if it didn't avoid them."""
    return [name for name in task.avoid if nodes.devices.get(name) and name not in nodes.draining]


def _reach(nodes: Ground, task: TaskDemand, rooms: dict[int, Rooms]) -> dict[int, Rooms]:
    """The rooms without the nodes that the task avoids."""
    away = _usable_avoided(nodes, task)
    if not away:
        return rooms
    shapes = Counter((nodes.kind[name], len(nodes.devices[name])) for name in away)
    lost = {size: _rooms(shapes, size) for size in rooms}
    return {
        size: {kind: total - lost[size].get(kind, 0) for kind, total in row.items()}
        for size, row in rooms.items()
    }


def _is_uniform(
    nodes: Ground,
    tasks: Sequence[TaskDemand],
    standings: Sequence[Standing],
    sizes: Sequence[int],
    shapes: Shapes,
) -> bool:
    largest = sizes[-1]
    if len(sizes) > 1 and (
        any(devices % largest for _, devices in shapes)
        or any(now.settled and now.grain % largest for now in standings)
    ):
        return False
    if any(task.options and _usable_avoided(nodes, task) for task in tasks):
        return False
    wanted = {bool(option.kind) for task in tasks for option in task.options[:1]}
    return len(wanted) < 2 or len({kind for kind, devices in shapes if devices}) < 2


def _bytes_unit(tasks: Sequence[TaskDemand]) -> int:
    """The smallest power of two in which all bytes that could move are counted below the limit."""
    most = sum(
        max((option.layout.devices for option in task.options), default=0) * task.state_bytes
        for task in tasks
        if task.state_bytes
    )
    unit = 1
    while most // unit + len(tasks) >= BYTES_MAX:
        unit *= 2
    return unit


class _Scale:
    """What the choices of one task weigh."""

    def __init__(
        self, problem: PlanProblem, task: TaskDemand, now: Standing, rank: int, unit: int
    ) -> None:
        self.task, self.now, self.rank, self.unit = task, now, rank, unit
        self.run_ms = problem.expected_run_ms
        self.lost = running_milli(task)
        self.link_ms = link_ms(problem, task)
        old = task.current
        self.model = None if old is None else (old.tp, old.pp)
        self.kept = {**now.kept, "": now.keeps("")}

    def tiers(
        self, waf: int, devices: int, model: tuple[int, int], kind: str, index: int, same: bool
    ) -> tuple[int, ...]:
        """The tiers of a change to this layout; `same`: it is the one that the task runs."""
        taken = max(int(same), devices - self.kept.get(kind, 0))
        receiving = 0
        if self.model is not None and devices:
            receiving = taken if model == self.model else devices
        cost = 0
        if self.lost:
            alive = self.now.alive
            rounds = -(-receiving // alive) if alive else min(receiving, 1)
            cost = self.lost * (self.task.transition_ms + rounds * self.link_ms) // self.run_ms
        moved = -(-receiving * self.task.state_bytes // self.unit)
        return (waf - cost, -1, -max(0, taken), -moved, -self.rank * devices, -index)

    def resting(self, waf: int, devices: int, index: int) -> tuple[int, ...]:
        """The tiers if the task keeps what it has; a hit one restarts and pays for that."""
        cost = 0
        if self.task.hit:
            cost = self.lost * self.task.transition_ms // self.run_ms
        return (waf - cost, -int(self.task.hit), 0, 0, -self.rank * devices, -index)


def row_for(prepared: Board, i: int, task: TaskDemand, now: Standing) -> tuple[Choice, ...]:
    """The choices that task `i` of the board would have if it were this, and stood like this."""
    scale = _Scale(prepared.problem, task, now, i, _bytes_unit(prepared.tasks))
    reach = _reach(prepared.nodes, task, prepared.rooms)
    return _choices(scale, reach, movable=not prepared.uniform)


def _choices(scale: _Scale, reach: dict[int, Rooms], *, movable: bool) -> tuple[Choice, ...]:
    """Parked, then the layouts by size that can be part of a best plan.

    A running choice is left out if another one takes no more devices of the same kind, in groups no
    larger, and is worth at least as much. Parking is always there, since a floor may forbid the
    others, and so is staying, since it occupies particular slots. Moving with the same layout is
    worth a thought only where it makes room for others (`movable`); else staying is as good a
    reason to leave others out as any.
    """
    task, now = scale.task, scale.now
    parked = task.current is None
    floored = not has_floor(task)
    none = scale.resting(0, 0, 0) if parked else scale.tiers(0, 0, (0, 0), "", 0, False)
    found = [Choice(layout=None, stays=parked, waf=0, tiers=none, floored=floored)]
    fronts: dict[tuple[str, bool], dict[int, tuple[int, ...]]] = {}  # by tp, the best so far
    index = 0
    for devices, kind, tp, pp, _, option in sorted(map(_sorting, task.options)):
        if devices > reach[tp].get(kind, 0):
            continue
        same = kind == task.current_kind and option.layout == task.current
        here = same and now.settled
        waf = task.weight_milli * option.throughput_gflops
        floored = option.throughput_gflops >= task.min_gflops
        for stays in (True, False) if here and movable else (here,):
            index += 1
            if stays:
                tiers = scale.resting(waf, devices, index)
            else:
                tiers = scale.tiers(waf, devices, (tp, pp), kind, index, same)
                if _is_beaten(fronts, kind, floored, tp, tiers):
                    continue
            choice = Choice(
                layout=option.layout,
                stays=stays,
                waf=waf,
                tiers=tiers,
                kind=kind,
                floored=floored,
                devices=devices,
            )
            if found[-1].devices == devices and _replaces(choice, found[-1]):
                found.pop()
            found.append(choice)
            if not (stays and movable):
                front = fronts.setdefault((kind, floored), {})
                front[tp] = max(tiers, front.get(tp, tiers))
    return tuple(found)


def _is_beaten(
    fronts: dict[tuple[str, bool], dict[int, tuple[int, ...]]],
    kind: str,
    floored: bool,
    tp: int,
    tiers: tuple[int, ...],
) -> bool:
    """Whether one with as many devices or fewer is as good, and meets the floor if this does."""
    for met in (True,) if floored else (True, False):
        for size, worth in fronts.get((kind, met), {}).items():
            if size <= tp and worth >= tiers:
                return True
    return False


def _replaces(choice: Choice, last: Choice) -> bool:
    """Whether it takes exactly what the one before it takes, and is better."""
    return (
        not last.stays
        and last.layout is not None
        and (choice.devices, choice.kind, choice.tp, choice.floored)
        == (last.devices, last.kind, last.tp, last.floored)
        and choice.tiers > last.tiers
    )


def _sorting(option: LayoutOption) -> tuple[int, str, int, int, int, LayoutOption]:
    """Smallest first, then least tensor, pipeline and data parallel."""
    layout = option.layout
    tp, pp, dp = layout.tp, layout.pp, layout.dp
    return (tp * pp * dp, option.kind, tp, pp, dp, option)
