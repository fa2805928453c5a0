"""What an allocation is worth, in integers: the objective of a plan that is already made.

The paper maximises, over tasks, `F(t, x') * D_running - 1 * F(t, x) * D_transition`, where
`F = w * T` and the 1 is 0 only for a task that keeps what it has and lost no worker. Everything is
divided by D_running here, so that a value stays a throughput: thousandths of a weighted GFLOP/s.
The division rounds the price down, by less than one such unit a task.

D_transition is `transition_ms` plus the time to move state. Whoever holds the task's state and is
alive sends it to one new device after the other, all senders at once, so that it takes
`ceil(receivers / senders)` times `ceil(1000 * state_bytes / link_bytes_per_s)` milliseconds; with
nobody alive all read from storage at once. *Receivers* are the devices that the new layout takes
beyond those the task can keep, and all of them if its tensor or pipeline parallel size changes. It
depends on the layout and the kind alone, not on where the planner puts it: it is the least that has
to be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

import msgspec

from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import Layout, PlanProblem, Slot, TaskDemand


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a problem by name: healthy devices, kind of device, and which are draining."""

    devices: dict[str, frozenset[int]]
    kind: dict[str, str]
    draining: frozenset[str]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a task holds now, counted.

    `alive`: devices that are healthy, so that state can be fetched from them. `kept`: of those, by
    kind of device, the ones that it may go on using. `intact`: all it holds is healthy, not to be
    avoided, and fits the layout it runs, which is among its options. `settled`: nothing of it is on
    a draining node either, so the task may stay as it is. `grain` divides how many it holds on
    each node.
    """

    alive: int
    kept: dict[str, int]
    intact: bool
    settled: bool
    grain: int

    def keeps(self, kind: str) -> int:
        """How many devices it can keep in a layout on devices of this kind ("": of any)."""
        return self.kept.get(kind, 0) if kind else sum(self.kept.values())


def ground(problem: PlanProblem) -> Ground:
    """The nodes of a valid problem, prepared for looking things up."""
    shared: dict[tuple[int, ...], frozenset[int]] = {}
    devices: dict[str, frozenset[int]] = {}
    for node in problem.nodes:
        healthy = shared.get(node.devices)
        if healthy is None:
            healthy = shared[node.devices] = frozenset(node.devices)
        devices[node.node] = healthy
    return Ground(
        devices=devices,
        kind={node.node: node.kind for node in problem.nodes},
        draining=frozenset(node.node for node in problem.nodes if node.draining),
    )


def healthy_slots(problem: PlanProblem) -> frozenset[Slot]:
    """Every device that is healthy."""
    return frozenset(
        Slot(node=node.node, device=device) for node in problem.nodes for device in node.devices
    )


def standing(task: TaskDemand, nodes: Ground) -> Standing:
    """Count what the task holds."""
    held: dict[str, list[int]] = {}
    for slot in task.placement:
        on_node = held.get(slot.node)
        if on_node is None:
            on_node = held[slot.node] = []
        on_node.append(slot.device)
    alive = fitting = lasting = 0
    kept: dict[str, int] = {}
    avoid = frozenset(task.avoid)
    for node, devices in held.items():
        healthy = nodes.devices.get(node)
        if not healthy:
            continue
        living, kind = len(healthy.intersection(devices)), nodes.kind[node]
        alive += living
        if node in avoid:
            continue
        right = task.current_kind in ("", kind)
        fitting += living if right else 0
        if node not in nodes.draining:
            kept[kind] = kept.get(kind, 0) + living
            lasting += living if right else 0
    size = len(task.placement)
    intact = (
        task.current is not None
        and fitting == size
        and throughput(task, task.current, task.current_kind) > 0
        and whole_groups(task.placement, task.current.tp)
    )
    return Standing(
        alive=alive,
        kept=kept,
        intact=intact,
        settled=intact and lasting == size,
        grain=gcd(*map(len, held.values())),
    )


def whole_groups(slots: Sequence[Slot], tp: int) -> bool:
    """Whether each run of `tp` slots is on one node."""
    return tp == 1 or all(
        len({slot.node for slot in slots[i : i + tp]}) == 1 for i in range(0, len(slots), tp)
    )


def throughput(task: TaskDemand, layout: Layout | None, kind: str = "") -> int:
    """T(t, x) in GFLOP/s; 0 for a parked task and for what isn't among its options."""
    if layout is None:
        return 0
    for option in task.options:
        if option.layout == layout and option.kind == kind:
            return option.throughput_gflops
    return 0


def receivers(task: TaskDemand, now: Standing, layout: Layout | None, kind: str) -> int:
    """How many devices have to be sent state, at least, before the task trains in this layout."""
    old = task.current
    if layout is None or old is None:
        return 0
    if (layout.tp, layout.pp) != (old.tp, old.pp):
        return layout.devices
    return max(0, layout.devices - now.keeps(kind))


