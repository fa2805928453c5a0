"""The answer that is always there: shrink or park only the tasks that can't go on as they are.

No solver, no search over tasks: each hit task takes the best layout that its own surviving slots
allow, everybody else keeps exactly what it has. This is what is applied at once after a failure.
"""

from __future__ import annotations

from unicron.planner.assemble import finish
from unicron.planner.objective import can_stay, healthy_slots
from unicron.planner.placement import Group, surviving_groups
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import LayoutOption, PlanProblem, Slot, TaskDemand


def local_plan(problem: PlanProblem) -> Plan:
    """The local answer to a valid problem; it passes `check`.

    A task that isn't hit, but can't stay (a slot of it is gone, its layout is no longer offered),
    is treated as hit. Parked tasks stay parked.
    """
    healthy = healthy_slots(problem)
    return finish(problem, "local", (_answer(task, healthy) for task in problem.tasks))


def _answer(task: TaskDemand, healthy: frozenset[Slot]) -> Assignment:
    if task.current is None:
        return Assignment(task=task.task)
    if can_stay(task, healthy):
        # A hit task whose devices are all healthy restarts in place.
        return Assignment(task=task.task, layout=task.current, slots=task.placement)
    fitting = [
        (option, groups)
        for option in task.options
        if (groups := _groups(task, option, healthy)) is not None
    ]
    if not fitting:
        return Assignment(task=task.task)
    option, groups = max(fitting, key=lambda fit: _preference(task, fit[0]))
    slots = tuple(slot for group in groups for slot in group)
    return Assignment(task=task.task, layout=option.layout, slots=slots)


def _groups(task: TaskDemand, option: LayoutOption, healthy: frozenset[Slot]) -> list[Group] | None:
    """The first surviving groups that this option needs; None if there are too few."""
    needed = option.layout.devices // option.layout.tp
    groups = surviving_groups(task, option.layout.tp, healthy)[:needed]
    return groups if len(groups) == needed else None


def _preference(task: TaskDemand, option: LayoutOption) -> tuple[bool, int, int, int, int]:
    """Larger is better: same model parallelism first, since then nothing has to be rebuilt.

    Then the fastest; of equally fast ones the one that stops fewest workers; the rest is order.
    """
    layout, current = option.layout, task.current
    same = current is not None and (layout.tp, layout.pp) == (current.tp, current.pp)
    return (same, option.throughput_gflops, layout.devices, -layout.tp, -layout.pp)
