"""With which measured numbers a plan is made, in words."""

from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.offers import assumed_us
from unicron.controlplane.core.problem import active, laid_out
from unicron.controlplane.core.state import ClusterState, StepTime, TaskState
from unicron.controlplane.core.steptimes import (
    layout_of,
    step_time_of,
    transition_ms_of,
)
from unicron.events import Planning, TaskSpec
from unicron.planner.errors import BadProblem
from unicron.planner.problem import Layout

#: Tasks that are named; a plan's explanation is there to be read.
_NAMED_MAX = 16


def figures_of(state: ClusterState) -> tuple[str, ...]:
    """A line for each task of which something was measured that counts, oldest task first."""
    if not state.planning.measured_step_times:
        return ()
    said = [line for task in active(state) if (line := _line(state, task))]
    left = len(said) - _NAMED_MAX
    more = (f"{left} more tasks were measured, too",) if left > 0 else ()
    return (*said[:_NAMED_MAX], *more)


def _line(state: ClusterState, task: TaskState) -> str:
    times = [step_words(state.planning, task.spec, time) for time in task.step_times]
    parts = [f"iterations take {', '.join(times)}"] if times else []
    if len(task.transition_times) >= limits.TRANSITIONS_ENOUGH:
        parts.append(f"a transition costs {span(1000 * transition_ms_of(task))}")
    return f"{task.spec.task}, as measured: {'; '.join(parts)}" if parts else ""


def step_words(planning: Planning, spec: TaskSpec, time: StepTime) -> str:
    """``312 ms on 4 cpu devices (26.0 ms assumed)``."""
    layout = layout_of(time)
    devices = f"{layout.devices} {time.kind} device{'' if layout.devices == 1 else 's'}"
    assumed = assumed_of(planning, spec, time.kind, layout)
    beside = f" ({span(assumed)} assumed)" if assumed is not None else ""
    return f"{span(time.step_us)} on {devices}{beside}"


def assumed_of(planning: Planning, spec: TaskSpec, kind: str, layout: Layout) -> int | None:
    """What an iteration is assumed to take in this layout (us); None if it can't run so."""
    alone = replace(spec, min_devices=1)  # survivors may be fewer than it must have
    try:
        return assumed_us(alone, kind, planning, layout)
    except BadProblem:
        return None


def time_now(state: ClusterState, task: TaskState) -> tuple[StepTime | None, int | None]:
    """What was measured of the task as it is laid out now, and what is assumed of that (us)."""
    if not task.members:
        return None, None
    kind, layout = laid_out(state, task)
    return step_time_of(task, kind, layout), assumed_of(state.planning, task.spec, kind, layout)


def span(us: int) -> str:
    """``26.0 ms``, ``312 ms``, ``24.1 s``."""
    if us < 100_000:
        return f"{us // 100 / 10:.1f} ms"
    return f"{us // 1000} ms" if us < 10_000_000 else f"{us // 100_000 / 10:.1f} s"
