"""Many runs: each seed run and audited, on several cores, with what they found."""

import contextlib
import logging
import multiprocessing
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import msgspec

from unicron.controlplane.testing import simulation
from unicron.controlplane.testing.audit import Auditor, mismatches
from unicron.controlplane.testing.marks import marks
from unicron.controlplane.testing.options import Options
from unicron.controlplane.testing.outcome import Outcome
from unicron.controlplane.testing.seeds import options_of
from unicron.worker_shim.process import die_with_parent

#: Exit codes of the simulator.
CLEAN, VIOLATED, NOT_LIVE, MISMATCH = 0, 10, 11, 12


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must hold and didn't. `name`: of the invariant, or ``liveness`` or
    ``replay``."""

    name: str
    what: str
    seq: int = 0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run in figures. `seconds`: virtual time. `digest`: of trace and log. `marks`: what came
    about, and how often: it shows that a run wasn't idle."""

    seed: int
    events: int
    faults_fired: int
    fired: dict[str, int]
    marks: dict[str, int]
    decisions: int
    seconds: float
    digest: str
    code: int
    violations: tuple[Finding, ...]


def examine(options: Options, auditor: Auditor) -> tuple[Outcome, Result]:
    """Run it through its three phases."""
    with _quiet():
        outcome = simulation.run(options)
    found = [Finding(name=v.invariant, what=v.what, seq=v.seq) for v in outcome.violations]
    code = VIOLATED if found else CLEAN
    if outcome.stuck:
        found.append(Finding(name="liveness", what=outcome.stuck, seq=outcome.state.seq))
        code = code or NOT_LIVE
    if not outcome.violations:
        wrong = mismatches(outcome, auditor.judge(outcome))
        found += [Finding(name="replay", what=what) for what in wrong]
        code = code or (MISMATCH if wrong else CLEAN)
    bases = [r.envelope.basis for r in outcome.log if r.envelope is not None]
    return outcome, Result(
        seed=options.seed,
        events=len(outcome.log),
        faults_fired=outcome.faults_fired,
        fired=outcome.fired,
        marks=marks(outcome),
        decisions=sum(basis is not None for basis in bases),
        seconds=round(outcome.seconds, 3),
        digest=outcome.digest,
        code=code,
        violations=tuple(found),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is logged: the trace tells all there is."""
    ours = logging.getLogger("unicron")
    before = ours.level
    ours.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        ours.setLevel(before)


_auditor: Auditor | None = None


def _one(seed: int) -> Result:
    """In a process of the pool, which keeps its auditor."""
    global _auditor  # noqa: PLW0603
    if _auditor is None:
        _auditor = Auditor()
    return examine(options_of(seed), _auditor)[1]


def campaign(seeds: range, jobs: int) -> Iterator[Result]:
    """The results of all seeds, in their order, as they come."""
    context = multiprocessing.get_context("spawn")
    # A pool whose owner is killed would wait for work for ever.
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=die_with_parent, initargs=(os.getpid(),)
    ) as pool:
        yield from pool.map(_one, seeds)


def commit() -> str:
    """The commit this code is from, with a + if it was changed since; else the version."""
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        told = [
            subprocess.run(
                ["git", "-C", folder, *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            ).stdout.strip()
            for arguments in (
                ("rev-parse", "--short=12", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        ]
    except (OSError, subprocess.SubprocessError):
        from importlib.metadata import version

        return f"version {version('unicron-controlplane')}"
    return f"commit {told[0]}{'+' if told[1] else ''}"
