"""The story of one incident, in the order in which people ask: is it over and what did it cost,
who was hit, what happened when, what was the cause, why this answer, can I trust it, what now.

Texts are for people, on one line and without control characters; `StoryEvent.fields` alone holds
what stands in the log as it is. `t_plus_ms`: stream time since the first evidence; negative for
what came before.
"""

from typing import Any, Final

import msgspec

from unicron.controlplane.replay.steps import IncidentSteps
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.events import Generation, NodeId, Sequence, TaskId, WorkerId


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `kind`: ``observed``, ``decided`` or ``done``. `type`: its tag. `cause`: sequences
    that led to it, as recorded. `because`: all that did, recorded or told by the events' own
    content (an answer follows its order, a new life the end of the one before), ascending. `void`:
    the decision no longer applied when it reached the log. `fields`: its content, decoded."""

    seq: Sequence
    at_ns: int
    t_plus_ms: int
    kind: str
    who: str
    type: str
    what: str
    cause: tuple[Sequence, ...]
    because: tuple[Sequence, ...]
    void: bool
    term: Sequence
    fields: dict[str, Any]


class TaskMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A task after the event `seq`. `devices`: members of the generation that trains, 0 if none
    does. `gflops`: its throughput by the planner's cost model; 0 if it doesn't train. `workers`:
    members by rank. `iteration`: as far as it was heard; before an incident: that in which they
    stopped."""

    seq: Sequence
    at_ns: int
    t_plus_ms: int
    phase: str
    generation: Generation
    iteration: int
    devices: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    gflops: int
    workers: tuple[WorkerId, ...]


class TaskPassage(msgspec.Struct, frozen=True, kw_only=True):
    """One task through an incident. `before`: just before its first evidence. `during`: the
    smallest generation it trained in, or where it stood still if it did not train again. `after`:
    at the incident's end; None while it is open. `whole`: when it first had its throughput of
    before again, if that was after the incident's end."""

    task: TaskId
    hit: bool
    before: TaskMoment
    during: TaskMoment
    after: TaskMoment | None
    whole: TaskMoment | None


class ThroughputPoint(msgspec.Struct, frozen=True, kw_only=True):
    """From `at_ns` on, up to the next point. `seq`: the event that changed it."""

    at_ns: int
    t_plus_ms: int
    seq: Sequence
    gflops: int
    devices: int
    generation: Generation


class ThroughputCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Piecewise constant. The first point is from before the first evidence, what holds at the last
    one holds up to `to_ns`, where the cost's count ends."""

    task: TaskId
    to_ns: int
    points: tuple[ThroughputPoint, ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Something that spoke for the incident. `weight`: ``cause`` (says what failed), ``symptom``
    (says only that something did, elsewhere perhaps) or ``suspicion`` (says that something is not
    heard)."""

    seq: Sequence
    t_plus_ms: int
    weight: str
    who: str
    what: str


class GivenDevices(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan gives to one task, or what it had. `gflops`: by the cost model, 0 if parked."""

    task: TaskId
    devices: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    gflops: int
    slots: tuple[tuple[NodeId, int], ...]


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another answer to the same problem. `name`: ``local``, ``dp``, ``cpsat``, a strategy (see
    PlanChoice) or ``wait`` (the tasks that were hit stand still until what they lost is back).
    Thousandths of weighted GFLOP/s; `loss_milli`: how much less than the plan it is worth,
    negative if more."""

    name: str
    what: str
    value_milli: int
    waf_milli: int
    loss_milli: int


#: Allocations that a plan is compared with, by name.
STRATEGIES: Final = {
    "equal": "equal shares",
    "weighted": "shares by weight",
    "sized": "shares by model size",
    "current": "only who was hit changes",
}
#: States of a trade.
WAITS, RELEASED, PASSED_ON, WITHDRAWN = "waits", "released", "passed on", "withdrawn"


class Trade(msgspec.Struct, frozen=True, kw_only=True):
    """A device that passes from one task to another. Sequences and times are None for what has not
    happened (yet).

    `state`: ``waits`` for the release, ``released``, ``passed on`` (the receiver trains on it) or
    ``withdrawn`` (by another plan, or by the end of a task). `wait_ms`: from the plan to the
    release, the end of the donor's worker; `idle_ms`: from there to the first iteration that the
    receiver committed with it, in which the device did nothing for anybody.

    `donor_stall_ms`, `receiver_stall_ms`: how long those of either task who stayed stood still for
    the change: as they said themselves when they switched at an iteration's end, else from the
    close of the generation to the first iteration after it.
    """

    device: WorkerId
    donor: TaskId
    receiver: TaskId
    state: str
    planned_seq: Sequence
    released_seq: Sequence | None
    started_seq: Sequence | None
    trains_seq: Sequence | None
    wait_ms: int | None
    idle_ms: int | None
    donor_stall_ms: int | None
    receiver_stall_ms: int | None


class PlanChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that was taken or dropped. `source`: ``local``, ``dp`` or ``cpsat``, "" if there was
    no answer. `computed_at`: the state it was computed on. `request_seq`, `solved_seq`: the
    planner's question and answer, None for the local one. `value_milli` and `waf_milli`:
    thousandths of weighted GFLOP/s, with and without the price of changing over. `explanation`,
    `statistics`: the planner's own. `changes`: tasks whose devices it changes, before and after.

    `alternatives`: computed again from the state; `comparable` is False, and there are none, if
    this version's planner would see another problem in that state than was solved. `strategies`:
    what allocations that don't look at the value would have been worth, for a plan of the whole
    cluster: ``equal``, ``weighted`` and ``sized`` shares, and ``current``, where only who was hit
    shrinks. `trades`: devices that pass from one task to another by it.
    """

    seq: Sequence
    t_plus_ms: int
    taken: bool
    void: bool
    source: str
    computed_at: Sequence
    request_seq: Sequence | None
    solved_seq: Sequence | None
    value_milli: int
    waf_milli: int
    reason: str
    explanation: tuple[str, ...]
    statistics: tuple[tuple[str, int], ...]
    before: tuple[GivenDevices, ...]
    after: tuple[GivenDevices, ...]
    comparable: bool
    alternatives: tuple[Alternative, ...]
    strategies: tuple[Alternative, ...] = ()
    trades: tuple[Trade, ...] = ()


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Someone carried out an order, or its part of it."""

    seq: Sequence
    t_plus_ms: int
    who: str
    what: str


class GivenOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order and what was done about it. `because`: sequences that led to it."""

    seq: Sequence
    t_plus_ms: int
    type: str
    what: str
    because: tuple[Sequence, ...]
    void: bool
    answers: tuple[OrderAnswer, ...]


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who decided, from `term` on. `version`: of the software."""

    term: Sequence
    instance: str
    version: str
    logic_version: int
    fold_version: int


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """How far the record holds. `verified`: True, False (see `first_wrong_seq`, `message`) or None
    if nobody looked. Every entry from `from_seq` to `to_seq` was folded; `redecided` decisions were
    made again and came out the same; `other_versions` could not be, since other versions of the
    rules made them. `state_digest`, `chain`: hex, after `to_seq`. `leaders`: who led during what is
    told, oldest first."""

    verified: bool | None
    from_seq: Sequence
    to_seq: Sequence
    first_wrong_seq: Sequence | None
    message: str
    redecided: int
    other_versions: int
    state_digest: str
    chain: str
    leaders: tuple[Leader, ...]


class NextCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command to type: `arguments` after ``unicron``, without those that name the log."""

    arguments: tuple[str, ...]
    about: str


class NowState(msgspec.Struct, frozen=True, kw_only=True):
    """How something that the incident hit stands at the end of the log. `kind`: ``node``, ``task``,
    ``worker`` or ``incident``; `state`: its status; `since_seq`: since when; `what`: in words, with
    what would mend it."""

    kind: str
    name: str
    state: str
    since_seq: Sequence
    what: str


class IncidentStory(msgspec.Struct, frozen=True, kw_only=True):
    """One incident. `headline`: sentences. `disagreements`: where evidence contradicted, and what
    was made of it. `events`: all that belong to it, in the order of the log."""

    incident: IncidentSummary
    headline: tuple[str, ...]
    tasks: tuple[TaskPassage, ...]
    steps: IncidentSteps
    throughput: tuple[ThroughputCurve, ...]
    evidence: tuple[Evidence, ...]
    disagreements: tuple[str, ...]
    plans: tuple[PlanChoice, ...]
    orders: tuple[GivenOrder, ...]
    trust: Trust
    now: tuple[NowState, ...]
    commands: tuple[NextCommand, ...]
    events: tuple[StoryEvent, ...]
