"""The knapsack under the dynamic programme, against trying everything."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.planner.cases import QUICK
from unicron.planner.knapsack import best_options

# Negative scores: parking costs. Equal ones and sizes of 0: ties, and rows that need nothing.
OPTION = st.tuples(st.integers(0, 6), st.integers(-5, 20))
ROWS = st.lists(st.lists(OPTION, min_size=1, max_size=6), max_size=5)


def total(rows, options):
    picked = [row[k] for row, k in zip(rows, options, strict=True)]
    return sum(size for size, _ in picked), sum(score for _, score in picked)


def test_it_finds_what_trying_everything_finds():
    seen: Counter[str] = Counter()

    @QUICK
    @given(ROWS, st.integers(0, 15))
    def run(rows, capacity):
        fitting = [
            total(rows, options)[1]
            for options in itertools.product(*(range(len(row)) for row in rows))
            if total(rows, options)[0] <= capacity
        ]
        found = best_options(rows, capacity)
        if not fitting:
            assert found is None
            seen["nothing fits"] += 1
            return
        size, score = total(rows, found.options)
        assert found.exact and size <= capacity and score == max(fitting)
        seen["full" if size == capacity else "not full"] += 1

    run()
    assert {"nothing fits", "full", "not full"} <= set(seen), seen


def test_every_best_solution_lies_in_the_core():
    seen: Counter[str] = Counter()

    @QUICK
    @given(ROWS, st.integers(0, 15))
    def run(rows, capacity):
        found = best_options(rows, capacity)
        if found is None:
            return
        _, best = total(rows, found.options)
        for options in itertools.product(*(range(len(row)) for row in rows)):
            size, score = total(rows, options)
            if size <= capacity and score == best:
                # Of equal options of one row the smallest stands for all.
                assert all(
                    any(row[c][0] <= row[k][0] and row[c][1] == row[k][1] for c in core)
                    for row, core, k in zip(rows, found.core, options, strict=True)
                )
        seen["smaller"] += sum(map(len, found.core)) < sum(map(len, rows))

    run()
    assert seen["smaller"] > 10


def test_a_search_that_would_take_too_long_is_ended_and_says_so():
    rows = [[(0, 0), (3, 5 + i), (4, 7 + i), (5, 8 + i)] for i in range(20)]
    given_up = best_options(rows, 41, work_max=0)
    assert given_up is not None and not given_up.exact
    size, score = total(rows, given_up.options)
    exact = best_options(rows, 41)
    assert exact is not None and exact.exact
    assert size <= 41 and score <= total(rows, exact.options)[1]


def test_integers_of_any_size_stay_exact():
    """Scores that no double can tell apart, as packed tiers are."""
    big = 10**40
    rows = [[(0, 0), (2, big), (2, big + 1)], [(0, 0), (2, big + 2)]]
    found = best_options(rows, 2)
    assert found is not None and found.options == [0, 1]
    assert best_options(rows, 4).options == [2, 1]
