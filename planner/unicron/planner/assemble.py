"""From chosen layouts and slots to a plan with its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unicron.planner.objective import Board, Choice, evaluate
from unicron.planner.placement import place
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import PlanProblem, digest
from unicron.planner.sources import transfers


def finish(
    problem: PlanProblem,
    source: str,
    assignments: Iterable[Assignment],
    statistics: tuple[tuple[str, int], ...] = (),
) -> Plan:
    """A plan of these assignments, in the order of the task names."""
    ordered = tuple(sorted(assignments, key=lambda assignment: assignment.task))
    value, waf = evaluate(problem, ordered)
    required = {task.task for task in problem.tasks if task.min_devices > 0}
    return Plan(
        source=source,
        assignments=ordered,
        value_gflops_milli=value,
        waf_milli=waf,
        computed_at=problem.computed_at,
        problem_digest=digest(problem),
        statistics=statistics,
        relaxed=tuple(
            assignment.task
            for assignment in ordered
            if assignment.layout is None and assignment.task in required
        ),
        transfers=transfers(problem, ordered),
    )


def build(
    board: Board, picks: Sequence[Choice], source: str, statistics: tuple[tuple[str, int], ...]
) -> Plan | None:
    """Place one choice per task of the board; None if the groups don't fit into the nodes."""
    slots = place(board.problem, board.tasks, picks)
    if slots is None:
        return None
    assignments = (
        Assignment(task=task.task, layout=pick.layout, slots=held)
        for task, pick, held in zip(board.tasks, picks, slots, strict=True)
    )
    return finish(board.problem, source, assignments, statistics)
