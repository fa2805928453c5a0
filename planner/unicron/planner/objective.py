"""What a choice is worth: the objective for several tasks, in integers, with its ties broken.

The paper maximises, over tasks, `F(t, x') * D_running - 1 * F(t, x) * D_transition`, where
`F = w * T` and the 1 is 0 only for a task that keeps what it has and lost no worker. Everything is
divided by D_running here, so that a value stays a throughput: thousandths of a weighted GFLOP/s.
The division rounds the price down, by less than one such unit a task.

Ties are decided in this order: value, fewest tasks touched, fewest devices taken anew, devices to
the lowest task names, first layout in order of size. Each of them is a sum over tasks, so one list
of integers per choice, compared from the left after adding up, says it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

import msgspec

from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import Layout, PlanProblem, Slot, TaskDemand
from unicron.planner.validation import EXACT_MAX

TIERS = 5


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be done with a task.

    `stays`: it keeps exactly the slots it holds, in their order (or stays parked); a hit task that
    stays restarts in place. `tiers` is the
    list above; `waf` the weighted throughput without the price of the change.
    """

    layout: Layout | None
    stays: bool
    waf: int
    tiers: tuple[int, ...]

    @property
    def devices(self) -> int:
        """How many devices it takes."""
        return 0 if self.layout is None else self.layout.devices

    @property
    def tp(self) -> int:
        """Devices of one tensor-parallel group, 0 if parked."""
        return 0 if self.layout is None else self.layout.tp


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A problem prepared for the solvers: tasks by name, and what can be done with each.

    `sizes` are the tensor parallel sizes on offer, ascending; each divides the next. `capacity` is
    how many devices groups of the smallest size can use: with one size only, a set of choices can
    be placed if and only if it takes no more than that, since tasks that stay hold whole groups.
    """

    problem: PlanProblem
    tasks: tuple[TaskDemand, ...]
    choices: tuple[tuple[Choice, ...], ...]
    sizes: tuple[int, ...]
    capacity: int

    @property
    def countable(self) -> bool:
        """Whether counting devices suffices, so that the dynamic programme is exact."""
        return len(self.sizes) <= 1


def healthy_slots(problem: PlanProblem) -> frozenset[Slot]:
    """Every device that can be used."""
    return frozenset(
        Slot(node=node.node, device=device) for node in problem.nodes for device in node.devices
    )


def throughput(task: TaskDemand, layout: Layout | None) -> int:
    """T(t, x) in GFLOP/s; 0 for a parked task and for a layout that isn't among its options."""
    for option in task.options:
        if option.layout == layout:
            return option.throughput_gflops
    return 0


def price(problem: PlanProblem, task: TaskDemand) -> int:
    """What changing this task over costs, spread over D_running (thousandths of weighted GFLOP/s).

    A task that doesn't run, or runs something outside its limits, has nothing to lose (F = 0).
    """
    lost = task.weight_milli * throughput(task, task.current)
    return lost * task.transition_ms // problem.expected_run_ms


def can_stay(task: TaskDemand, healthy: frozenset[Slot]) -> bool:
    """Whether a running task may go on with what it holds, as far as devices and limits go."""
    if task.current is None or throughput(task, task.current) == 0:
        return False
    return all(slot in healthy for slot in task.placement) and whole_groups(
        task.placement, task.current.tp
    )


def whole_groups(slots: Sequence[Slot], tp: int) -> bool:
    """Whether each run of `tp` slots is on one node."""
    return all(
        len({slot.node for slot in slots[i : i + tp]}) == 1 for i in range(0, len(slots), tp)
    )


