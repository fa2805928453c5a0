"""A pretended planner: the real one's answers, late, lost, wrong or none."""

import asyncio
from collections.abc import Callable

import msgspec

from unicron.controlplane.runtime.ports import Solved, SolverFailed
from unicron.planner.best import best_plan
from unicron.planner.explain import explain
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem

LIMIT_S = 15.0
#: What the next answers are like, in milliseconds and in kind: "good", "wrong", "dead", "lost".
Mood = Callable[[], tuple[int, str]]


class PretendedSolver:
    """Solver whose every answer goes as `mood` says."""

    def __init__(self, mood: Mood) -> None:
        self._mood = mood

    async def warm(self) -> None:
        """There is nothing to warm."""

    async def solve(self, problem: PlanProblem) -> Solved:
        delay_ms, kind = self._mood()
        await asyncio.sleep(delay_ms / 1000)
        if kind == "lost":
            await asyncio.sleep(LIMIT_S)
            raise SolverFailed(f"no answer within {LIMIT_S} s")
        if kind == "dead":
            raise SolverFailed("exit code -9: killed")
        plan = best_plan(problem)
        plan = _spoilt(plan) if kind == "wrong" else plan
        # What else there was isn't worked out: it costs more than all the rest of planning here.
        return Solved(plan, explain(problem, plan, alternatives=False))


def _spoilt(plan: Plan) -> Plan:
    """A plan that no check may let pass: a device twice, or a value that isn't so."""
    for number, assignment in enumerate(plan.assignments):
        if assignment.slots:
            slots = (assignment.slots[0], *assignment.slots)[: len(assignment.slots)]
            if len(slots) > 1:
                bad = msgspec.structs.replace(assignment, slots=slots)
                rest = plan.assignments
                return msgspec.structs.replace(
                    plan, assignments=(*rest[:number], bad, *rest[number + 1 :])
                )
    return msgspec.structs.replace(plan, value_gflops_milli=plan.value_gflops_milli + 1)
