"""Plans: who gets which devices, who answered, what was chosen and why."""

from unicron.events.base import Decision, Part
from unicron.events.ids import NodeId, TaskId


class Allocation(Part, frozen=True, kw_only=True):
    """What one task gets: its layout and its device slots ``(node, device)`` in rank order.
    No slots: the task is parked."""

    task: TaskId
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    slots: tuple[tuple[NodeId, int], ...]


class PlanRequested(Decision, frozen=True, kw_only=True, tag="plan.requested.v1"):
    """The solver shall plan the whole cluster on the state at this event's sequence."""

    reason: str


class PlanSolved(Decision, frozen=True, kw_only=True, tag="plan.solved.v2"):
    """The solver's answer entered the log. `request`: sequence of the PlanRequested. `error` is
    "" or why there is no answer. `statistics`: the solver's own integers, by name, and
    no times. `took_ms`: how long the answer took on the leader's clock; null if that wasn't
    measured."""

    request: int
    problem_digest: str
    source: str
    value: int
    waf_milli: int
    allocations: tuple[Allocation, ...]
    statistics: tuple[tuple[str, int], ...] = ()
    explanation: tuple[str, ...] = ()
    error: str = ""
    took_ms: int | None = None


class PlanDecided(Decision, frozen=True, kw_only=True, tag="plan.decided.v1"):
    """This allocation is in force from here on. `source`: ``local``, ``dp`` or ``cpsat``;
    `computed_at`: the state it was computed on."""

    source: str
    computed_at: int
    allocations: tuple[Allocation, ...]
    value: int
    waf_milli: int
    reason: str
    explanation: tuple[str, ...] = ()


class PlanDropped(Decision, frozen=True, kw_only=True, tag="plan.dropped.v1"):
    """The solver's answer is not applied: its cause or its basis has gone, or the check failed."""

    request: int
    reason: str
