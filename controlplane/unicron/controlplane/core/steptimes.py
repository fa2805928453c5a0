"""What was measured of running tasks, in the place of what is assumed of their devices.

Plans compare tasks, so only what sets them apart counts. A task's *factor* is what an iteration was
measured to take over what it was assumed to, the median over its layouts. The median of all tasks'
factors is common to them: it says how far the assumption about the devices is off, changes no plan
and is left out. A task that wasn't measured yet is taken for one with the common factor of its kind
of device; otherwise it would look better or worse beside the others than it will turn out to be.

How sizes of one task are corrected by what was measured of it is the planner's rule
(`planner/cost/measured.py`). Age there is a time, and there is no clock here: the time that a
figure's iterations have taken since it was measured stands for it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.state import StepTime, TaskState
from unicron.events import TaskSpec
from unicron.planner.cost import Choice, Execution, Summary, estimates
from unicron.planner.cost.measured import trust
from unicron.planner.problem import Layout, LayoutOption
from unicron.planner.validation import EXACT_MAX

#: Factors are in parts per billion, so that rounding them changes no throughput.
_WHOLE: Final = 1_000_000_000
#: Floating-point operations of a GFLOP/s in a microsecond.
_FLOPS_US: Final = 1000

#: Layouts of a task on a kind of device, as modelled.
Offers = Callable[[TaskSpec, str], tuple[LayoutOption, ...]]
#: Floating-point operations of one iteration.
Flops = Callable[[TaskSpec], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What was measured of `tasks` altogether, over what is assumed, in parts per billion.
    `common`: the median of all tasks; `kinds`: of those measured on a kind. Both are what a task
    takes of which nothing is known."""

    tasks: int
    common: int
    kinds: dict[str, int]


def measured_of(tasks: Iterable[TaskState], offers: Offers, flops: Flops) -> Measured | None:
    """None if nothing was measured that still counts."""
    known = list(tasks)
    factors: dict[str, list[int]] = {}
    for task in known:
        for kind in sorted({time.kind for time in task.step_times}):
            factor = factor_of(task, kind, offers(task.spec, kind), flops(task.spec))
            if factor is not None:
                factors.setdefault(kind, []).append(factor)
    if not factors:
        return None
    return Measured(
        tasks=len(known),
        common=median_low(factor for found in factors.values() for factor in found),
        kinds={kind: median_low(found) for kind, found in factors.items()},
    )


def factor_of(
    task: TaskState, kind: str, options: tuple[LayoutOption, ...], flops: int
) -> int | None:
    """What its iterations take on this kind over what is assumed, in parts per billion; None if
    nothing was measured there that still counts."""
    modelled = {option.layout: _modelled_us(option, flops) for option in options}
    found = [
        max(1, _ratio(_WHOLE * time.step_us, modelled[layout_of(time)]))
        for time in task.step_times
        if time.kind == kind and layout_of(time) in modelled and trust(_summary(task, time)) > 0
    ]
    return median_low(found) if found else None


def corrected(
    task: TaskState, kind: str, options: tuple[LayoutOption, ...], flops: int, known: Measured
) -> tuple[LayoutOption, ...]:
    """The task's layouts on this kind, with throughputs to plan with: by what was measured, without
    what is common to all tasks."""
    factor = known.kinds.get(kind, known.common)
    choices = [_choice(option, kind, flops, factor) for option in options]
    own = {
        _execution(layout_of(time)): _summary(task, time)
        for time in task.step_times
        if time.kind == kind
    }
    found = estimates(choices, own)
    # No sum of the planner leaves the exact integers because of what was measured.
    most = EXACT_MAX // (8 * max(known.tasks, 1) * max(task.spec.weight_milli, 1))
    return tuple(
        _with_time(option, choice, estimate.step_us, factor, known.common, most)
        for option, choice, estimate in zip(options, choices, found, strict=True)
    )


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


def assumed_us(options: Iterable[LayoutOption], layout: Layout, flops: int) -> int | None:
    """What an iteration is assumed to take in this layout; None if it isn't offered."""
    found = (_modelled_us(option, flops) for option in options if option.layout == layout)
    return next(found, None)


def _modelled_us(option: LayoutOption, flops: int) -> int:
    return max(1, flops // (_FLOPS_US * option.throughput_gflops))


def _summary(task: TaskState, time: StepTime) -> Summary:
    newest = max(task.iteration, *(other.iteration for other in task.step_times))
    return Summary(
        step_us=time.step_us,
        spread_us=time.spread_us,
        kept=time.samples,
        dropped=0,
        age_ms=(newest - time.iteration) * time.step_us // 1000,
    )


def _execution(layout: Layout) -> Execution:
    return Execution(tp=layout.tp, pp=layout.pp, dp=layout.dp)


def _choice(option: LayoutOption, kind: str, flops: int, factor: int) -> Choice:
    """As assumed, but for what all on this kind take longer. Memory is of no interest here."""
    return Choice(
        execution=_execution(option.layout),
        kind=kind,
        step_us=max(1, _ratio(_modelled_us(option, flops) * factor, _WHOLE)),
        memory_bytes=0,
        state_bytes=0,
        throughput_gflops=option.throughput_gflops,
    )


def _with_time(
    option: LayoutOption, choice: Choice, step_us: int, factor: int, common: int, most: int
) -> LayoutOption:
    """The option's throughput over `step_us` by what is assumed, within what is believable."""
    gflops = option.throughput_gflops
    made = _ratio(gflops * choice.step_us * common, step_us * factor)
    far = limits.MEASURED_FACTOR_MAX
    made = max(1, gflops // far, min(made, gflops * far, max(gflops, most)))
    return replace(option, throughput_gflops=made)


def _ratio(numerator: int, denominator: int) -> int:
    """Rounded to the nearest, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)
