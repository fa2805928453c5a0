"""What the log says about the cluster, as immutable values.

Maps are dicts that nobody changes in place: every fold step makes new ones. No sets and no
floats, so the canonical encoding, and with it the digest, is a function of the history alone.
"""

import msgspec

from unicron.events import (
    Allocation,
    Generation,
    Incarnation,
    IncidentId,
    NodeId,
    OrderedMember,
    Planning,
    Sequence,
    TaskId,
    TaskSpec,
    Term,
    WorkerId,
)

#: Version of the meaning of events: grows when the same history gives another state.
FOLD_VERSION = 4


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all parts of the state."""


class SourceState(Value, frozen=True, kw_only=True):
    """How far one source has been heard. `past`: its earlier lives, newest last (bounded)."""

    incarnation: Incarnation
    counter: int
    past: tuple[Incarnation, ...] = ()


class NodeState(Value, frozen=True, kw_only=True):
    """One node. `status` is a key of tables.NODE. `last_fact`: newest fact of its agent. `sick`:
    why it must be kept apart, whatever its agent says, until an operator gives it back.
    `given_up`: devices on which worker after worker failed. `cut`: the connection of its agent
    that closed, with all its workers', for as long as the limit; since `cut_at`."""

    node: NodeId
    incarnation: Incarnation
    status: str
    since: Sequence
    address: str
    store_port: int
    devices: int
    device_kind: str
    rack: str
    last_fact: Sequence
    confirmed: bool = False
    reason: str = ""
    sick: str = ""
    given_up: tuple[int, ...] = ()
    cut: str = ""
    cut_at: Sequence = Sequence(0)


class Failure(Value, frozen=True, kw_only=True):
    """One failure of a worker slot: its signature and the iteration at which it came."""

    signature: str
    iteration: int


class WorkerState(Value, frozen=True, kw_only=True):
    """The newest incarnation of one worker slot. `status` is a key of tables.WORKER.

    `order`: sequence of the start order; `stop_order`: of the stop order or 0. `begun`: its agent
    has heard of it. `joined_at`: the iteration at which it first held the training state, -1
    before. `overdue`: it outlived its stop, or the time to leave its device to another task.
    `failures`: those of the slot since it last trained well for a while.
    """

    worker: WorkerId
    task: TaskId
    node: NodeId
    device: int
    incarnation: Incarnation
    status: str
    order: Sequence
    stop_order: Sequence = Sequence(0)
    begun: bool = False
    joined_at: int = -1
    overdue: bool = False
    failures: tuple[Failure, ...] = ()
    spec_digest: str = ""
    slow_percent: int = 0

    @property
    def joined(self) -> bool:
        """It holds, or has held, the training state."""
        return self.joined_at >= 0


class Member(Value, frozen=True, kw_only=True):
    """A member of a generation."""

    worker: WorkerId
    incarnation: Incarnation
    rank: int


class Answer(Value, frozen=True, kw_only=True):
    """What a member said it holds after its generation was closed (MemberQuiesced)."""

    incarnation: Incarnation
    iteration: int
    kept: tuple[int, ...]
    reduced: bool
    voted: bool
    at: Sequence


class StepTime(Value, frozen=True, kw_only=True):
    """What an iteration was measured to take in one layout on one kind of device (TaskMeasured,
    `at`). `iteration`: where the task stood then; its age is counted in iterations since."""

    kind: str
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    step_us: int
    spread_us: int
    samples: int
    iteration: int
    generation: Generation
    at: Sequence


class TransitionTime(Value, frozen=True, kw_only=True):
    """How long the transition to `generation` kept a task from training."""

    generation: Generation
    took_ms: int


