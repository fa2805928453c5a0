"""From chosen layouts and slots to a plan with its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from unicron.planner.objective import Board, Choice
from unicron.planner.placement import place
from unicron.planner.plan import Assignment, Plan
from unicron.planner.pricing import Ground, evaluate, relaxed
from unicron.planner.problem import PlanProblem, TaskDemand, digest
from unicron.planner.sources import transfers


def finish(
    problem: PlanProblem,
    source: str,
    assignments: Iterable[Assignment],
    statistics: tuple[tuple[str, int], ...] = (),
    *,
    nodes: Ground | None = None,
    stamp: str = "",
) -> Plan:
    """A plan of these assignments, in the order of the task names.

    Who has prepared the nodes or knows the problem's digest (`stamp`) may save doing it again.
    """
    ordered = tuple(sorted(assignments, key=lambda assignment: assignment.task))
    value, waf = evaluate(problem, ordered, nodes)
    return Plan(
        source=source,
        assignments=ordered,
        value_gflops_milli=value,
        waf_milli=waf,
        computed_at=problem.computed_at,
        problem_digest=stamp or digest(problem),
        statistics=statistics,
        relaxed=relaxed(problem.tasks, {a.task: a for a in ordered}),
        transfers=transfers(problem, ordered),
    )


def build(
    board: Board,
    picks: Sequence[Choice],
    source: str,
    statistics: tuple[tuple[str, int], ...],
    stamp: str = "",
) -> Plan | None:
    """Place one choice per task of the board; None if the groups don't fit into the nodes."""
    assignments = _placed(board.problem, board.tasks, picks)
    if assignments is None:
        return None
    return finish(board.problem, source, assignments, statistics, nodes=board.nodes, stamp=stamp)


def build_of(problem: PlanProblem, chosen: Mapping[str, Choice], source: str) -> Plan | None:
    """The same without a board: `chosen` has a choice for each task, by name."""
    tasks = sorted(problem.tasks, key=lambda task: task.task)
    if any(task.task not in chosen for task in tasks):
        return None
    assignments = _placed(problem, tasks, [chosen[task.task] for task in tasks])
    return None if assignments is None else finish(problem, source, assignments)


def _placed(
    problem: PlanProblem, tasks: Sequence[TaskDemand], picks: Sequence[Choice]
) -> list[Assignment] | None:
    slots = place(problem, tasks, picks)
    if slots is None:
        return None
    return [
        Assignment(task=task.task, layout=pick.layout, kind=pick.kind, slots=held)
        for task, pick, held in zip(tasks, picks, slots, strict=True)
    ]
