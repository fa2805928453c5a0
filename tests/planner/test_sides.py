"""Kinds, quotas, floors by speed, nodes avoided and draining: what is chosen, against the oracle.

Choices are compared here, down to the last tie that the oracle knows; whether they can be placed
is tested with the plans.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from tests.planner.cases import QUICK, sided_problems
from tests.planner.oracle import brute_force, in_order, rank, ways
from unicron.planner import validate
from unicron.planner.choosing import choose
from unicron.planner.cpsat import best_choices
from unicron.planner.objective import board
from unicron.planner.problem import PlanProblem

ONE_SIZE, MIXED = (1,), (1, 2, 4)


def rank_of_picks(base: PlanProblem, tasks, picks):
    """What the oracle says of these choices, which must price each of them as the board does."""
    chosen = {task.task: pick for task, pick in zip(tasks, picks, strict=True)}
    combination = []
    for task in in_order(base):
        pick = chosen[task.task]
        (way,) = (
            way
            for way in ways(base, task)
            if (way.layout, way.kind, way.stays) == (pick.layout, pick.kind, pick.stays)
        )
        tiers = (way.value, -way.touched, -way.moved, -way.moved_bytes)
        assert (tiers, way.met) == (pick.tiers[:4], pick.floored)
        combination.append(way)
    return rank(base, in_order(base), combination)


@pytest.mark.parametrize("sizes", [ONE_SIZE, (2,), MIXED])
def test_what_is_chosen_is_what_trying_everything_finds(sizes):
    seen: Counter[str] = Counter()

    @settings(QUICK, max_examples=120)
    @given(sided_problems(sizes))
    def run(problem):
        validate(problem)
        expected = brute_force(problem)
        prepared = board(problem)
        picks, exact = choose(prepared)
        by_table = rank_of_picks(problem, prepared.tasks, picks)
        spread = best_choices(prepared, picks, spread=True)
        counted = best_choices(prepared, picks, spread=False)
        assert rank_of_picks(problem, prepared.tasks, spread) == expected
        by_counting = rank_of_picks(problem, prepared.tasks, counted)
        # Counting only is optimistic, and exact on a uniform board; so is the table where it says.
        assert by_table <= by_counting and expected <= by_counting
        assert by_counting == expected or not prepared.uniform
        assert by_table == by_counting or not exact
        seen["table exact" if exact else "table not exact"] += 1
        seen["counting is optimistic"] += by_counting != expected
        seen["uniform" if prepared.uniform else "not uniform"] += 1
        seen["quota"] += bool(problem.quotas)
        seen["draining"] += any(n.draining for n in problem.nodes)
        seen["moves state"] += expected[4] < 0
        seen["floors unmet"] += not all(expected[0])

    run()
    needed = {"table exact", "table not exact", "uniform", "not uniform", "quota", "draining"}
    needed |= {"moves state", "floors unmet", *(["counting is optimistic"] * (sizes == MIXED))}
    assert not {label for label in needed if not seen[label]}, seen