class TaskState(Value, frozen=True, kw_only=True):
    """One task. `phase` is a key of tables.TASK.

    `generation`: highest that the log assigned. `members`: who stands in the running generation
    (in a planned transition: still the old one). `target`: whom the transition in progress
    wants. `broken`: sequences that broke the generation. `answers`, `ready`, `committed`,
    `finished` by worker. `iteration`: where it stands, as far as heard. `trained`: it ever did.
    `closes`: generations that faults cost so far. `late`: orders in a row that were not carried
    out in time. `fruitless`: generations in a row of the same members that committed nothing.
    `blame`: why the task itself is at fault. `step_times`: one for each layout and kind, newest
    last; `transition_times`: the newest last. Both are bounded.
    """

    spec: TaskSpec
    phase: str
    since: Sequence
    submitted: Sequence
    generation: Generation = Generation(0)
    members: tuple[Member, ...] = ()
    target: tuple[OrderedMember, ...] = ()
    planned: bool = False
    order: Sequence = Sequence(0)
    close: Sequence = Sequence(0)
    broken: tuple[Sequence, ...] = ()
    broken_by: str = ""
    answers: dict[str, Answer] = {}
    ready: dict[str, int] = {}
    committed: dict[str, int] = {}
    finished: dict[str, str] = {}
    iteration: int = 0
    trained: bool = False
    closes: int = 0
    late: int = 0
    fruitless: int = 0
    overdue: bool = False
    blame: str = ""
    allocation: Allocation | None = None
    planned_at: Sequence = Sequence(0)
    step_times: tuple[StepTime, ...] = ()
    transition_times: tuple[TransitionTime, ...] = ()
    incident: IncidentId | None = None
    outcome: str = ""


class Cause(Value, frozen=True, kw_only=True):
    """Evidence of a failure that no incident covers yet."""

    at: Sequence
    severity: int
    what: str
    task: TaskId | None = None
    node: NodeId | None = None
    worker: WorkerId | None = None


class IncidentState(Value, frozen=True, kw_only=True):
    """One incident. `evidence`: sequences of what belongs to it. `isolated`: its node was."""

    incident: IncidentId
    opened: Sequence
    severity: int
    task: TaskId | None
    node: NodeId | None
    worker: WorkerId | None
    what: str
    evidence: tuple[Sequence, ...]
    isolated: bool = False
    resolved: Sequence = Sequence(0)
    outcome: str = ""


class PlanState(Value, frozen=True, kw_only=True):
    """The planner's desk. `wanted`: sequence of the newest event that calls for a plan of the
    whole cluster, with `reason`; `request`: the open request, 0 if none; `answer`: sequence of
    its PlanSolved waiting for a decision, 0 if none."""

    wanted: Sequence = Sequence(0)
    reason: str = ""
    request: Sequence = Sequence(0)
    answer: Sequence = Sequence(0)
    answered: tuple[Allocation, ...] = ()
    source: str = ""
    value: int = 0
    waf_milli: int = 0
    explanation: tuple[str, ...] = ()
    error: str = ""
    failures: int = 0


class ClusterState(Value, frozen=True, kw_only=True):
    """Everything the log says. `seq`: last sequence folded. `void`: decisions that no longer
    applied when they were folded. `duplicates`, `gaps`, `unknown`: counts of what was dropped,
    missing, or not understood. `connections`: client name -> its newest connection as
    "server/number", with a "-" before it once it is closed, "-~" if most agents' were then.
    `planning`: as it was configured last."""

    cluster: str = ""
    seq: Sequence = Sequence(0)
    term: Term = Term(0)
    leader: str = ""
    sources: dict[str, SourceState] = {}
    connections: dict[str, str] = {}
    nodes: dict[str, NodeState] = {}
    workers: dict[str, WorkerState] = {}
    tasks: dict[str, TaskState] = {}
    incidents: dict[str, IncidentState] = {}
    causes: tuple[Cause, ...] = ()
    plan: PlanState = PlanState()
    planning: Planning = Planning()
    void: int = 0
    duplicates: int = 0
    gaps: int = 0
    unknown: int = 0
    unknown_decisions: int = 0
