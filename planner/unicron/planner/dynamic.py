"""The paper's dynamic programme: S(i, j) = max over k of S(i-1, j-k) + G(t_i, k).

It answers alone where the constraints decompose: every task's choices are on devices of one kind,
so that each kind is a knapsack of its own (`knapsack.py` finds what the table would say without
filling it), and no quota is exceeded. What counts as fitting is then really placed; if that works,
no plan is better, and the statistic `optimal` is 1.

Elsewhere the answer is good and fits (see `choosing.py`). If the groups can't be placed beside the
tasks that were to stay, these may move too; else every task takes whole blocks of the largest group
size, on nodes that nobody avoids; the local answer remains if that fails too.
"""

from __future__ import annotations

from collections.abc import Sequence

from unicron.planner.assemble import build
from unicron.planner.choosing import block_devices, choose
from unicron.planner.local import local_answer
from unicron.planner.objective import Board, Choice, board
from unicron.planner.plan import Plan
from unicron.planner.pricing import merit
from unicron.planner.problem import PlanProblem, digest


def dynamic_plan(problem: PlanProblem) -> Plan:
    """A plan for a valid problem that passes `check` and is never worse than the local answer.

    Its statistic `optimal` is 1 if no plan is better.
    """
    prepared, stamp = board(problem), digest(problem)
    candidates: list[Plan] = []
    for careful in (False, True):
        picks, optimal = choose(prepared, careful=careful)
        block = ("block_devices", block_devices(prepared, careful=careful))
        plan = build(prepared, picks, "dp", (block, ("optimal", int(optimal))), stamp)
        if plan is not None and optimal:
            return plan
        if plan is None:
            loose = _loosened(prepared, picks)
            plan = build(prepared, loose, "dp", (block, ("optimal", 0)), stamp)
        if plan is not None:
            candidates.append(plan)
            break
    candidates.append(local_answer(problem, prepared.nodes, stamp))
    # The local answer must be strictly better: the programme's word breaks a tie.
    return max(candidates, key=lambda plan: merit(problem, plan, prepared.nodes))


def _loosened(prepared: Board, picks: Sequence[Choice]) -> list[Choice]:
    """Who is to stay may make room for others; who needn't still keeps what it has."""
    loose = []
    for row, pick in zip(prepared.choices, picks, strict=True):
        same = [c for c in row if (c.layout, c.kind, c.stays) == (pick.layout, pick.kind, False)]
        loose.append(same[0] if same else pick)
    return loose