def link_ms(problem: PlanProblem, task: TaskDemand) -> int:
    """How long one device takes to receive the task's state."""
    if not problem.link_bytes_per_s:
        return 0
    return -(-1000 * task.state_bytes // problem.link_bytes_per_s)


def transition_ms(problem: PlanProblem, task: TaskDemand, now: Standing, receiving: int) -> int:
    """D_transition of a change in which so many devices are sent state."""
    rounds = -(-receiving // now.alive) if now.alive else min(receiving, 1)
    return task.transition_ms + rounds * link_ms(problem, task)


def running_milli(task: TaskDemand) -> int:
    """F(t, x): what the task is worth as it runs now, in thousandths of a weighted GFLOP/s.

    Nothing if it doesn't run, or runs what isn't among its options.
    """
    return task.weight_milli * throughput(task, task.current, task.current_kind)


def is_changed(task: TaskDemand, assignment: Assignment) -> bool:
    """Whether the task has to change over: the indicator of the objective."""
    return task.hit or (assignment.layout, assignment.kind, assignment.slots) != (
        task.current,
        task.current_kind,
        task.placement,
    )


def price(
    problem: PlanProblem, task: TaskDemand, assignment: Assignment, nodes: Ground | None = None
) -> int:
    """What changing this task over to the assignment costs, spread over D_running; 0 if it stays.

    In thousandths of a weighted GFLOP/s. `nodes` saves preparing the nodes again.
    """
    if not is_changed(task, assignment):
        return 0
    lost = running_milli(task)
    if not lost:
        return 0
    now = standing(task, nodes or ground(problem))
    receiving = receivers(task, now, assignment.layout, assignment.kind)
    same = (assignment.layout, assignment.kind) == (task.current, task.current_kind)
    if same and assignment.slots != task.placement:
        receiving = max(receiving, 1)
    return lost * transition_ms(problem, task, now, receiving) // problem.expected_run_ms


def evaluate(
    problem: PlanProblem, assignments: Iterable[Assignment], nodes: Ground | None = None
) -> tuple[int, int]:
    """Value and WAF of an allocation, in thousandths of a weighted GFLOP/s."""
    nodes = nodes or ground(problem)
    by_name = {task.task: task for task in problem.tasks}
    value = waf = 0
    for assignment in assignments:
        task = by_name[assignment.task]
        runs = task.weight_milli * throughput(task, assignment.layout, assignment.kind)
        waf += runs
        value += runs - price(problem, task, assignment, nodes)
    return value, waf


def has_floor(task: TaskDemand) -> bool:
    """Whether the task must run, or run at least so fast."""
    return task.min_devices > 0 or task.min_gflops > 0


def meets_floor(task: TaskDemand, layout: Layout | None, gflops: int) -> bool:
    """Whether the task has what it must have, if it must have anything."""
    return not has_floor(task) or (layout is not None and gflops >= task.min_gflops)


def minimum_order(tasks: Sequence[TaskDemand]) -> list[int]:
    """Positions of the tasks, those first whose floor is kept longest.

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


def relaxed(tasks: Iterable[TaskDemand], given: Mapping[str, Assignment]) -> tuple[str, ...]:
    """Names of the tasks whose floor isn't met, ascending."""
    return tuple(
        sorted(
            task.task
            for task in tasks
            if not meets_floor(
                task,
                given[task.task].layout,
                throughput(task, given[task.task].layout, given[task.task].kind),
            )
        )
    )


def merit(
    problem: PlanProblem, plan: Plan, nodes: Ground | None = None
) -> tuple[tuple[bool, ...], int, int, int]:
    """For comparing plans, larger is better: floors met by priority, value, least disturbance.

    Before the floors comes whether the draining nodes are empty, if there are any.
    """
    nodes = nodes or ground(problem)
    given = {assignment.task: assignment for assignment in plan.assignments}
    touched = moved = 0
    for task in problem.tasks:
        assignment = given[task.task]
        if not is_changed(task, assignment):
            continue
        touched += 1
        held = {slot for slot in task.placement if slot.device in nodes.devices.get(slot.node, ())}
        moved += len(set(assignment.slots) - held)
    met = [
        problem.tasks[i].task not in plan.relaxed
        for i in minimum_order(problem.tasks)
        if has_floor(problem.tasks[i])
    ]
    if nodes.draining:
        met.insert(0, not _holds_draining(plan, nodes))
    return tuple(met), plan.value_gflops_milli, -touched, -moved


def _holds_draining(plan: Plan, nodes: Ground) -> bool:
    return any(
        slot.node in nodes.draining for assignment in plan.assignments for slot in assignment.slots
    )
