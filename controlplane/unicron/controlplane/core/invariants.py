"""The invariants of the product, as named predicates with one sentence each.

The engine, the simulator and the property tests look at the same ones. Every predicate is pure;
its name and its docstring are the invariant's name and sentence. When it is looked at:

- ``event``: after every folded event; cheap, for it looks only at what the event changed;
- ``decision``: at a decision, on the state it is made on, before it is written;
- ``rest``: on a state on which decide() has nothing to say;
- ``reduction``: when the members of a generation reduce, on what they hold.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from unicron.controlplane.core.decision_invariants import DECISION_CHECKS
from unicron.controlplane.core.incident_invariants import INCIDENT_CHECKS
from unicron.controlplane.core.order_invariants import ORDER_CHECKS, REDUCTION_CHECKS, Parts
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.step import step_between
from unicron.controlplane.core.step_invariants import STEP_CHECKS
from unicron.controlplane.core.task_invariants import TASK_CHECKS
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.core.waiting import REST_CHECKS
from unicron.events import Recorded, Sequence, TaskSpec

Check = Callable[..., Iterator[str]]


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """Something that always holds. `check` yields, in words, what contradicts it; its arguments
    are those of the function for its `moment`, or a Step for ``event``."""

    name: str
    sentence: str
    moment: str
    check: Check


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that didn't hold. `what` names whom and how many; `seq`: the last event that
    was folded then."""

    invariant: str
    what: str
    seq: Sequence


def _named(moment: str, *checks: Check) -> tuple[Invariant, ...]:
    return tuple(
        Invariant(
            name=check.__name__,
            sentence=" ".join((inspect.getdoc(check) or "").split()),
            moment=moment,
            check=check,
        )
        for check in checks
    )


_EVENT: Final = _named("event", *STEP_CHECKS, *TASK_CHECKS, *INCIDENT_CHECKS)
_DECISION: Final = _named("decision", *DECISION_CHECKS, *ORDER_CHECKS)
_REST: Final = _named("rest", *REST_CHECKS)
_REDUCTION: Final = _named("reduction", *REDUCTION_CHECKS)

#: All of them, in a fixed order.
INVARIANTS: Final[tuple[Invariant, ...]] = (*_EVENT, *_DECISION, *_REST, *_REDUCTION)


def step_violations(
    before: ClusterState, after: ClusterState, recorded: Recorded
) -> tuple[Violation, ...]:
    """What is wrong with `after`, which folding `recorded` onto `before` gave. Empty: nothing."""
    return _violations(_EVENT, after.seq, step_between(before, after, recorded))


def decision_violations(at: ClusterState, verdict: Verdict) -> tuple[Violation, ...]:
    """What is wrong with a verdict of decide() on the state `at`. Inputs such as opinions and
    limits aren't decided, and have nothing to look at here."""
    strange = _violations(_DECISION[:1], at.seq, at, verdict)
    return strange or _violations(_DECISION[1:], at.seq, at, verdict)


def rest_violations(state: ClusterState) -> tuple[Violation, ...]:
    """Who or what waits without a limit in a state on which decide() has nothing to say."""
    return _violations(_REST, state.seq, state)


def samples_violations(spec: TaskSpec, parts: Parts, seq: Sequence) -> tuple[Violation, ...]:
    """What is wrong with a reduction to which each member brings `(iteration, micro-batch ids)`.
    `seq`: where the log stands meanwhile, for people."""
    return _violations(_REDUCTION, seq, spec, parts)


def _violations(
    invariants: tuple[Invariant, ...], seq: Sequence, *subject: object
) -> tuple[Violation, ...]:
    return tuple(
        Violation(invariant=invariant.name, what=what, seq=seq)
        for invariant in invariants
        for what in invariant.check(*subject)
    )
