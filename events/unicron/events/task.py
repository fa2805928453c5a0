"""Tasks: what the user wants trained."""

from unicron.events.base import Decision, Part
from unicron.events.ids import Generation, NodeId, TaskId, WorkerId


class GPTSpec(Part, frozen=True, kw_only=True):
    """The model, as Megatron names its sizes (TransformerConfig, GPTModel)."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    seq_length: int
    vocab_size: int
    micro_batch_size: int
    dropout_ppm: int = 0
    bf16: bool = False


class OptimizerSpec(Part, frozen=True, kw_only=True):
    """Adam as Megatron's OptimizerConfig takes it. Rates in parts per billion: no floats here."""

    lr_ppb: int
    min_lr_ppb: int
    weight_decay_ppb: int = 10_000_000
    clip_grad_ppm: int = 1_000_000
    warmup_iterations: int = 2
    decay_iterations: int = 1000


class TaskSpec(Part, frozen=True, kw_only=True):
    """One training job.

    `micro_batches`: micro-batches of one iteration over all replicas (global batch size divided
    by micro-batch size); fixed for the task's life. `weight_milli`: the plan's weight times
    1000. `iterations`: when the task is done. `data`: directory or file with the training text;
    "" means the Python standard library's source files.

    `min_devices` and `min_gflops` (of the whole task, in GFLOP/s) are what it must have; where not
    all tasks can, those of the lowest `priority` go without. `tenant`: whose quotas it counts
    against. `device_kinds`: on which kinds of devices it may run, on one at a time; none: on any.
    `avoid`: nodes it must not use.
    """

    task: TaskId
    iterations: int
    micro_batches: int
    model: GPTSpec
    optimizer: OptimizerSpec
    seed: int = 1234
    weight_milli: int = 1000
    min_devices: int = 1
    max_devices: int = 8
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data: str = ""
    priority: int = 0
    tenant: str = ""
    device_kinds: tuple[str, ...] = ()
    min_gflops: int = 0
    avoid: tuple[NodeId, ...] = ()


class TaskSubmitted(Decision, frozen=True, kw_only=True, tag="task.submitted.v1"):
    """An operator or a scheduler handed in a task."""

    spec: TaskSpec
    by: str


class TaskCompleted(Decision, frozen=True, kw_only=True, tag="task.completed.v1"):
    """All members finished the last iteration with equal state."""

    task: TaskId
    iteration: int
    state_digest: str


class TaskFailed(Decision, frozen=True, kw_only=True, tag="task.failed.v1"):
    """The task ended without finishing; `reason` says why and what to do."""

    task: TaskId
    reason: str


class TaskStalled(Decision, frozen=True, kw_only=True, tag="task.stalled.v1"):
    """The monitor's opinion: no member of the generation has made progress for `stalled_ms`.

    `behind`: the members that stand strictly behind the others, who wait for them in a collective;
    none if all stand at the same place. Void if the task is in another generation by now.
    """

    task: TaskId
    generation: Generation
    behind: tuple[WorkerId, ...]
    stalled_ms: int
    evidence: str


class TaskMeasured(Decision, frozen=True, kw_only=True, tag="task.measured.v1"):
    """The monitor's opinion: what an iteration takes the task, in this layout on this kind of
    device. Told when a layout has been measured well for the first time, and again when the figure
    has changed notably, or is old; at most once a minute.

    `step_us`: the median of `samples` times without outliers, each of one iteration or more by the
    leader's monotonic clock; `spread_us`: their median deviation from it. `iteration`: how many the
    task had committed by then, from which the age of the figure is counted. `transition_ms`: what
    the transition to this generation kept the task from training, beyond an iteration's own time;
    None if that was not seen, or has been told. Void if the task is in another generation or layout
    by now, if a plan is being made, or if it makes no sense.
    """

    task: TaskId
    generation: Generation
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    device_kind: str
    iteration: int
    step_us: int
    spread_us: int
    samples: int
    transition_ms: int | None = None
