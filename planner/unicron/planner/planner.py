"""The planner by itself, for programs that want plans and nothing else of Unicron."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from unicron.planner.check import Violation, check
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.errors import SolverMissing
from unicron.planner.explain import explain
from unicron.planner.local import local_plan
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem
from unicron.planner.validation import validate

#: "cpsat": the best plan there is; needs ortools, and holds the caller up to seconds. "dp": the
#: dynamic programme, as good wherever counting devices decides. "local": only tasks that were hit
#: change, on what they hold; at once.
Method: TypeAlias = Literal["cpsat", "dp", "local"]


class Planner:
    """Plans by one method. It keeps nothing between two problems.

    `solve` works in the calling thread. A program that can't wait, or can't risk a crash of the
    solver, runs ``python -m unicron.planner.child``, as the control plane does.
    """

    def __init__(self, method: Method = "cpsat") -> None:
        """Raises `SolverMissing` if the method needs what isn't installed."""
        self.method: Method = method
        self._solve = _solver(method)

    def solve(self, problem: PlanProblem) -> Plan:
        """The plan, which passes `check`. Raises `BadProblem` if the problem makes no sense."""
        validate(problem)
        return self._solve(problem)

    def check(self, problem: PlanProblem, plan: Plan) -> tuple[Violation, ...]:
        """Everything that is wrong with anybody's plan for a valid problem; empty if nothing."""
        return check(problem, plan)

    def explain(self, problem: PlanProblem, plan: Plan) -> tuple[str, ...]:
        """Why this plan, in a few lines for people; the plan must pass `check`."""
        return explain(problem, plan)


def _solver(method: Method) -> Callable[[PlanProblem], Plan]:
    if method == "dp":
        return dynamic_plan
    if method == "local":
        return local_plan
    if method != "cpsat":
        raise ValueError(f"{method!r} is no method: use 'cpsat', 'dp' or 'local'")
    try:
        from unicron.planner.cpsat import solve
    except ModuleNotFoundError as error:
        raise SolverMissing(
            f"the method 'cpsat' needs {error.name}, which isn't installed: "
            "pip install 'unicron-controlplane[controlplane]', or use 'dp'"
        ) from None
    return solve
