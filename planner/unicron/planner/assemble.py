"""From chosen layouts and slots to a plan with its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unicron.planner.objective import Board, Choice
from unicron.planner.placement import place
from unicron.planner.plan import Assignment, Plan
from unicron.planner.pricing import Ground, evaluate, relaxed
from unicron.planner.problem import PlanProblem, digest
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
    slots = place(board.problem, board.tasks, picks)
    if slots is None:
        return None
    assignments = (
        Assignment(task=task.task, layout=pick.layout, kind=pick.kind, slots=held)
        for task, pick, held in zip(board.tasks, picks, slots, strict=True)
    )
    return finish(board.problem, source, assignments, statistics, nodes=board.nodes, stamp=stamp)
