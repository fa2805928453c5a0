"""A cluster at one sequence, on one screen; and one thing in it by its id."""

import msgspec

from unicron.controlplane.replay.story import NextCommand, StoryEvent
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.events import Generation, IncidentId, NodeId, Sequence, TaskId, WorkerId


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: a key of core.tables.NODE; `reason`: why, in words. `workers`: alive on it."""

    node: NodeId
    status: str
    since_seq: Sequence
    since_at_ns: int
    devices: int
    device_kind: str
    workers: int
    reason: str


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """`devices`: members of the generation that trains, of `devices_wanted` that the plan gives it.
    `gflops`: by the planner's cost model. `iteration` of `iterations`, as far as heard. `step_us`:
    what an iteration was measured to take as the task is laid out now, None if it wasn't;
    `assumed_step_us`: by the planner's cost model, None while it isn't laid out."""

    task: TaskId
    phase: str
    since_seq: Sequence
    generation: Generation
    iteration: int
    iterations: int
    devices: int
    devices_wanted: int
    data_parallel: int
    gflops: int
    step_us: int | None
    assumed_step_us: int | None
    incident: IncidentId | None
    outcome: str


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """`life`: its incarnation. `rank`: in the generation that stands, None if it is no member.
    `slow_percent`: of the others' time, 0 if it isn't slow or has ended."""

    worker: WorkerId
    life: int
    status: str
    task: TaskId
    rank: int | None
    slow_percent: int


class PlanDesk(msgspec.Struct, frozen=True, kw_only=True):
    """Is a plan of the whole cluster wanted, since when and why; `request_seq`: the open question
    to the planner; `failures`: answers in a row that were rejected."""

    wanted_seq: Sequence | None
    request_seq: Sequence | None
    reason: str
    failures: int


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything after the entry `at_seq`, the last one of `last_seq` that is shown. `log_lag_ms`:
    None where nobody can know (a file). `followers`: other control planes that are connected, as
    far as the server tells the log. `incidents`: the open ones. `configured`: what plans rest on
    otherwise than by default, in words. `void`, `duplicates`, `gaps`,
    `unknown`: entries that no longer applied, came twice, are missing, or weren't understood."""

    cluster: str
    at_seq: Sequence
    at_ns: int
    last_seq: Sequence
    log_lag_ms: int | None
    leader: str
    term: Sequence
    followers: tuple[str, ...]
    headline: str
    nodes: tuple[NodeView, ...]
    tasks: tuple[TaskView, ...]
    workers: tuple[WorkerView, ...]
    incidents: tuple[IncidentSummary, ...]
    incidents_over: int
    plan: PlanDesk
    configured: str
    void: int
    duplicates: int
    gaps: int
    unknown: int


class IdStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an id is and how it stands. `kind`: ``node``, ``task``, ``worker``, ``incident``,
    ``plan`` or ``event``. `facts`: name and value, in words. `events`: its last ones; their
    `t_plus_ms` counts from the first of them."""

    kind: str
    id: str
    at_seq: Sequence
    headline: str
    facts: tuple[tuple[str, str], ...]
    events: tuple[StoryEvent, ...]
    events_left_out: int
    commands: tuple[NextCommand, ...]
