"""What came of a run's tasks, beside what the same tasks come to undisturbed."""

from collections.abc import Sequence

import msgspec

from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local.measure import Check, Work, checks
from unicron.controlplane.local.reference import Reference
from unicron.controlplane.replay.replayer import Replayer
from unicron.events import Recorded, TaskSpec, UnicronError

SAME = "the final state is bit-identical"
LOSSES = "the loss of every iteration is the reference's"


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a run. `digest`: of its final state, None if it has none. `reference` None: its
    undisturbed run failed, because of `missing`."""

    spec: TaskSpec
    work: Work
    digest: str | None
    reference: Reference | None
    missing: str = ""

    @property
    def bit_identical(self) -> bool:
        """Parameters and optimizer state equal the reference's."""
        return self.reference is not None and self.digest == self.reference.state_digest


def outcome_of(
    spec: TaskSpec, state: ClusterState, work: Work, reference: Reference | UnicronError
) -> TaskOutcome:
    """`reference`: the undisturbed run, or why there is none."""
    return TaskOutcome(
        spec=spec,
        work=work,
        digest=next(iter(state.tasks[spec.task].finished.values()), None),
        reference=reference if isinstance(reference, Reference) else None,
        missing=reference.what if isinstance(reference, UnicronError) else "",
    )


def verdicts(
    outcomes: tuple[TaskOutcome, ...], state: ClusterState, events: list[Recorded]
) -> list[Check]:
    """All that must hold, over all tasks."""
    names = [outcome.spec.task for outcome in outcomes]
    each = [[*checks(o.spec, state, events, o.work), *_compared(o)] for o in outcomes]
    return [*_together(names, each), _replays(events)]


def _together(names: Sequence[str], each: list[list[Check]]) -> list[Check]:
    """One check of each name: it holds if it does for every task."""
    found = []
    for same in zip(*each, strict=True):
        told = {task: check.detail for task, check in zip(names, same, strict=True)}
        details = [*told.values()]
        alike = len({*details}) == 1
        detail = details[0] if alike else "; ".join(f"{t}: {d}" for t, d in told.items())
        found.append(Check(name=same[0].name, ok=all(c.ok for c in same), detail=detail))
    return found


def _compared(outcome: TaskOutcome) -> list[Check]:
    """Final state and losses against the reference's."""
    if outcome.reference is None:
        detail = f"can't be said: the reference run failed, {outcome.missing}"
        return [Check(name=name, ok=False, detail=detail) for name in (SAME, LOSSES)]
    ours, theirs = outcome.work, outcome.reference.work
    iterations = outcome.spec.iterations
    wrong = [
        i
        for i in range(iterations)
        if len(ours.losses.get(i, ())) != 1 or ours.losses[i] != theirs.losses.get(i)
    ]
    return [
        Check(
            name=SAME,
            ok=outcome.bit_identical,
            detail=f"{(outcome.digest or '?')[:16]} against {outcome.reference.state_digest[:16]}",
        ),
        Check(
            name=LOSSES,
            ok=not wrong,
            detail=f"{iterations} iterations" if not wrong else f"not in {wrong[:8]}",
        ),
    ]


def _replays(events: list[Recorded]) -> Check:
    name = "the log replays, and every decision is decided again"
    try:
        report = Replayer(events).verify()
        report.require()
    except UnicronError as error:
        return Check(name=name, ok=False, detail=error.what)
    return Check(name=name, ok=True, detail=f"{report.events} events, {report.redecided} decisions")
