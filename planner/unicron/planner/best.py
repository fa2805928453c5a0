"""The best plan there is: the dynamic programme's where nothing can be better, else CP-SAT's; with
a node left free where that pays."""

from __future__ import annotations

from typing import Final

import msgspec

from unicron.planner.dynamic import dynamic_plan
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem
from unicron.planner.spares import SPARE, left_free, with_spare

#: What a spare is worth is asked for up to so many devices, where that takes some seconds.
_DEVICES_MAX: Final = 16_384


def best_plan(problem: PlanProblem) -> Plan:
    """For a valid problem; its source says whose it is.

    Where the constraints decompose the programme's plan is the answer ("dp"), after milliseconds.
    Elsewhere CP-SAT begins from it ("cpsat"), and if that finds nothing better within its limit,
    it is the answer all the same. Where it is known how long a node is away (`repair_ms`), a node
    is left free if that is worth more; the statistic `spare` is 1 then.
    """
    devices = sum(len(node.devices) for node in problem.nodes)
    if problem.repair_ms and devices <= _DEVICES_MAX:
        spare = with_spare(problem, dynamic_plan)[0].spare
        if spare:
            plan = left_free(problem, spare, _whole)
            statistics = tuple(sorted({**dict(plan.statistics), SPARE: 1}.items()))
            return msgspec.structs.replace(plan, statistics=statistics)
    return _whole(problem)


def _whole(problem: PlanProblem) -> Plan:
    """The best that uses all nodes."""
    plan = dynamic_plan(problem)
    if dict(plan.statistics).get("optimal"):
        return plan
    # Only here, since loading it takes longer than most plans.
    from unicron.planner.cpsat import solve

    return solve(problem, plan)
