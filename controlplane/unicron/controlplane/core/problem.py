"""The planner's problem, as the state says it."""

from collections import Counter
from collections.abc import Iterable

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.configuration import quotas_of
from unicron.controlplane.core.offers import (
    Options,
    assumed_us,
    state_bytes_of,
    worthwhile_of,
)
from unicron.controlplane.core.speeds import link_of
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.core.steptimes import (
    Assumed,
    Measured,
    corrected,
    floor_of,
    layout_of,
    measured_of,
    transition_ms_of,
)
from unicron.controlplane.core.supply import devices, is_lame, kind_on, usable
from unicron.events import Allocation, NodeId, TaskId, node_of
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import (
    Layout,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
)
from unicron.planner.whatif import expected_run_ms


def active(state: ClusterState) -> list[TaskState]:
    """Tasks that have not ended, oldest first."""
    return sorted(
        (t for t in state.tasks.values() if t.phase not in tables.ENDED),
        key=lambda t: t.submitted,
    )


def problem_of(state: ClusterState) -> PlanProblem:
    """All tasks that have not ended, on all nodes that may be used."""
    nodes = tuple(
        NodeSupply(node=n.node, kind=kind_on(n), rack=n.rack, devices=devices(n))
        for n in sorted(state.nodes.values(), key=lambda n: n.node)
        if usable(state, n.node)
    )
    kinds, planning, known = {n.kind for n in nodes}, state.planning, measured(state)
    links = (link_of(planning, kind) for kind in kinds)
    mtbf_ms = planning.node_mtbf_ms
    return PlanProblem(
        computed_at=state.seq,
        nodes=nodes,
        tasks=tuple(_demand(state, task, kinds, known) for task in active(state)),
        expected_run_ms=expected_run_ms(len(nodes), mtbf_ms) if mtbf_ms else limits.EXPECTED_RUN_MS,
        quotas=quotas_of(planning),
        node_mtbf_ms=mtbf_ms,
        repair_ms=planning.repair_ms,
        link_bytes_per_s=planning.link_bytes_per_s or min(links, default=0),
    )


def measured(state: ClusterState, apart_from: str = "") -> Measured | None:
    """What plans are to know of how long iterations take (of all tasks but one); None if nothing
    was measured, or if that isn't to count."""
    if not state.planning.measured_step_times:
        return None
    tasks = (task for task in active(state) if task.spec.task != apart_from)
    return measured_of(tasks, assumed_in(state))


def assumed_in(state: ClusterState) -> Assumed:
    """What an iteration is assumed to take, as the cluster is configured."""
    planning = state.planning
    return lambda spec, kind, layout: assumed_us(spec, kind, planning, layout)


def _demand(
    state: ClusterState, task: TaskState, kinds: set[str], known: Measured | None
) -> TaskDemand:
    spec = task.spec
    current = task.allocation if task.allocation is not None and task.allocation.slots else None
    placement = () if current is None else current.slots
    layout, kind = _layout(current), kind_of(state, placement)
    options = [
        option
        for each in sorted(kinds | ({kind} - {""}))
        if each in spec.device_kinds or not spec.device_kinds
        for option in _options(state, task, each, known, layout)
    ]
    return TaskDemand(
        task=spec.task,
        weight_milli=spec.weight_milli,
        min_devices=spec.min_devices,
        max_devices=spec.max_devices,
        options=tuple(options),
        current=layout,
        current_kind=kind,
        placement=tuple(Slot(node=node, device=device) for node, device in placement),
        hit=task.phase == "closed" or is_lame(state, task),
        transition_ms=limits.TRANSITION_MS if known is None else transition_ms_of(task),
        state_bytes=state_bytes_of(spec),
        priority=spec.priority,
        min_gflops=spec.min_gflops if known is None else floor_of(spec.min_gflops, known),
        tenant=spec.tenant,
        avoid=spec.avoid,
    )


def kind_of(state: ClusterState, slots: Iterable[tuple[NodeId, int]]) -> str:
    """The kind of these devices, which a task has of one kind only; "" for none. (If a node came
    back with others meanwhile: that of most of them.)"""
    kinds = Counter(kind_on(state.nodes[n]) for n, _ in slots if n in state.nodes)
    return max(sorted(kinds), key=kinds.__getitem__, default="")


def laid_out(state: ClusterState, task: TaskState) -> tuple[str, Layout]:
    """On which kind of device, and how, the members of a task that has some are laid out."""
    tp, pp = task.spec.tensor_parallel, task.spec.pipeline_parallel
    kind = kind_of(state, ((node_of(member.worker), 0) for member in task.members))
    return kind, Layout(tp=tp, pp=pp, dp=len(task.members) // max(tp * pp, 1))


def _options(
    state: ClusterState, task: TaskState, kind: str, known: Measured | None, now: Layout | None
) -> Options:
    """What it runs, and what was measured of it, is told of in any case."""
    mine = [layout_of(time) for time in task.step_times if time.kind == kind]
    keep = mine if now is None else [*mine, now]
    offered = worthwhile_of(task.spec, kind, state.planning, keep)
    if known is None:
        return offered
    return corrected(task, kind, offered, assumed_in(state), known)


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


def assignment_of(allocation: Allocation, kind: str) -> Assignment:
    """The way back, for the check of a plan that stands in the log; `kind` is its devices'."""
    return Assignment(
        task=allocation.task,
        layout=_layout(allocation),
        kind=kind,
        slots=tuple(Slot(node=node, device=device) for node, device in allocation.slots),
    )


def _layout(allocation: Allocation | None) -> Layout | None:
    """None if it is parked, or was given nothing yet."""
    if allocation is None or not allocation.slots:
        return None
    return Layout(
        tp=allocation.tensor_parallel, pp=allocation.pipeline_parallel, dp=allocation.data_parallel
    )


def allocations_of(plan: Plan) -> tuple[Allocation, ...]:
    """What a plan gives to each task."""
    return tuple(allocation_of(a) for a in plan.assignments)
