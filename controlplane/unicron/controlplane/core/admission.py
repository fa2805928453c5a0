"""May a task be planned for at all? Said before anything is done for it, since one task whose
sizes make no sense would make every plan of the cluster impossible."""

from typing import Final

from unicron.controlplane.core import limits
from unicron.controlplane.core.problem import DEVICE_GFLOPS, options_of
from unicron.events import TaskSpec
from unicron.planner.errors import BadProblem
from unicron.planner.problem import PlanProblem, TaskDemand
from unicron.planner.validation import validate

#: Beyond these the planner's work or its integers grow out of hand.
SIZE_MAX: Final = 2**24
MICRO_BATCHES_MAX: Final = 65_536
WEIGHT_MILLI_MAX: Final = 1_000_000


def fault_of(spec: TaskSpec) -> str:
    """Why this task can't be run, or ""."""
    if spec.tensor_parallel != 1 or spec.pipeline_parallel != 1:
        return "this version trains with tensor and pipeline parallel size 1 only"
    model = spec.model
    ranges = {
        "iterations": (spec.iterations, 1, 2**53),
        "micro_batches": (spec.micro_batches, 1, MICRO_BATCHES_MAX),
        "weight_milli": (spec.weight_milli, 1, WEIGHT_MILLI_MAX),
        "max_devices": (spec.max_devices, 1, SIZE_MAX),
        "min_devices": (spec.min_devices, 0, min(spec.max_devices, spec.micro_batches)),
        "model.num_layers": (model.num_layers, 1, SIZE_MAX),
        "model.hidden_size": (model.hidden_size, 1, SIZE_MAX),
        "model.num_attention_heads": (model.num_attention_heads, 1, SIZE_MAX),
        "model.seq_length": (model.seq_length, 1, SIZE_MAX),
        "model.vocab_size": (model.vocab_size, 1, SIZE_MAX),
        "model.micro_batch_size": (model.micro_batch_size, 1, SIZE_MAX),
    }
    for name, (value, low, high) in ranges.items():
        if not low <= value <= high:
            return f"{name} is {value}: it must be from {low} to {high}"
    try:
        _validate(spec, max(DEVICE_GFLOPS, key=DEVICE_GFLOPS.__getitem__))
    except BadProblem as error:
        return f"it can't be planned for: {error}"
    return ""


def _validate(spec: TaskSpec, kind: str) -> None:
    """Raises BadProblem. The fastest kind of device gives the largest numbers."""
    demand = TaskDemand(
        task=spec.task,
        weight_milli=spec.weight_milli,
        min_devices=spec.min_devices,
        max_devices=spec.max_devices,
        options=options_of(spec, kind),
        transition_ms=limits.TRANSITION_MS,
    )
    validate(
        PlanProblem(
            computed_at=0, nodes=(), tasks=(demand,), expected_run_ms=limits.EXPECTED_RUN_MS
        )
    )
