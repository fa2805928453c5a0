"""May a task be planned for at all? Said before anything is done for it, since one task whose
sizes make no sense would make every plan of the cluster impossible."""

from typing import Final

from unicron.controlplane.core import limits
from unicron.controlplane.core.offers import options_of
from unicron.controlplane.core.speeds import gflops_of, known_kinds
from unicron.events import Planning, TaskSpec
from unicron.planner.errors import BadProblem
from unicron.planner.problem import PlanProblem, TaskDemand
from unicron.planner.validation import EXACT_MAX, validate

#: Beyond these the planner's work or its integers grow out of hand.
SIZE_MAX: Final = 2**24
MICRO_BATCHES_MAX: Final = 65_536
WEIGHT_MILLI_MAX: Final = 1_000_000
PRIORITY_MAX: Final = 1_000_000
#: Characters of a tenant's name; kinds of devices, and nodes to avoid, that a task may name.
NAME_MAX: Final = 64
KINDS_MAX: Final = 32
AVOIDED_MAX: Final = 1000


def fault_of(spec: TaskSpec, planning: Planning) -> str:
    """Why this task can't be run, with the field and what to give; or ""."""
    if spec.tensor_parallel != 1 or spec.pipeline_parallel != 1:
        return "this version trains with tensor and pipeline parallel size 1 only"
    model = spec.model
    ranges = {
        "iterations": (spec.iterations, 1, 2**53),
        "seed": (spec.seed, 0, 2**53),
        "micro_batches": (spec.micro_batches, 1, MICRO_BATCHES_MAX),
        "weight_milli": (spec.weight_milli, 1, WEIGHT_MILLI_MAX),
        "max_devices": (spec.max_devices, 1, SIZE_MAX),
        "min_devices": (spec.min_devices, 0, min(spec.max_devices, spec.micro_batches)),
        "min_gflops": (spec.min_gflops, 0, EXACT_MAX),
        "priority": (spec.priority, -PRIORITY_MAX, PRIORITY_MAX),
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
    if fault := _fault_of_names(spec):
        return fault
    try:
        _validate(spec, planning)
    except BadProblem as error:
        return f"it can't be planned for: {error}"
    return ""


def _fault_of_names(spec: TaskSpec) -> str:
    if not (spec.tenant.isprintable() and len(spec.tenant) <= NAME_MAX):
        shown = spec.tenant[:NAME_MAX]
        return f"tenant is {shown!r}: give a name of at most {NAME_MAX} printable characters"
    named = {"device_kinds": (spec.device_kinds, KINDS_MAX), "avoid": (spec.avoid, AVOIDED_MAX)}
    for field, (names, most) in named.items():
        if len(names) > most:
            return f"{field} names {len(names)}: give at most {most}"
        for name in names:
            if not name or names.count(name) > 1:
                return f"{field} has {name!r} {'in it' if not name else 'twice'}: name each once"
    return ""


def _validate(spec: TaskSpec, planning: Planning) -> None:
    """Raises BadProblem. The fastest kind of device gives the largest numbers."""
    speeds = {kind: gflops_of(planning, kind) for kind in known_kinds(planning)}
    kind = max(speeds, key=speeds.__getitem__)
    demand = TaskDemand(
        task=spec.task,
        weight_milli=spec.weight_milli,
        min_devices=spec.min_devices,
        max_devices=spec.max_devices,
        options=options_of(spec, kind, planning),
        transition_ms=limits.TRANSITION_MS,
    )
    validate(
        PlanProblem(
            computed_at=0, nodes=(), tasks=(demand,), expected_run_ms=limits.EXPECTED_RUN_MS
        )
    )
