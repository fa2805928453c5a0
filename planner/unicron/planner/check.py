"""Is a plan fit to be carried out? Written apart from everything that makes plans.

It shares only the data types with them, so that a mistake would have to be made twice. What is
applied has passed here, wherever it came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import PlanProblem, Slot, TaskDemand, digest

SOURCES = ("local", "dp", "cpsat", "equal", "weighted", "sized")


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong; `task` is empty where it concerns the plan as a whole."""

    kind: str
    task: str = ""
    detail: str


def check(problem: PlanProblem, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan for a valid problem; empty if it can be applied."""
    demands = {task.task: task for task in problem.tasks}
    return (
        *_check_origin(problem, plan),
        *_check_task_list(demands, plan),
        *_check_slots(problem, plan),
        *(
            violation
            for assignment in plan.assignments
            if assignment.task in demands
            for violation in _check_assignment(demands[assignment.task], assignment)
        ),
        *_check_relaxed(demands, plan),
        *_check_figures(problem, demands, plan),
    )


def _check_origin(problem: PlanProblem, plan: Plan) -> Iterator[Violation]:
    expected = digest(problem)
    if plan.problem_digest != expected:
        yield Violation(
            kind="problem-digest",
            detail=f"made for problem {plan.problem_digest}, this is {expected}",
        )
    if plan.computed_at != problem.computed_at:
        yield Violation(
            kind="computed-at",
            detail=f"made at sequence {plan.computed_at}, this is {problem.computed_at}",
        )
    if plan.source not in SOURCES:
        yield Violation(kind="source", detail=f"{plan.source!r} is none of {', '.join(SOURCES)}")


def _check_task_list(demands: dict[str, TaskDemand], plan: Plan) -> Iterator[Violation]:
    counts = Counter(assignment.task for assignment in plan.assignments)
    for task, count in counts.items():
        if task not in demands:
            yield Violation(kind="task-unknown", task=task, detail="the problem has no such task")
        if count > 1:
            yield Violation(kind="task-duplicate", task=task, detail=f"assigned {count} times")
    for task in demands:
        if task not in counts:
            yield Violation(kind="task-missing", task=task, detail="has no assignment")


def _check_slots(problem: PlanProblem, plan: Plan) -> Iterator[Violation]:
    healthy = {node.node: set(node.devices) for node in problem.nodes}
    holder: dict[Slot, str] = {}
    for assignment in plan.assignments:
        for slot in assignment.slots:
            name = f"{slot.node}/{slot.device}"
            if slot.node not in healthy:
                yield Violation(
                    kind="node-unknown", task=assignment.task, detail=f"no node of {name}"
                )
            elif slot.device not in healthy[slot.node]:
                yield Violation(
                    kind="slot-unhealthy", task=assignment.task, detail=f"{name} isn't healthy"
                )
            if slot in holder:
                yield Violation(
                    kind="slot-shared",
                    task=assignment.task,
                    detail=f"{name} is given to {holder[slot]} already",
                )
            holder[slot] = assignment.task


def _check_assignment(demand: TaskDemand, assignment: Assignment) -> Iterator[Violation]:
    layout, task = assignment.layout, assignment.task
    if layout is None:
        if assignment.slots:
            yield Violation(
                kind="slot-count", task=task, detail=f"parked with {len(assignment.slots)} slots"
            )
        return
    size = layout.tp * layout.pp * layout.dp
    if len(assignment.slots) != size:
        yield Violation(
            kind="slot-count",
            task=task,
            detail=f"{len(assignment.slots)} slots for a layout of {size}",
        )
    if not any(option.layout == layout for option in demand.options):
        yield Violation(kind="layout-unknown", task=task, detail=f"{layout} is no option")
    if size < demand.min_devices:
        yield Violation(kind="below-min", task=task, detail=f"{size} < {demand.min_devices}")
    if size > demand.max_devices:
        yield Violation(kind="above-max", task=task, detail=f"{size} > {demand.max_devices}")
    if layout.tp < 1:
        return
    for first in range(0, len(assignment.slots), layout.tp):
        nodes = {slot.node for slot in assignment.slots[first : first + layout.tp]}
        if len(nodes) > 1:
            yield Violation(
                kind="group-split",
                task=task,
                detail=f"tensor parallel group at rank {first} is on {', '.join(sorted(nodes))}",
            )


def _check_relaxed(demands: dict[str, TaskDemand], plan: Plan) -> Iterator[Violation]:
    unmet = {
        assignment.task
        for assignment in plan.assignments
        if assignment.layout is None
        and assignment.task in demands
        and demands[assignment.task].min_devices > 0
    }
    for task in sorted(unmet - set(plan.relaxed)):
        yield Violation(kind="relaxed", task=task, detail="parked below its minimum, unsaid")
    for task in sorted(set(plan.relaxed) - unmet):
        yield Violation(kind="relaxed", task=task, detail="named as relaxed without need")


def _check_figures(
    problem: PlanProblem, demands: dict[str, TaskDemand], plan: Plan
) -> Iterator[Violation]:
    waf = value = 0
    for assignment in plan.assignments:
        demand = demands.get(assignment.task)
        if demand is None:
            continue
        speeds = {option.layout: option.throughput_gflops for option in demand.options}
        now = 0 if demand.current is None else speeds.get(demand.current, 0)
        then = 0 if assignment.layout is None else speeds.get(assignment.layout, 0)
        waf += demand.weight_milli * then
        value += demand.weight_milli * then
        untouched = (
            assignment.layout == demand.current
            and assignment.slots == demand.placement
            and not demand.hit
        )
        if not untouched:
            lost = demand.weight_milli * now * demand.transition_ms
            value -= lost // problem.expected_run_ms
    if plan.waf_milli != waf:
        yield Violation(kind="waf", detail=f"says {plan.waf_milli}, is {waf}")
    if plan.value_gflops_milli != value:
        yield Violation(kind="value", detail=f"says {plan.value_gflops_milli}, is {value}")
