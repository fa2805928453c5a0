"""pytest, as a mutation run uses it: collected once, its tests run one by one in forked children.

`record` finds out which tests execute what; `swapped` tries mutants of functions in children of
one process that has collected everything; `fresh` lets a child collect for itself, with a mutant
of what runs at import.
"""

import contextlib
import gc
import importlib.util
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation.forks import Ended, Job, Say, call, limit, run_all
from tests.mutation.reach import Reach, Tracer, file_of
from tests.mutation.source import Mutant
from tests.mutation.swap import import_instead, swap

#: A test may use so many times the CPU seconds that it took without a mutant, and some more.
TIMES = 20
#: And may take so long in all, for those that wait for what never comes.
WALL_S = 120
KILLED = 10

OPTIONS = ["-q", "-p", "no:cacheprovider", "--capture=no", "-o", "timeout=0"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]


@dataclass(frozen=True, slots=True)
class Try:
    """A mutant and the tests to try it on, in this order."""

    mutant: Mutant
    tests: list[str]


Heard = Callable[[Try, Ended], None]
Loop = Callable[[dict[str, pytest.Item]], None]
Early = Callable[[str], Tracer]


class Session:
    """One pytest session over the tests in question, from the folder that pytest runs in."""

    def __init__(self, tests: list[str], jobs: int, patience_s: float) -> None:
        self.tests = tests
        self.jobs = jobs
        self.patience_s = patience_s
        self.folder = tempfile.mkdtemp(prefix="mutants-")

    def run(self, loop: Loop, files: list[str] | None = None, early: Early | None = None) -> int:
        """Collect the tests, or those of some files, then do this instead of running them."""
        with _quiet():
            return pytest.main([*(files or self.tests), *OPTIONS], [_Plugin(loop, early)])

    def record(self, paths: list[Path]) -> Reach:
        """Run every test once, each in a child of its own, so that nothing is remembered from an
        earlier one."""
        return call(lambda: self._record(paths))

    def _record(self, paths: list[Path]) -> Reach:
        reach = Reach()
        tracers: dict[str, Tracer] = {}

        def loop(items: dict[str, pytest.Item]) -> None:
            jobs = ((name, self._recorded(paths, item)) for name, item in items.items())
            for name, ended in run_all(jobs, self.jobs):
                if ended.status:
                    reach.broken.append(name)
                else:
                    reach.add(name, *pickle.loads(ended.said))
            reach.loaded = [m for m, module in sys.modules.items() if _is_foreign(module)]

        status = self.run(loop, early=lambda name: tracers.setdefault(name, Tracer(paths)))
        reach.early = {name: tracer.lines for name, tracer in tracers.items()}
        if status:
            raise RuntimeError(f"pytest could not collect the tests: exit status {status}")
        return reach

    def _recorded(self, paths: list[Path], item: pytest.Item) -> Job:
        def job(say: Say) -> None:
            self._own_folder()
            limit(600, 600)
            tracer = Tracer(paths)
            began = time.process_time()
            tracer.start()
            passed = _passes(item, None)
            lines = tracer.stop()
            if not passed:
                sys.exit(KILLED)
            say(pickle.dumps((time.process_time() - began, lines)))

        return job

    def swapped(self, tries: Iterator[Try], limits: dict[str, float], heard: Heard) -> None:
        """Try mutants of functions, in children of one that has collected everything. What comes
        of each is told to `heard`, in that one."""

        def loop(items: dict[str, pytest.Item]) -> None:
            gc.collect()
            gc.freeze()
            self._all(tries, lambda t: self._swapped(t, items, limits), heard)

        self.run(loop)

    def _swapped(self, tried: Try, items: dict[str, pytest.Item], limits: dict[str, float]) -> Job:
        def job(say: Say) -> None:
            self._own_folder()
            swap(tried.mutant)
            self._one_by_one([items[name] for name in tried.tests], limits, say)

        return job

    def fresh(self, tries: Iterator[Try], limits: dict[str, float], heard: Heard) -> None:
        """Try mutants of what runs at import: each child collects the tests for itself."""
        self._all(tries, lambda t: self._fresh(t, limits), heard)

    def _fresh(self, tried: Try, limits: dict[str, float]) -> Job:
        def job(say: Say) -> None:
            self._own_folder()
            import_instead(tried.mutant)
            limit(60, WALL_S)

            def loop(items: dict[str, pytest.Item]) -> None:
                # A mutated table may have taken a case of a test with it; that isn't noticing.
                found = [items[name] for name in tried.tests if name in items]
                self._one_by_one(found, limits, say)

            # Test files that can't be collected any more have noticed.
            files = sorted({file_of(name) for name in tried.tests})
            sys.exit(KILLED if self.run(loop, files) else 0)

        return job

    def _all(self, tries: Iterator[Try], job: Callable[[Try], Job], heard: Heard) -> None:
        for tried, ended in run_all(((t, job(t)) for t in tries), self.jobs):
            heard(tried, ended)

    def _one_by_one(self, items: list[pytest.Item], limits: dict[str, float], say: Say) -> None:
        """Run tests until one fails. Says before each that it begins: what was said last has
        killed the mutant, if anything has."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            say(f"{item.nodeid}\n".encode())
            limit(TIMES * limits[item.nodeid] + self.patience_s, WALL_S)
            if not _passes(item, following):
                os._exit(KILLED)
        os._exit(0)

    def _own_folder(self) -> None:
        """Temporary folders of children don't get in each other's way."""
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(dir=self.folder)


class _Plugin:
    """Hands the collected tests to a loop of ours."""

    def __init__(self, loop: Loop, early: Early | None) -> None:
        self.loop = loop
        self.early = early

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """A test file is imported when its tests are collected."""
        if self.early is None or not isinstance(collector, pytest.Module):
            return (yield)
        tracer = self.early(collector.nodeid)
        tracer.start()
        try:
            return (yield)
        finally:
            tracer.stop()

    def pytest_configure(self) -> None:
        """Drawn examples are the same in every run, and a failing one is not made smaller."""
        if _has("hypothesis"):
            from hypothesis import Phase, settings

            settings.register_profile(
                "mutants",
                derandomize=True,
                database=None,
                deadline=None,
                phases=(Phase.explicit, Phase.generate),
            )
            settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of pytest's own."""
        if not session.testsfailed:
            self.loop({item.nodeid: item for item in session.items})
            return True
        raise session.Interrupted("tests can't be collected")


class _Verdict:
    """Notes whether the tests that run passed."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        self.failed |= report.failed


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    verdict = _Verdict()
    manager = item.config.pluginmanager
    manager.register(verdict)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    manager.unregister(verdict)
    return not verdict.failed


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _is_foreign(module: object) -> bool:
    path = getattr(module, "__file__", None) or ""
    return "site-packages" in path and "_pytest" not in path


def load(modules: list[str]) -> None:
    """Import what the tests will need anyway, and is not ours, before children are forked."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What pytest and the tests print goes nowhere."""
    sys.stdout.flush()
    kept = os.dup(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.close(silence)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