def board(problem: PlanProblem) -> Board:
    """Prepare a valid problem for the solvers."""
    healthy = healthy_slots(problem)
    tasks = tuple(sorted(problem.tasks, key=lambda task: task.task))
    sizes = tuple(sorted({option.layout.tp for task in tasks for option in task.options}))
    unit = sizes[0] if sizes else 1
    return Board(
        problem=problem,
        tasks=tasks,
        choices=tuple(
            _choices(problem, task, rank, healthy, movable=len(sizes) > 1)
            for rank, task in enumerate(tasks)
        ),
        sizes=sizes,
        capacity=sum(len(node.devices) // unit * unit for node in problem.nodes),
    )


def _choices(
    problem: PlanProblem, task: TaskDemand, rank: int, healthy: frozenset[Slot], *, movable: bool
) -> tuple[Choice, ...]:
    """Parked, then the layouts by size; staying comes just before moving with the same layout.

    Moving with the same layout is worth a thought only where it makes room for a larger tensor
    parallel group (`movable`); else it only costs.
    """
    cost = price(problem, task)
    surviving = sum(slot in healthy for slot in task.placement)
    stay = can_stay(task, healthy)
    found: list[Choice] = []

    def add(layout: Layout | None, gflops: int, *, stays: bool) -> None:
        waf = task.weight_milli * gflops
        changed = task.hit or not stays
        devices = 0 if layout is None else layout.devices
        tiers = (
            waf - (cost if changed else 0),
            -int(changed),
            0 if stays else -max(0, devices - surviving),
            -rank * devices,
            -len(found),
        )
        found.append(Choice(layout=layout, stays=stays, waf=waf, tiers=tiers))

    add(None, 0, stays=task.current is None)
    for option in sorted(task.options, key=lambda option: layout_order(option.layout)):
        here = stay and option.layout == task.current
        if here:
            add(option.layout, option.throughput_gflops, stays=True)
        if not here or movable:
            add(option.layout, option.throughput_gflops, stays=False)
    return tuple(found)


def layout_order(layout: Layout) -> tuple[int, int, int, int]:
    """Smallest first, then least tensor, pipeline and data parallel."""
    return (layout.devices, layout.tp, layout.pp, layout.dp)


def prune(choices: tuple[Choice, ...], keep: Iterable[int] = ()) -> tuple[int, ...]:
    """Indexes of the choices that can be part of a best plan, and those in `keep`.

    A running choice goes if another one takes no more devices, in groups no larger, and is worth
    at least as much. Parked choices and the one that stays are never dropped: the first because a
    minimum may forbid the others, the second because it occupies particular slots.
    """
    kept, front = set(keep), list[tuple[int, tuple[int, ...]]]()
    order = sorted(
        range(len(choices)),
        key=lambda k: (choices[k].devices, choices[k].tp, [-tier for tier in choices[k].tiers]),
    )
    for k in order:
        choice = choices[k]
        if choice.layout is None or choice.stays:
            kept.add(k)
            continue
        # Smaller ones come first, so only the group size and the worth are left to compare.
        if not any(tp <= choice.tp and tiers >= choice.tiers for tp, tiers in front):
            front.append((choice.tp, choice.tiers))
            kept.add(k)
    return tuple(sorted(kept))


def packed(board: Board, first: int, last: int) -> tuple[list[list[int]], int]:
    """Tiers `first` to `last - 1` of every choice as one integer, and a bound of their sum.

    Packed sums compare as the lists of sums do: each tier is scaled past all that the lower ones
    can add up to. Python's integers don't overflow; who needs a limit looks at the bound.
    """
    scores = [[0] * len(choices) for choices in board.choices]
    scale, bound = 1, 0
    for tier in reversed(range(first, last)):
        reach = 0
        for row, choices in zip(scores, board.choices, strict=True):
            for k, choice in enumerate(choices):
                row[k] += choice.tiers[tier] * scale
            reach += max(abs(choice.tiers[tier]) for choice in choices)
        bound += reach * scale
        scale *= 2 * reach + 1
    return scores, bound


def stages(board: Board) -> tuple[tuple[int, int], ...]:
    """The tiers in as few groups as keep every packed sum below 2**53, first group first.

    Small clusters need one group. `validate` keeps each tier alone below the limit, so this ends.
    """
    groups: list[tuple[int, int]] = []
    first = 0
    while first < TIERS:
        last = TIERS
        while packed(board, first, last)[1] >= EXACT_MAX:
            last -= 1
            assert last > first, "one tier alone leaves the exact range; validate should refuse it"
        groups.append((first, last))
        first = last
    return tuple(groups)


def unit_devices(board: Board) -> int:
    """The largest number that divides the size of every choice."""
    return gcd(*(choice.devices for row in board.choices for choice in row)) or 1


def evaluate(problem: PlanProblem, assignments: Iterable[Assignment]) -> tuple[int, int]:
    """Value and WAF of an allocation, in thousandths of a weighted GFLOP/s."""
    by_name = {task.task: task for task in problem.tasks}
    value = waf = 0
    for assignment in assignments:
        task = by_name[assignment.task]
        runs = task.weight_milli * throughput(task, assignment.layout)
        waf += runs
        value += runs - (price(problem, task) if is_changed(task, assignment) else 0)
    return value, waf


def is_changed(task: TaskDemand, assignment: Assignment) -> bool:
    """Whether the task has to change over: the indicator of the objective."""
    return task.hit or (assignment.layout, assignment.slots) != (task.current, task.placement)


def minimum_order(tasks: Sequence[TaskDemand]) -> list[int]:
    """Positions of the tasks, those first whose minimum is kept longest.

    Highest priority, then those that run now, then the heaviest, then the lowest name.
    """
    return sorted(
        range(len(tasks)),
        key=lambda i: (
            -tasks[i].priority,
            tasks[i].current is None,
            -tasks[i].weight_milli,
            tasks[i].task,
        ),
    )


def merit(problem: PlanProblem, plan: Plan) -> tuple[tuple[bool, ...], int, int, int]:
    """For comparing plans, larger is better: minimums met by priority, value, least disturbance."""
    healthy = healthy_slots(problem)
    given = {assignment.task: assignment for assignment in plan.assignments}
    touched = moved = 0
    for task in problem.tasks:
        assignment = given[task.task]
        touched += is_changed(task, assignment)
        moved += len(set(assignment.slots) - (set(task.placement) & healthy))
    order = minimum_order(problem.tasks)
    met = tuple(
        given[problem.tasks[i].task].layout is not None
        for i in order
        if problem.tasks[i].min_devices > 0
    )
    return met, plan.value_gflops_milli, -touched, -moved
