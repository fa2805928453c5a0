"""The paper's dynamic programme: S(i, j) = max over k of S(i-1, j-k) + G(t_i, k), in O(m n^2).

Exact where counting devices says all (one tensor parallel size; see `objective.Board`). Elsewhere
it is tried twice, the first time optimistically: what counts as fitting is then really placed, and
if that works it is the optimum too. The second time every task takes whole blocks of the largest
group size. If neither can be placed, or the table would be too large, the local answer remains.
"""

from __future__ import annotations

from unicron.planner.assemble import build
from unicron.planner.floors import countable_floors
from unicron.planner.local import local_plan
from unicron.planner.objective import (
    TIERS,
    Board,
    Choice,
    board,
    merit,
    packed,
    prune,
    unit_devices,
)
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem

# Additions of one run, about half a second of Python; beyond it sizes are rounded up to blocks.
WORK_MAX = 4_000_000


def dynamic_plan(problem: PlanProblem) -> Plan:
    """A plan for a valid problem that passes `check` and is never worse than the local answer.

    Its statistic `optimal` is 1 if no plan is better.
    """
    prepared = board(problem)
    exact_unit = unit_devices(prepared)
    largest = prepared.sizes[-1] if prepared.sizes else 1
    candidates = [local_plan(problem)]
    for unit, capacity in (
        (exact_unit, prepared.capacity),
        (largest, sum(len(node.devices) // largest * largest for node in problem.nodes)),
    ):
        block = _affordable(prepared, unit)
        optimal = block == exact_unit
        picks = _best(prepared, block, capacity // block)
        if picks is None:
            continue
        plan = build(prepared, picks, "dp", (("block_devices", block), ("optimal", int(optimal))))
        if plan is not None:
            candidates.append(plan)
            if optimal:
                break
    # A later candidate must be strictly better, except that the programme's word beats a tie.
    return max(reversed(candidates), key=lambda plan: merit(problem, plan))


def _affordable(prepared: Board, unit: int) -> int:
    """The smallest multiple of `unit` devices with which the table stays within `WORK_MAX`."""
    options = sum(len(prune(row)) for row in prepared.choices)
    block = unit
    while options * (prepared.capacity // block + 1) > WORK_MAX:
        block *= 2
    return block


def _best(prepared: Board, block: int, capacity: int) -> list[Choice] | None:
    """The best choices for `capacity` blocks, sizes rounded up to whole ones; None if none fits.

    The table is kept sparse: for each stage only the amounts of blocks that buy more than any
    smaller amount, with the way they were reached.
    """
    scores, _ = packed(prepared, 0, TIERS)
    forced = countable_floors(prepared)
    front: list[tuple[int, int]] = [(0, 0)]  # blocks used, score; both ascending
    ways: list[dict[int, tuple[int, int]]] = []  # per stage: blocks used -> (blocks before, choice)
    for i, row in enumerate(prepared.choices):
        reached: dict[int, tuple[int, int, int]] = {}  # blocks -> (score, blocks before, choice)
        for k in prune(row):
            if row[k].layout is None and i in forced:
                continue
            size, gain = -(-row[k].devices // block), scores[i][k]
            for used, score in front:
                total = used + size
                if total > capacity:
                    break
                if total not in reached or score + gain > reached[total][0]:
                    reached[total] = (score + gain, used, k)
        if not reached:
            return None
        front = _frontier(reached)
        ways.append({used: reached[used][1:] for used, _ in front})
    return _trace(prepared, front[-1][0], ways)


def _frontier(reached: dict[int, tuple[int, int, int]]) -> list[tuple[int, int]]:
    front: list[tuple[int, int]] = []
    for used in sorted(reached):
        score = reached[used][0]
        if not front or score > front[-1][1]:
            front.append((used, score))
    return front


def _trace(prepared: Board, used: int, ways: list[dict[int, tuple[int, int]]]) -> list[Choice]:
    picks: list[Choice] = []
    for row, way in zip(reversed(prepared.choices), reversed(ways), strict=True):
        used, k = way[used]
        picks.append(row[k])
    return picks[::-1]
