"""The answer that is always there: shrink or park only the tasks that can't go on as they are.

No solver, no search over tasks: each hit task takes the best layout that its own surviving slots
allow, everybody else keeps exactly what it has. This is what is applied at once after a failure.

Emptying a draining node isn't urgent: it is left to the other methods, and until then its devices
are as good as any to those who hold them.
"""

from __future__ import annotations

from unicron.planner.assemble import finish
from unicron.planner.placement import kept_slots
from unicron.planner.plan import Assignment, Plan
from unicron.planner.pricing import Ground, ground, meets_floor, minimum_order, standing
from unicron.planner.problem import LayoutOption, PlanProblem, Slot, TaskDemand


def local_plan(problem: PlanProblem) -> Plan:
    """The local answer to a valid problem; it passes `check`.

    A task that isn't hit, but can't stay (a slot of it is gone or on a node it is to avoid, its
    layout is no longer offered, its tenant's quota has shrunk), is treated as hit. Parked tasks
    stay parked.
    """
    return local_answer(problem, ground(problem))


def local_answer(problem: PlanProblem, nodes: Ground, stamp: str = "") -> Plan:
    """The same for nodes that are prepared, and a digest that is known."""
    quotas = _Quotas(problem)
    assignments = [_answer(problem.tasks[i], nodes, quotas) for i in minimum_order(problem.tasks)]
    return finish(problem, "local", assignments, nodes=nodes, stamp=stamp)


class _Quotas:
    """What each tenant may still hold, while its tasks are asked, the most important first."""

    def __init__(self, problem: PlanProblem) -> None:
        self.left: dict[str, dict[str, int]] = {}
        for quota in problem.quotas:
            self.left.setdefault(quota.tenant, {})[quota.kind] = quota.max_devices

    def allow(self, task: TaskDemand, kind: str, devices: int) -> bool:
        """Whether that many devices of that kind are within what is left."""
        left = self.left.get(task.tenant, {})
        return all(devices <= left[which] for which in {"", kind} & left.keys())

    def take(self, task: TaskDemand, assignment: Assignment) -> Assignment:
        """Count it."""
        left = self.left.get(task.tenant, {})
        for which in {"", assignment.kind} & left.keys():
            left[which] -= len(assignment.slots)
        return assignment


def _answer(task: TaskDemand, nodes: Ground, quotas: _Quotas) -> Assignment:
    if task.current is None:
        return Assignment(task=task.task)
    name, held, kind = task.task, task.placement, task.current_kind
    now = standing(task, nodes)
    if now.intact and quotas.allow(task, kind, len(held)):
        # A hit task whose devices are all healthy restarts in place.
        stays = Assignment(task=name, layout=task.current, kind=kind, slots=held)
        return quotas.take(task, stays)
    # Best first: to find what an option keeps takes a look at all that the task holds.
    for option in sorted(task.options, key=lambda each: _preference(task, each), reverse=True):
        size = option.layout.devices
        if size > now.alive or not quotas.allow(task, option.kind, size):
            continue
        slots = _slots(task, option, nodes)
        if slots is not None:
            shrunk = Assignment(task=name, layout=option.layout, kind=option.kind, slots=slots)
            return quotas.take(task, shrunk)
    return Assignment(task=name)


def _slots(task: TaskDemand, option: LayoutOption, nodes: Ground) -> tuple[Slot, ...] | None:
    """What this option needs of what the task holds, in rank order; None if that is too little."""
    return kept_slots(
        task, option.layout, lambda slot: _serves(slot, option.kind, task.avoid, nodes)
    )


def _serves(slot: Slot, kind: str, avoid: tuple[str, ...], nodes: Ground) -> bool:
    return (
        slot.device in nodes.devices.get(slot.node, ())
        and slot.node not in avoid
        and kind in ("", nodes.kind[slot.node])
    )


def _preference(task: TaskDemand, option: LayoutOption) -> tuple[bool, bool, int, int, int, int]:
    """Larger is better: its floor met, then the same model parallelism, so that nothing is rebuilt.

    Then the fastest; of equally fast ones the one that stops fewest workers; the rest is order.
    """
    layout, current, gflops = option.layout, task.current, option.throughput_gflops
    same = current is not None and (layout.tp, layout.pp) == (current.tp, current.pp)
    met = meets_floor(task, layout, gflops)
    return (met, same, gflops, layout.devices, -layout.tp, -layout.pp)
