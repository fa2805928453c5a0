"""The numbers that are watched: what an incident took, and how much the cluster gets done."""

import msgspec

from unicron.controlplane.core.offers import options_of
from unicron.controlplane.core.problem import active
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.core.supply import devices
from unicron.controlplane.replay import steps as st
from unicron.controlplane.replay.casefile import CaseFile
from unicron.events import node_of
from unicron.planner.errors import BadProblem


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What one incident took, in nanoseconds of stream time. `cause`: the tag of the event that it
    was opened for. `down_ns`: its task stood still, from each close to the next first commit.
    `plans`: (took, what came of it); `transitions`: (took, planned), of those that were completed.
    """

    severity: int
    cause: str
    detect_ns: int
    down_ns: int
    plans: tuple[tuple[int, str], ...]
    transitions: tuple[tuple[int, bool], ...]


def measures_of(case: CaseFile) -> Measures:
    """The numbers of an incident; of an open one as far as it went."""
    steps = case.steps
    detect = next(iter(steps.named(st.DETECT)), None)
    spans = [_of_transition(steps, t) for t in steps.transitions]
    return Measures(
        severity=case.incident.severity,
        cause=detect.what if detect else "",
        detect_ns=(detect.duration_ns or 0) if detect else 0,
        down_ns=sum(
            (resumed if resumed is not None else end) - start
            for (start, resumed, end), t in zip(spans, steps.transitions, strict=True)
            if t.closed is not None
        ),
        plans=tuple(
            (step.duration_ns or 0, step.what)
            for step in steps.named(st.PLAN)
            if step.state == st.DONE
        ),
        transitions=tuple(
            (end - start, t.planned)
            for (start, _, end), t in zip(spans, steps.transitions, strict=True)
            if t.state == st.DONE
        ),
    )


def _of_transition(
    steps: st.IncidentSteps, transition: st.Transition
) -> tuple[int, int | None, int]:
    """When it began, when the first member trained again, and when its last step ended."""
    mine = [s for s in steps.steps if s.transition == transition.number]
    resumed = next((s.start_ns for s in mine if s.name == st.RESUME), None)
    start = min(s.start_ns for s in mine if s.name in (st.QUIESCE, st.REGROUP))
    return start, resumed, max(s.end_ns if s.end_ns is not None else s.start_ns for s in mine)


def waf_now(state: ClusterState) -> int:
    """Weighted throughput of all tasks as they train now, in GFLOP/s by the cost model."""
    return sum(_weighed(state, task, len(task.members), exact=True) for task in active(state))


def waf_best(state: ClusterState) -> int:
    """What no plan exceeds: each task as large as it may be, on all devices there ever were."""
    total = sum(len(devices(node)) for node in state.nodes.values())
    return sum(_weighed(state, task, total, exact=False) for task in active(state))


def _weighed(state: ClusterState, task: TaskState, count: int, *, exact: bool) -> int:
    moving = task.phase == "running" or (task.phase == "ordered" and task.planned)
    if exact and (task.broken or not moving):
        return 0
    try:
        options = options_of(task.spec, _kind(state, task), state.planning)
    except BadProblem:
        return 0
    fits = [
        o.throughput_gflops
        for o in options
        if o.layout.devices == count or (not exact and o.layout.devices <= count)
    ]
    return max(fits, default=0) * task.spec.weight_milli // 1000


def _kind(state: ClusterState, task: TaskState) -> str:
    """What its devices are, or will be; tasks aren't spread over kinds."""
    nodes = [state.nodes[n] for m in task.members if (n := node_of(m.worker)) in state.nodes]
    chosen = nodes or sorted(state.nodes.values(), key=lambda n: n.device_kind)
    return chosen[0].device_kind if chosen else "cpu"
