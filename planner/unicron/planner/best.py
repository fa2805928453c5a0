"""The best plan there is: the dynamic programme's where nothing can be better, else CP-SAT's."""

from __future__ import annotations

from unicron.planner.dynamic import dynamic_plan
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem


def best_plan(problem: PlanProblem) -> Plan:
    """For a valid problem; its source says whose it is.

    Where the constraints decompose the programme's plan is the answer ("dp"), after milliseconds.
    Elsewhere CP-SAT begins from it ("cpsat"), and if that finds nothing better within its limit,
    it is the answer all the same.
    """
    plan = dynamic_plan(problem)
    if dict(plan.statistics).get("optimal"):
        return plan
    # Only here, since loading it takes longer than most plans.
    from unicron.planner.cpsat import solve

    return solve(problem, plan)
