"""Fold of the monitor's opinions about tasks and workers: hangs, slow ranks, iterations' times."""

from unicron.controlplane.core import limits, problem
from unicron.controlplane.core.change import replace, want_plan, with_task, with_worker
from unicron.controlplane.core.fold_worker import failed, known, symptom
from unicron.controlplane.core.state import ClusterState, StepTime, TaskState, TransitionTime
from unicron.controlplane.core.steptimes import factor_of, step_time_of
from unicron.events import Sequence, TaskMeasured, TaskStalled, WorkerSlow
from unicron.planner.problem import Layout


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
    only if all are measured and a task is set apart from the others by much. While a plan is being
    made nothing of what it rests on may change: the figure is void, and told again afterwards."""
    task = state.tasks.get(body.task)
    if task is None or state.plan.request or not _makes_sense(state, task, body):
        return None
    new = replace(
        task,
        step_times=_with_step(task, at, body),
        transition_times=_with_transition(task, body),
    )
    after = with_task(state, new)
    apart = _apart(after, task, new, body.device_kind)
    if apart is None:
        return after
    name, percent = apart
    why = f"iterations of {name} take {percent} % of what was planned with, beside other tasks"
    return want_plan(after, at, why)


def _makes_sense(state: ClusterState, task: TaskState, body: TaskMeasured) -> bool:
    """It is about the generation that runs, as that runs, in numbers that can be."""
    if task.phase != "running" or task.generation != body.generation or not task.members:
        return False
    layout = Layout(tp=body.tensor_parallel, pp=body.pipeline_parallel, dp=body.data_parallel)
    return (
        (body.device_kind, layout) == problem.laid_out(state, task)
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


def _apart(
    state: ClusterState, old: TaskState, new: TaskState, kind: str
) -> tuple[str, int] | None:
    """A task that takes far from what was planned with, and how much of that in percent: the one
    that was measured now, or another one since the last plan. None also while a task that runs
    isn't measured: one plan for all of them, and none before it shows what the last one led to."""
    others = problem.measured(state, apart_from=new.spec.task)
    if others is None or not all(_is_measured(state, task) for task in problem.active(state)):
        return None
    assumed = problem.assumed_in(state)
    before = factor_of(old, kind, assumed) or others.kinds.get(kind, others.common)
    found = [(new.spec.task, factor_of(new, kind, assumed), before)]
    for task in problem.active(state):
        if task.step_times and task.step_times[-1].at > task.planned_at and task is not new:
            its_kind = task.step_times[-1].kind
            beside = others.kinds.get(its_kind, others.common)
            found.append((task.spec.task, factor_of(task, its_kind, assumed), beside))
    far = 100 + limits.MEASURED_REPLAN_PERCENT
    for name, now, planned in found:
        percent = 100 * (now or planned) // planned
        if not 100 * 100 // far <= percent <= far:
            return name, percent
    return None


def _is_measured(state: ClusterState, task: TaskState) -> bool:
    """As it is laid out now, if it runs."""
    return task.phase != "running" or step_time_of(task, *problem.laid_out(state, task)) is not None
