"""Fold of the monitor's opinions about tasks and workers: hangs, slow ranks, iterations' times."""

from unicron.controlplane.core import limits, problem
from unicron.controlplane.core.change import replace, want_plan, with_task, with_worker
from unicron.controlplane.core.fold_worker import failed, known, symptom
from unicron.controlplane.core.state import ClusterState, StepTime, TaskState, TransitionTime
from unicron.controlplane.core.steptimes import factor_of
from unicron.events import Sequence, TaskMeasured, TaskStalled, WorkerSlow, node_of


def stalled(state: ClusterState, at: Sequence, body: TaskStalled) -> ClusterState | None:
    """Whoever stands strictly behind hangs and must go (SEV2). If all stand at the same place it
    is the collective that hangs: same members, next generation (SEV3); who then doesn't answer
    is found out by that."""
    task = state.tasks.get(body.task)
    if task is None or task.phase != "running" or task.generation != body.generation:
        return None
    members = {m.worker: m.incarnation for m in task.members}
    if not set(body.behind) <= set(members):
        return None
    for name in body.behind:
        worker = known(state, name, members[name])
        if worker is not None and worker.status == "member":
            what = f"worker {name} hangs: the task makes no progress for {body.stalled_ms} ms"
            state = failed(state, at, worker, "hang", what, severity=2)
    if not body.behind:
        first = state.workers[task.members[0].worker]
        what = f"no member of {body.task} makes progress for {body.stalled_ms} ms"
        state = symptom(state, at, first, what)
    return state


def slow(state: ClusterState, at: Sequence, body: WorkerSlow) -> ClusterState | None:
    """It is named; nothing is done about it."""
    worker = known(state, body.worker, body.incarnation)
    if worker is None:
        return None
    percent = body.percent if body.percent > 100 else 0
    return with_worker(state, replace(worker, slow_percent=percent))


def measured(state: ClusterState, at: Sequence, body: TaskMeasured) -> ClusterState | None:
    """The figure takes the place of an earlier one of that layout and kind. It calls for a plan
    only if it sets the task apart from the others by much. While a plan is being made nothing of
    what it rests on may change: the figure is void, and told again afterwards."""
    task = state.tasks.get(body.task)
    if task is None or state.plan.request or not _makes_sense(state, task, body):
        return None
    new = replace(
        task,
        step_times=_with_step(task, at, body),
        transition_times=_with_transition(task, body),
    )
    after = with_task(state, new)
    percent = _apart(after, task, new, body.device_kind)
    if percent is None:
        return after
    why = f"iterations of {body.task} take {percent} % of what was planned with, beside other tasks"
    return want_plan(after, at, why)


def _makes_sense(state: ClusterState, task: TaskState, body: TaskMeasured) -> bool:
    """It is about the generation that runs, as that runs, in numbers that can be."""
    if task.phase != "running" or task.generation != body.generation or not task.members:
        return False
    tp, pp, dp = body.tensor_parallel, body.pipeline_parallel, body.data_parallel
    node = state.nodes.get(node_of(task.members[0].worker))
    return (
        (tp, pp) == (task.spec.tensor_parallel, task.spec.pipeline_parallel)
        and tp * pp * dp == len(task.members)
        and node is not None
        and node.device_kind == body.device_kind
        and 1 <= body.step_us <= limits.STEP_US_MAX
        and 0 <= body.spread_us <= body.step_us
        and body.samples >= 1
        and 0 <= body.iteration <= task.spec.iterations
        and (body.transition_ms is None or body.transition_ms >= 0)
    )


def _with_step(task: TaskState, at: Sequence, body: TaskMeasured) -> tuple[StepTime, ...]:
    time = StepTime(
        kind=body.device_kind,
        tensor_parallel=body.tensor_parallel,
        pipeline_parallel=body.pipeline_parallel,
        data_parallel=body.data_parallel,
        step_us=body.step_us,
        spread_us=body.spread_us,
        samples=body.samples,
        iteration=body.iteration,
        generation=body.generation,
        at=at,
    )
    others = [t for t in task.step_times if _key(t) != _key(time)]
    return (*others, time)[-limits.STEP_TIMES_MAX :]


def _key(time: StepTime) -> tuple[str, int, int, int]:
    return time.kind, time.tensor_parallel, time.pipeline_parallel, time.data_parallel


def _with_transition(task: TaskState, body: TaskMeasured) -> tuple[TransitionTime, ...]:
    """One for each generation, however often it is told."""
    known = task.transition_times
    if body.transition_ms is None or (known and known[-1].generation >= body.generation):
        return known
    took = min(body.transition_ms, limits.TRANSITION_MAX_MS)
    time = TransitionTime(generation=body.generation, took_ms=took)
    return (*known, time)[-limits.TRANSITIONS_MAX :]


def _apart(state: ClusterState, old: TaskState, new: TaskState, kind: str) -> int | None:
    """What the task takes now, in percent of what was planned with, if that is far off: what was
    measured of it before, or else of the other tasks."""
    others = problem.measured(state, apart_from=new.spec.task)
    if others is None:
        return None
    assumed = problem.assumed_in(state)
    before = factor_of(old, kind, assumed) or others.kinds.get(kind, others.common)
    now = factor_of(new, kind, assumed) or before
    percent = 100 * now // before
    far = 100 + limits.MEASURED_REPLAN_PERCENT
    return percent if not 100 * 100 // far <= percent <= far else None
