"""How long iterations and transitions take a task, for plans to be made with; pure, fed with time.

Commits show in beats, which come every 200 ms; so one time is measured over several iterations, or
over one that is long enough. Nothing counts but training that goes on steadily: neither the first
iteration of a generation, nor one in which somebody was slow or stood still.

What a transition cost is worked out from the last commit before it and the first one after it, less
what the iterations in between take by themselves; but it is no more than the time since the close,
or since the order to switch.
"""

from typing import Final

import msgspec

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.problem import laid_out
from unicron.controlplane.core.state import ClusterState, StepTime, TaskState
from unicron.controlplane.core.steptimes import step_time_of
from unicron.events import TaskMeasured
from unicron.planner.cost import Execution, Sample, Series, Summary, summary
from unicron.planner.cost.measured import FRESH_MS
from unicron.planner.problem import Layout

#: From a look at which there was nothing to tell to the next one (ms).
_LOOK_MS: Final = 10_000


class _Commit(msgspec.Struct, frozen=True):
    """So many iterations were committed at that time (ms)."""

    iteration: int
    at: int


class _Gap(msgspec.Struct, frozen=True):
    """Around a transition: time between two commits, and from its beginning to the later one (ms),
    and how many iterations the former and the new generation did meanwhile."""

    between_ms: int
    since_ms: int
    before: int
    after: int
    former_us: int | None

    def cost_ms(self, step_us: int) -> int:
        """Beyond what these iterations take by themselves."""
        former_us = step_us if self.former_us is None else self.former_us
        work_ms = (self.before * former_us + self.after * step_us) // 1000
        return max(0, min(self.between_ms - work_ms, self.since_ms))


class _Course(msgspec.Struct):
    """What is known of a task. `begun`: the commit from which the present time is taken; `last`:
    the newest commit; `stopped`: when its transition began (ms); `former_us`: what an iteration
    took before that, if it had another layout."""

    generation: int = 0
    kind: str = ""
    layout: Layout = Layout(tp=1, pp=1, dp=0)
    samples: tuple[Sample, ...] = ()
    begun: _Commit | None = None
    last: _Commit | None = None
    stopped: int | None = None
    former_us: int | None = None
    gap: _Gap | None = None
    next_look: int = 0


class Stopwatch:
    """Of all tasks. Times in milliseconds of one monotonic clock."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}

    def restart(self) -> None:
        """We were away, or have only begun to lead."""
        self._courses.clear()

    def rests(self, task: TaskState, now: int) -> None:
        """The task doesn't train in a generation that stands, or somebody isn't heard."""
        course = self._courses.get(task.spec.task)
        if course is None:
            return
        course.begun = None
        if task.phase in tables.ENDED or task.allocation is None or not task.allocation.slots:
            del self._courses[task.spec.task]  # nobody waits for it
        elif course.stopped is None and task.phase in ("closed", "ordered"):
            course.stopped = now

    def commits(
        self,
        state: ClusterState,
        task: TaskState,
        iteration: int,
        now: int,
        *,
        steady: bool,
        ask: bool = True,
    ) -> TaskMeasured | None:
        """So many iterations are committed by now; is there something to tell, if we `ask`?"""
        course = self._courses.setdefault(task.spec.task, _Course())
        commit = _Commit(iteration, now)
        if course.generation != task.generation:
            self._begin(state, task, course)
        goes_on = max(task.ready.values(), default=0)
        if iteration <= goes_on:
            return None  # the generation hasn't committed anything yet
        if course.stopped is not None:
            course.gap = _gap(course, course.stopped, commit, goes_on)
            course.stopped = course.former_us = None
        course.last = commit
        if not steady:
            course.begun = None
            return None
        if course.begun is None:
            course.begun = commit
        elif now - course.begun.at >= limits.MEASURE_MS:
            _take(course, commit)
            if ask and now >= course.next_look and not state.plan.request:
                return _told(state, task, course, commit)
        return None

    def _begin(self, state: ClusterState, task: TaskState, course: _Course) -> None:
        """Another generation: what is known of its layout goes on, if that is the same."""
        course.generation, course.begun, course.gap = task.generation, None, None
        kind, layout = laid_out(state, task)
        if (kind, layout) != (course.kind, course.layout):
            known = step_time_of(task, course.kind, course.layout)
            if known is not None:
                course.former_us = known.step_us
            course.kind, course.layout, course.samples = kind, layout, ()


def _gap(course: _Course, stopped: int, commit: _Commit, goes_on: int) -> _Gap | None:
    """None if nobody saw how it began."""
    if course.last is None:
        return None
    return _Gap(
        between_ms=commit.at - course.last.at,
        since_ms=commit.at - stopped,
        before=max(0, goes_on - course.last.iteration),
        after=commit.iteration - goes_on,
        former_us=course.former_us,
    )


def _take(course: _Course, commit: _Commit) -> None:
    """One more time; the next one begins."""
    assert course.begun is not None
    done = max(1, commit.iteration - course.begun.iteration)
    step_us = max(1, (commit.at - course.begun.at) * 1000 // done)
    sample = Sample(step_us=step_us, at_ms=commit.at)
    course.samples = (*course.samples, sample)[-limits.MEASURES_MAX :]
    course.begun = commit


def _told(
    state: ClusterState, task: TaskState, course: _Course, commit: _Commit
) -> TaskMeasured | None:
    """What was measured, if it is known well and the log doesn't say so already."""
    if len(course.samples) < limits.MEASURES_ENOUGH:
        return None
    if any(state.workers[m.worker].slow_percent for m in task.members):
        return None
    course.next_look = commit.at + _LOOK_MS
    found = _summary(task, course, commit.at)
    if found is None or found.kept < limits.MEASURES_ENOUGH:
        return None
    known = step_time_of(task, course.kind, course.layout)
    times = task.transition_times
    gap = course.gap if not times or times[-1].generation < task.generation else None
    if known is not None and gap is None and not _is_news(known, found, commit.iteration):
        return None
    course.next_look = commit.at + limits.MEASURED_AGAIN_MS
    return TaskMeasured(
        task=task.spec.task,
        generation=task.generation,
        tensor_parallel=course.layout.tp,
        pipeline_parallel=course.layout.pp,
        data_parallel=course.layout.dp,
        device_kind=course.kind,
        iteration=commit.iteration,
        step_us=found.step_us,
        spread_us=found.spread_us,
        samples=found.kept,
        transition_ms=None if gap is None else gap.cost_ms(found.step_us),
    )


def _summary(task: TaskState, course: _Course, now: int) -> Summary | None:
    layout = course.layout
    series = Series(
        model=task.spec.task,
        kind=course.kind,
        execution=Execution(tp=layout.tp, pp=layout.pp, dp=layout.dp),
        samples=course.samples,
    )
    return summary(series, now)


def _is_news(known: StepTime, found: Summary, iteration: int) -> bool:
    """It differs notably from what the log says, or that has become half as old as it may."""
    notable = known.step_us * limits.MEASURED_ANEW_PERCENT // 100
    if abs(found.step_us - known.step_us) > max(notable, found.spread_us, known.spread_us):
        return True
    return 2 * (iteration - known.iteration) * known.step_us // 1000 > FRESH_MS
