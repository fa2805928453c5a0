"""Why this plan: what changes, what that is worth, what bound it, and what the next best was.

For the engineer who asks the morning after, so it tells what the objective saw, in its own units:
weighted GFLOP/s. The figures come as data too (`explain_data`), all integers.
"""

from __future__ import annotations

from unicron.planner.dynamic import dynamic_plan
from unicron.planner.local import local_plan
from unicron.planner.plan import Assignment, Plan
from unicron.planner.pricing import (
    healthy_slots,
    is_changed,
    price,
    running_milli,
    throughput,
)
from unicron.planner.problem import Layout, PlanProblem, Slot, TaskDemand

Data = dict[str, object]


def explain(problem: PlanProblem, plan: Plan) -> tuple[str, ...]:
    """A few lines for people; the plan must pass `check` for the problem."""
    healthy = healthy_slots(problem)
    demands = {task.task: task for task in problem.tasks}
    before = sum(map(running_milli, problem.tasks))
    head = (
        f"plan by {plan.source} at sequence {plan.computed_at}: weighted throughput "
        f"{_gflops(before)} -> {_gflops(plan.waf_milli)} GFLOP/s, changes cost "
        f"{_gflops(plan.waf_milli - plan.value_gflops_milli)}"
    )
    lines = [head]
    lines += [
        _task_line(problem, demands[assignment.task], assignment, healthy)
        for assignment in plan.assignments
    ]
    lines.append(_bound(problem, plan))
    other, loss = _runner_up(problem, plan)
    if other is None:
        lines.append("runner-up: none, the local answer and the dynamic programme agree")
    else:
        lines.append(_runner_up_line(plan, other, loss))
    return tuple(lines)


def explain_data(problem: PlanProblem, plan: Plan) -> Data:
    """The same as `explain`, as integers and names (`*_milli`: thousandths of weighted GFLOP/s)."""
    healthy = healthy_slots(problem)
    demands = {task.task: task for task in problem.tasks}
    other, loss = _runner_up(problem, plan)
    return {
        "source": plan.source,
        "computed_at": plan.computed_at,
        "waf_before_milli": sum(map(running_milli, problem.tasks)),
        "waf_after_milli": plan.waf_milli,
        "change_cost_milli": plan.waf_milli - plan.value_gflops_milli,
        "devices_healthy": len(healthy),
        "devices_used": sum(len(assignment.slots) for assignment in plan.assignments),
        "bound": _bound(problem, plan),
        "relaxed": list(plan.relaxed),
        "tasks": [
            _task_data(problem, demands[assignment.task], assignment, healthy)
            for assignment in plan.assignments
        ],
        "runner_up": None
        if other is None
        else {
            "source": other.source,
            "waf_milli": other.waf_milli,
            "value_milli": other.value_gflops_milli,
            "loss_milli": loss,
            "relaxed": list(other.relaxed),
        },
    }


def _task_data(
    problem: PlanProblem, task: TaskDemand, assignment: Assignment, healthy: frozenset[Slot]
) -> Data:
    held, given = set(task.placement), set(assignment.slots)
    changed = is_changed(task, assignment)
    return {
        "task": task.task,
        "hit": task.hit,
        "changed": changed,
        "layout_before": _layout(task.current),
        "layout_after": _layout(assignment.layout),
        "devices_before": len(held),
        "devices_after": len(given),
        "kept": len(held & given),
        "gained": len(given - held),
        "lost": len(held - healthy),
        "released": len((held & healthy) - given),
        "cost_milli": price(problem, task, assignment) if changed else 0,
        "waf_before_milli": running_milli(task),
        "waf_after_milli": task.weight_milli * throughput(task, assignment.layout, assignment.kind),
    }


def _task_line(
    problem: PlanProblem, task: TaskDemand, assignment: Assignment, healthy: frozenset[Slot]
) -> str:
    if not is_changed(task, assignment):
        if assignment.layout is None:
            return f"{task.task}: stays parked"
        return f"{task.task}: goes on as it is, {_layout(assignment.layout)}"
    data = _task_data(problem, task, assignment, healthy)
    parts = [
        f"{data[word]} {word}" for word in ("kept", "gained", "lost", "released") if data[word]
    ]
    devices = f" (devices: {', '.join(parts)})" if parts else ""
    cause = "hit, " if task.hit else ""
    cost = price(problem, task, assignment)
    after = task.weight_milli * throughput(task, assignment.layout, assignment.kind)
    before = running_milli(task)
    return (
        f"{task.task}: {cause}{_layout(task.current)} -> {_layout(assignment.layout)}{devices}, "
        f"{_gflops(before)} -> {_gflops(after)} GFLOP/s, change costs {_gflops(cost)}"
    )


def _bound(problem: PlanProblem, plan: Plan) -> str:
    """What kept the plan from being worth more."""
    total = sum(len(node.devices) for node in problem.nodes)
    used = sum(len(assignment.slots) for assignment in plan.assignments)
    demands = {task.task: task for task in problem.tasks}
    full = [
        assignment.task
        for assignment in plan.assignments
        if len(assignment.slots)
        == max((o.layout.devices for o in demands[assignment.task].options), default=0)
    ]
    if plan.relaxed:
        reason = f"minimum sizes can't all be met: {', '.join(plan.relaxed)} parked"
        if plan.source == "local":
            reason = f"only what is held was considered: {', '.join(plan.relaxed)} parked"
    elif used == total:
        reason = "every healthy device is used"
    elif len(full) == len(plan.assignments):
        reason = "every task has its largest layout"
    elif plan.source == "local":
        reason = "only hit tasks may change, and only on devices they hold"
    else:
        reason = "no layout on offer makes the idle devices worth their change"
    return f"bound by: {reason} ({used} of {total} devices used)"


def _runner_up(problem: PlanProblem, plan: Plan) -> tuple[Plan | None, int]:
    """The best different answer of the other methods, and how much less it is worth.

    Negative: it is worth more, as when the local answer was applied at once and a better one is
    known, or when it gives up a minimum that the plan keeps.
    """
    others = [
        other
        for other in (local_plan(problem), dynamic_plan(problem))
        if other.assignments != plan.assignments
    ]
    if not others:
        return None, 0
    best = max(others, key=lambda other: (-len(other.relaxed), other.value_gflops_milli))
    return best, plan.value_gflops_milli - best.value_gflops_milli


def _runner_up_line(plan: Plan, other: Plan, loss: int) -> str:
    extra = sorted(set(other.relaxed) - set(plan.relaxed))
    parks = f", but parks {', '.join(extra)}" if extra else ""
    if loss >= 0:
        return f"runner-up: {other.source}, worth {_gflops(loss)} GFLOP/s less{parks}"
    return f"runner-up: {other.source}, worth {_gflops(-loss)} GFLOP/s more{parks}"


def _layout(layout: Layout | None) -> str:
    if layout is None:
        return "parked"
    return f"tp {layout.tp} pp {layout.pp} dp {layout.dp}"


def _gflops(milli: int) -> str:
    sign = "-" if milli < 0 else ""
    return f"{sign}{abs(milli) // 1000}.{abs(milli) % 1000:03d}"
