"""Allocations that don't look at the value: what a plan is compared with.

The paper's evaluation compares its planner with dividing the devices equally, by the tasks' weights
and by the sizes of their models; and with leaving everybody but the hit task alone. The first three
fill up step by step: after the floors, the next devices go to whoever is furthest below its share,
to its next larger layout that fits, until nobody can grow. Their plans pass `check`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from types import MappingProxyType

from unicron.planner.assemble import build
from unicron.planner.limits import Tally, common_limits, group_limits, kind_limits, quota_limits
from unicron.planner.local import local_plan
from unicron.planner.objective import Board, Choice, board
from unicron.planner.plan import Plan
from unicron.planner.pricing import has_floor, minimum_order
from unicron.planner.problem import PlanProblem, TaskDemand


def equal_plan(problem: PlanProblem) -> Plan:
    """Every task the same number of devices, as nearly as layouts allow."""
    return _filled(problem, "equal", lambda task: 1)


def weighted_plan(problem: PlanProblem) -> Plan:
    """Devices in proportion to the weights."""
    return _filled(problem, "weighted", lambda task: task.weight_milli)


def sized_plan(problem: PlanProblem) -> Plan:
    """Devices in proportion to the models' sizes: the bytes of state, or where those aren't given
    the devices of the smallest layout."""
    known = all(task.state_bytes for task in problem.tasks)
    return _filled(problem, "sized", lambda task: task.state_bytes if known else _least(task))


def current_plan(problem: PlanProblem) -> Plan:
    """Everybody keeps what it has; only who was hit shrinks to what is left of it, or parks."""
    return local_plan(problem)


STRATEGIES: Mapping[str, Callable[[PlanProblem], Plan]] = MappingProxyType(
    {
        "equal": equal_plan,
        "weighted": weighted_plan,
        "sized": sized_plan,
        "current": current_plan,
    }
)


def _least(task: TaskDemand) -> int:
    return min((option.layout.devices for option in task.options), default=1)


def _filled(problem: PlanProblem, name: str, share: Callable[[TaskDemand], int]) -> Plan:
    prepared = board(problem)
    barred: set[int] = set()
    while True:
        picks, newest = _fill(prepared, share, barred)
        plan = build(prepared, picks, name, ())
        if plan is not None:
            return plan
        # Counting says that it fits and no node has room for a group: who grew last doesn't grow.
        if newest is None or newest in barred:
            return local_plan(problem)
        barred.add(newest)


def _fill(
    prepared: Board, share: Callable[[TaskDemand], int], barred: set[int]
) -> tuple[list[Choice], int | None]:
    """A choice for each task, and who grew last."""
    tally = Tally(
        (
            *kind_limits(prepared),
            *group_limits(prepared),
            *common_limits(prepared, prepared.sizes[-1]),
            *quota_limits(prepared),
        )
    )
    rows = [
        sorted(row, key=lambda choice: (choice.devices, choice.waf)) for row in prepared.choices
    ]
    picks = [row[0] for row in rows]
    for i in minimum_order(prepared.tasks):
        if has_floor(prepared.tasks[i]):
            floor = next((c for c in rows[i] if c.layout and c.floored and tally.fits(i, c)), None)
            if floor is not None:
                tally.take(i, floor)
                picks[i] = floor
    shares = [share(task) for task in prepared.tasks]
    waiting = [(picks[i].devices / shares[i], i) for i in range(len(rows)) if i not in barred]
    heapq.heapify(waiting)
    newest = None
    while waiting:
        _, i = heapq.heappop(waiting)
        larger = _larger(rows[i], picks[i], i, tally)
        if larger is None:
            continue
        tally.take(i, larger, picks[i])
        picks[i], newest = larger, i
        heapq.heappush(waiting, (larger.devices / shares[i], i))
    return picks, newest


def _larger(row: list[Choice], now: Choice, task: int, tally: Tally) -> Choice | None:
    """The next larger layout that fits; of equally large ones the fastest."""
    found: Choice | None = None
    for choice in row:
        if choice.devices <= now.devices or choice.layout is None:
            continue
        if found is not None and choice.devices > found.devices:
            break
        if tally.fits(task, choice, now if now.layout is not None else None):
            found = choice  # ascending in speed
    return found
