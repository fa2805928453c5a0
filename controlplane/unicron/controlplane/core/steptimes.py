"""What was measured of running tasks, in the place of what is assumed of their devices.

Plans compare tasks, so only what sets them apart counts. A task's *factor* is what an iteration was
measured to take over what it was assumed to, the median over its layouts. The median of all tasks'
factors is common to them: it says how far the assumption about the devices is off, changes no plan
and is left out. A task that wasn't measured yet is taken for one with the common factor of its kind
of device; otherwise it would look better or worse beside the others than it will turn out to be.

How sizes of one task are corrected by what was measured of it is the planner's rule
(`planner/cost/measured.py`). Age there is a time, and there is no clock here: it is the time that
the iterations since have taken, up to the task's newest figure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from unicron.controlplane.core import limits
from unicron.controlplane.core.state import StepTime, TaskState
from unicron.events import TaskSpec
from unicron.planner.cost import Choice, Execution, Summary, estimates
from unicron.planner.cost.measured import trust
from unicron.planner.problem import Layout, LayoutOption
from unicron.planner.validation import EXACT_MAX

#: Factors are in parts per billion, so that rounding them changes no throughput.
_WHOLE: Final = 1_000_000_000
#: Stands for each layout that wasn't measured: they all move alike.
_OTHERS: Final = Execution(tp=0, pp=0, dp=0)

#: What an iteration is assumed to take a task in a layout on a kind of device, in microseconds;
#: None if it can't run so.
Assumed = Callable[[TaskSpec, str, Layout], int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What was measured of `tasks` altogether, over what is assumed, in parts per billion.
    `common`: the median of all tasks; `kinds`: of those measured on a kind. Both are what a task
    takes of which nothing is known."""

    tasks: int
    common: int
    kinds: dict[str, int]


def measured_of(tasks: Iterable[TaskState], assumed: Assumed) -> Measured | None:
    """None if nothing was measured that still counts."""
    known = list(tasks)
    factors: dict[str, list[int]] = {}
    for task in known:
        for kind in sorted({time.kind for time in task.step_times}):
            factor = factor_of(task, kind, assumed)
            if factor is not None:
                factors.setdefault(kind, []).append(factor)
    if not factors:
        return None
    return Measured(
        tasks=len(known),
        common=median_low(factor for found in factors.values() for factor in found),
        kinds={kind: median_low(found) for kind, found in factors.items()},
    )


def factor_of(task: TaskState, kind: str, assumed: Assumed) -> int | None:
    """What its iterations take on this kind over what is assumed, in parts per billion; None if
    nothing was measured there that still counts."""
    found = [
        max(1, _ratio(_WHOLE * time.step_us, modelled))
        for time in task.step_times
        if time.kind == kind
        and (modelled := assumed(task.spec, kind, layout_of(time))) is not None
        and trust(_summary(task, time)) > 0
    ]
    return median_low(found) if found else None


def corrected(
    task: TaskState,
    kind: str,
    options: tuple[LayoutOption, ...],
    assumed: Assumed,
    known: Measured,
) -> tuple[LayoutOption, ...]:
    """The task's layouts on this kind, with throughputs to plan with: by what was measured, without
    what is common to all tasks."""
    factor = known.kinds.get(kind, known.common)
    summaries = {
        layout_of(time): _summary(task, time) for time in task.step_times if time.kind == kind
    }
    bases = {
        layout: max(1, _ratio(modelled * factor, _WHOLE))
        for layout in summaries
        if (modelled := assumed(task.spec, kind, layout)) is not None
    }
    choices = [_choice(_execution(layout), kind, base) for layout, base in bases.items()]
    own = {_execution(layout): summaries[layout] for layout in bases}
    *mine, others = estimates([*choices, _choice(_OTHERS, kind, _WHOLE)], own)
    # Each as (numerator, denominator) of what its throughput is multiplied by.
    rest = (_WHOLE * known.common, others.step_us * factor)
    ratios = {
        layout: (base * known.common, found.step_us * factor)
        for (layout, base), found in zip(bases.items(), mine, strict=True)
    }
    if not ratios and rest[0] == rest[1]:
        return options
    # No sum of the planner leaves the exact integers because of what was measured.
    most = EXACT_MAX // (8 * max(known.tasks, 1) * max(task.spec.weight_milli, 1))
    return tuple(_scaled(option, *ratios.get(option.layout, rest), most) for option in options)


def floor_of(gflops: int, known: Measured) -> int:
    """A minimum throughput, to compare with throughputs without what is common to all tasks."""
    return min(-(-gflops * known.common // _WHOLE), EXACT_MAX)


def transition_ms_of(task: TaskState) -> int:
    """What a transition keeps this task from training: the median of the newest, once there are
    enough."""
    found = [time.took_ms for time in task.transition_times]
    return median_low(found) if len(found) >= limits.TRANSITIONS_ENOUGH else limits.TRANSITION_MS


def layout_of(time: StepTime) -> Layout:
    """The layout that was measured."""
    return Layout(tp=time.tensor_parallel, pp=time.pipeline_parallel, dp=time.data_parallel)


def step_time_of(task: TaskState, kind: str, layout: Layout) -> StepTime | None:
    """What was measured of the task in this layout on this kind of device."""
    found = (t for t in task.step_times if t.kind == kind and layout_of(t) == layout)
    return next(found, None)


def _summary(task: TaskState, time: StepTime) -> Summary:
    """Its age is counted up to the newest figure, so that it changes with a measurement only: a
    plan is checked against the problem that it was asked for."""
    newest = max(other.iteration for other in task.step_times)
    return Summary(
        step_us=time.step_us,
        spread_us=time.spread_us,
        kept=time.samples,
        dropped=0,
        age_ms=(newest - time.iteration) * time.step_us // 1000,
    )


def _execution(layout: Layout) -> Execution:
    return Execution(tp=layout.tp, pp=layout.pp, dp=layout.dp)


def _choice(execution: Execution, kind: str, step_us: int) -> Choice:
    """What else a choice has is of no interest here."""
    return Choice(
        execution=execution,
        kind=kind,
        step_us=step_us,
        memory_bytes=0,
        state_bytes=0,
        throughput_gflops=1,
    )


def _scaled(option: LayoutOption, numerator: int, denominator: int, most: int) -> LayoutOption:
    """Its throughput times that, within what is believable."""
    gflops, far = option.throughput_gflops, limits.MEASURED_FACTOR_MAX
    made = min(_ratio(gflops * numerator, denominator), gflops * far, max(gflops, most))
    return LayoutOption(
        layout=option.layout, throughput_gflops=max(1, gflops // far, made), kind=option.kind
    )


def _ratio(numerator: int, denominator: int) -> int:
    """Rounded to the nearest, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)
