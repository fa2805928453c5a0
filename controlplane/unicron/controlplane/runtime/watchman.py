"""Looks at every step of a running instance with the invariants that tests and simulator use.

What contradicts one is a bug of ours. The instance stops before anything is decided on such a
state; training goes on meanwhile. Started again it folds the same history without looking, and
watches from there on: a bug costs one restart and an alarm, not the control plane.
"""

import logging

from unicron.controlplane.core.invariants import (
    Violation,
    decision_violations,
    rest_violations,
    step_violations,
)
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.verdict import Verdict
from unicron.events import Recorded, UnicronError

log = logging.getLogger(__name__)

#: What anybody with rights on the whole log can contradict.
_OTHERS_CAN = "one_leader_writes"


class InvariantViolated(UnicronError):
    """The state or a decision contradicts what must always hold."""

    default_code = "E-INVARIANT"

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        first = violations[0]
        why = f"this contradicts {first.invariant}, which must always hold: "
        if first.invariant == _OTHERS_CAN:
            why += "who wrote it goes past the fence, as no control plane of Unicron does"
            fix = "see who else may write there; started again, it goes on from here"
        else:
            why += "a bug of Unicron"
            fix = "report it with `unicron replay --export`; started again, it goes on from here"
        super().__init__(f"at #{first.seq}: {first.what}", why=why, fix=fix)
        self.violations = violations


class Watchman:
    """`strict`: raise also for what waits without a limit, which otherwise is only logged."""

    def __init__(self, *, strict: bool) -> None:
        #: Off while history is folded, which can't be helped any more.
        self.on_duty = False
        self._strict = strict
        self._told: dict[str, None] = {}

    def folded(self, before: ClusterState, after: ClusterState, recorded: Recorded) -> None:
        """An event was folded. Raises InvariantViolated."""
        if self.on_duty:
            _object(step_violations(before, after, recorded))

    def decides(self, at: ClusterState, verdict: Verdict) -> None:
        """A decision is about to be written. Raises InvariantViolated."""
        _object(decision_violations(at, verdict))

    def rests(self, state: ClusterState) -> None:
        """There is nothing to decide. Raises InvariantViolated if strict."""
        found = rest_violations(state)
        if self._strict:
            _object(found)
        told, self._told = self._told, {v.what: None for v in found}
        for violation in found:
            if violation.what not in told:
                log.error("#%d: %s (%s)", violation.seq, violation.what, violation.invariant)


def _object(violations: tuple[Violation, ...]) -> None:
    if violations:
        raise InvariantViolated(violations)
