"""Worker processes: orders to start and stop them, and what became of them."""

from unicron.events.base import Decision, Fact, Part
from unicron.events.ids import Generation, Incarnation, NodeId, TaskId, WorkerId
from unicron.events.task import TaskSpec


class WorkerStartOrdered(Decision, frozen=True, kw_only=True, tag="worker.start_ordered.v1"):
    """The node's agent shall start this incarnation of the worker. `incarnation` is assigned by
    the log and grows for each start of one worker, so a repeated order starts nothing twice.
    `agent`: the life of the node's agent that is meant; another one, which has no memory of it,
    must not obey (0: as older versions wrote it, any). `spec` makes the order complete: an agent
    that came late needs nothing else."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    node: NodeId
    device: int
    spec: TaskSpec
    reason: str
    agent: Incarnation = Incarnation(0)


class WorkerStopOrdered(Decision, frozen=True, kw_only=True, tag="worker.stop_ordered.v1"):
    """The node's agent shall end this incarnation. `grace_ms` 0 means SIGKILL at once."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    node: NodeId
    grace_ms: int
    reason: str


class WorkerStarted(Fact, frozen=True, kw_only=True, tag="worker.started.v1"):
    """The agent forked the worker."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    pid: int


class WorkerStartFailed(Fact, frozen=True, kw_only=True, tag="worker.start_failed.v1"):
    """The agent could not start the worker."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    error: str


class WorkerPrepared(Fact, frozen=True, kw_only=True, tag="worker.prepared.v1"):
    """The worker has built its model apart from any collective and waits for an order.

    `threads`, `torch`, `megatron` and `spec_digest` must be equal in all members of a task, or
    results are not reproducible.
    """

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    parameters: int
    threads: int
    torch: str
    megatron: str
    spec_digest: str


class WorkerExited(Fact, frozen=True, kw_only=True, tag="worker.exited.v1"):
    """The worker's process is gone. Exactly one of `exit_code` and `signal` is not None, or
    neither when an agent that came back found it gone. `ordered`: we had asked for it.

    `iteration`, `micro_batches_done` and `phase` are what its progress page last said.
    """

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    exit_code: int | None
    signal: int | None
    ordered: bool
    iteration: int = -1
    micro_batches_done: int = 0
    phase: str = ""


class PeerErrorReported(Fact, frozen=True, kw_only=True, tag="worker.peer_error.v1"):
    """A collective broke under the worker (connection closed, reset, time-out). A symptom: it
    closes the generation and never sets the severity."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    generation: Generation
    iteration: int
    phase: str
    error: str


class LongText(Part, frozen=True, kw_only=True):
    """A text that was too long for the log. The whole of it lies beside the log, for people, under
    the sha256 of its `size` bytes (UTF-8); for how long is the operator's choice."""

    sha256: str
    size: int


class ExceptionReported(Fact, frozen=True, kw_only=True, tag="worker.exception.v1"):
    """The training step raised. `kind` is the key of the severity table. `whole`: of a traceback
    that was cut."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    generation: Generation
    iteration: int
    phase: str
    kind: str
    message: str
    traceback: str = ""
    whole: LongText | None = None


class WorkerSlow(Decision, frozen=True, kw_only=True, tag="worker.slow.v1"):
    """The monitor's opinion: the worker takes `percent` of what the other members of its task take
    for a micro-batch, iteration after iteration; 100: it no longer does. It is named, not killed.
    """

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    percent: int
    evidence: str
