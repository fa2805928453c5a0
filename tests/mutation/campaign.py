"""One mutation run: which mutants are tried on which tests, in which order."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutation.forks import Ended, call
from tests.mutation.outcome import Outcome, outcome_of, score
from tests.mutation.reach import Reach
from tests.mutation.session import Heard, Session, Try, load
from tests.mutation.source import Mutant

Aim = tuple[Mutant, set[str]]


@dataclass(slots=True)
class Order:
    """Tests in the order in which they are tried: quick ones first, and those first that have
    noticed much of what was changed nearby."""

    cpu_s: dict[str, float]
    budget_s: float
    kills: Counter[tuple[Path, str, str]] = field(default_factory=Counter)

    def learn(self, outcome: Outcome) -> None:
        """Its test noticed the mutant, if one did."""
        if outcome.name == "killed" and outcome.test:
            mutant, test = outcome.mutant, outcome.test
            self.kills[mutant.path, mutant.function, test] += 4
            self.kills[mutant.path, "", test] += 1

    def of(self, tests: set[str], mutant: Mutant) -> list[str]:
        """The tests for this mutant, as far as the budget goes."""

        def rank(test: str) -> tuple[float, str]:
            near = self.kills[mutant.path, mutant.function, test]
            near += self.kills[mutant.path, "", test]
            return (0.02 + self.cpu_s[test]) / (1 + near), test

        chosen, left = [], self.budget_s
        for test in sorted(tests, key=rank):
            chosen.append(test)
            left -= self.cpu_s[test]
            if left < 0:
                break
        return chosen


@dataclass(slots=True)
class Campaign:
    """`budget_s`: CPU seconds (as recorded) of tests that a mutant is worth. `patience_s`: a test
    may use so many more than twenty times what it takes, before its mutant counts as looping."""

    paths: list[Path]
    mutants: list[Mutant]
    tests: list[str]
    jobs: int
    budget_s: float
    patience_s: float
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self) -> list[Outcome]:
        """Try all the mutants of these files. Progress goes to stderr.

        Raises:
            RuntimeError: the tests can't be collected, or the tool failed.
        """
        session = Session(self.tests, self.jobs, self.patience_s)
        try:
            self._run(session)
        finally:
            shutil.rmtree(session.folder, ignore_errors=True)
        return self.outcomes

    def _run(self, session: Session) -> None:
        _say("recording what each test executes")
        reach = session.record(self.paths)
        for test in reach.broken:
            _say(f"left out, it fails without any mutant: {test}")
        if not reach.cpu_s:
            raise RuntimeError("no test passes")
        order = Order(reach.cpu_s, self.budget_s)
        swapping, importing = self._split(reach)
        limits = reach.cpu_s
        _say(f"{len(swapping)} mutants of functions")
        tried = call(lambda: self._try(session.swapped, swapping, limits, order))
        for outcome in tried:  # what was learned there was learned in a child
            order.learn(outcome)
        importing += self._again(tried, reach)
        load(reach.loaded)
        _say(f"{len(importing)} mutants to be imported afresh")
        self.outcomes += self._try(session.fresh, importing, limits, order)

    def _split(self, reach: Reach) -> tuple[list[Aim], list[Aim]]:
        """Mutants to be swapped in and to be imported, with the tests that can notice them. Who
        isn't reached by any test has its outcome already."""
        swapping, importing = [], []
        for mutant in self.mutants:
            if not mutant.function:
                importing.append((mutant, set(reach.cpu_s)))
                continue
            plain, holding = reach.tests(mutant.path, mutant.lines)
            if plain:
                swapping.append((mutant, plain))
            elif holding:
                importing.append((mutant, holding))
            else:
                self.outcomes.append(Outcome(mutant, "not covered"))
        return swapping, importing

    def _again(self, tried: list[Outcome], reach: Reach) -> list[Aim]:
        """Those that survived so far, but not yet the tests that must be imported with them."""
        again = []
        for outcome in tried:
            _, holding = reach.tests(outcome.mutant.path, outcome.mutant.lines)
            if outcome.name == "survived" and holding:
                again.append((outcome.mutant, holding))
            else:
                self.outcomes.append(outcome)
        return again

    def _try(
        self,
        way: Callable[[Iterator[Try], dict[str, float], Heard], None],
        aims: list[Aim],
        limits: dict[str, float],
        order: Order,
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        began = time.monotonic()

        def heard(tried: Try, ended: Ended) -> None:
            outcome = outcome_of(tried.mutant, ended)
            outcomes.append(outcome)
            order.learn(outcome)
            if len(outcomes) % 20 == 0 or len(outcomes) == len(aims):
                percent, took = score(outcomes), time.monotonic() - began
                _say(f"{len(outcomes)} of {len(aims)}: {percent:.1f} % noticed, {took:.0f} s")

        way((Try(mutant, order.of(tests, mutant)) for mutant, tests in aims), limits, heard)
        return outcomes


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
