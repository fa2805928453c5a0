"""The planner's problem, as the state says it."""

from typing import Final

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.core.supply import devices, is_lame, usable
from unicron.events import Allocation, NodeId, TaskId, TaskSpec
from unicron.planner.cost import GPTShape, options_for, parameters
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import (
    Layout,
    LayoutOption,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
)

#: What a device of a kind achieves, in GFLOP/s, until step times are measured. Assumed.
DEVICE_GFLOPS: Final[dict[str, int]] = {
    "cpu": 20,
    "a100": 140_000,
    "a800": 140_000,
    "h100": 400_000,
    "h800": 400_000,
    "h200": 420_000,
    "b200": 900_000,
}
#: Usable bytes per second between devices: loopback for "cpu", one 200 Gb/s card otherwise.
LINK_BYTES_PER_S: Final[dict[str, int]] = {"cpu": 1_000_000_000}


def active(state: ClusterState) -> list[TaskState]:
    """Tasks that have not ended, oldest first."""
    return sorted(
        (t for t in state.tasks.values() if t.phase not in tables.ENDED),
        key=lambda t: t.submitted,
    )


def problem_of(state: ClusterState) -> PlanProblem:
    """All tasks that have not ended, on all nodes that may be used."""
    nodes = tuple(
        NodeSupply(node=n.node, kind=n.device_kind, rack=n.rack, devices=devices(n))
        for n in sorted(state.nodes.values(), key=lambda n: n.node)
        if usable(state, n.node)
    )
    kinds = sorted({n.kind for n in nodes})
    kind = kinds[0] if kinds else "cpu"
    return PlanProblem(
        computed_at=state.seq,
        nodes=nodes,
        tasks=tuple(_demand(state, task, kind) for task in active(state)),
        expected_run_ms=limits.EXPECTED_RUN_MS,
    )


def _demand(state: ClusterState, task: TaskState, kind: str) -> TaskDemand:
    spec = task.spec
    current = task.allocation if task.allocation is not None and task.allocation.slots else None
    placement = () if current is None else current.slots
    return TaskDemand(
        task=spec.task,
        weight_milli=spec.weight_milli,
        min_devices=spec.min_devices,
        max_devices=spec.max_devices,
        options=options_of(spec, kind),
        current=None
        if current is None
        else Layout(
            tp=current.tensor_parallel, pp=current.pipeline_parallel, dp=current.data_parallel
        ),
        placement=tuple(Slot(node=node, device=device) for node, device in placement),
        hit=task.phase == "closed" or is_lame(state, task),
        transition_ms=limits.TRANSITION_MS,
    )


def options_of(spec: TaskSpec, kind: str) -> tuple[LayoutOption, ...]:
    """Every layout the task could run in on devices of this kind. Raises BadProblem."""
    return options_for(
        _shape(spec),
        spec.micro_batches,
        min(spec.max_devices, spec.micro_batches),
        DEVICE_GFLOPS.get(kind, DEVICE_GFLOPS["cpu"]),
        spec.tensor_parallel,
        spec.pipeline_parallel,
        min_devices=spec.min_devices,
        link_bytes_per_s=LINK_BYTES_PER_S.get(kind, 20_000_000_000),
    )


def state_bytes_of(spec: TaskSpec) -> int:
    """What one rank trains with: weights and Adam's two moments in fp32. It is no part of the
    problem yet: a plan doesn't count what moving it takes."""
    return 12 * parameters(_shape(spec)) // (spec.tensor_parallel * spec.pipeline_parallel)


def _shape(spec: TaskSpec) -> GPTShape:
    model = spec.model
    return GPTShape(
        layers=model.num_layers,
        hidden=model.hidden_size,
        heads=model.num_attention_heads,
        sequence=model.seq_length,
        vocabulary=model.vocab_size,
        micro_batch=model.micro_batch_size,
    )


def allocation_of(assignment: Assignment) -> Allocation:
    """An assignment of the planner, as events say it."""
    layout = assignment.layout
    return Allocation(
        task=TaskId(assignment.task),
        tensor_parallel=layout.tp if layout else 1,
        pipeline_parallel=layout.pp if layout else 1,
        data_parallel=layout.dp if layout else 0,
        slots=tuple((NodeId(s.node), s.device) for s in assignment.slots),
    )


def assignment_of(allocation: Allocation) -> Assignment:
    """The way back, for the check of a plan that stands in the log."""
    layout = None
    if allocation.slots:
        layout = Layout(
            tp=allocation.tensor_parallel,
            pp=allocation.pipeline_parallel,
            dp=allocation.data_parallel,
        )
    return Assignment(
        task=allocation.task,
        layout=layout,
        slots=tuple(Slot(node=node, device=device) for node, device in allocation.slots),
    )


def allocations_of(plan: Plan) -> tuple[Allocation, ...]:
    """What a plan gives to each task."""
    return tuple(allocation_of(a) for a in plan.assignments)
