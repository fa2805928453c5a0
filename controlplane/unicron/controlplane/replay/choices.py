"""Plans that were taken or dropped, what they changed, and what else could have been done."""

from collections.abc import Sequence as SequenceOf
from typing import Any

import msgspec

from unicron import events as ev
from unicron.controlplane.core.problem import allocations_of, problem_of
from unicron.controlplane.core.state import TaskState
from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.story import Alternative, GivenDevices, PlanChoice
from unicron.controlplane.replay.units import count
from unicron.events import Allocation, Recorded, Sequence
from unicron.planner.assemble import finish
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.errors import BadProblem
from unicron.planner.local import local_plan
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import PlanProblem, digest
from unicron.planner.strategies import STRATEGIES

_MS = 1_000_000


def choices_of(
    reading: Reading, mine: SequenceOf[Recorded], start_ns: int
) -> tuple[PlanChoice, ...]:
    """Of the events in `mine`, the plans; `t_plus_ms` counts from `start_ns`."""
    return tuple(
        choice_of(reading, recorded, start_ns)
        for recorded in mine
        if isinstance(reading.body(recorded.seq), ev.PlanDecided | ev.PlanDropped)
    )


def choice_of(reading: Reading, recorded: Recorded, start_ns: int) -> PlanChoice:
    """One PlanDecided or PlanDropped."""
    body = reading.body(recorded.seq)
    assert isinstance(body, ev.PlanDecided | ev.PlanDropped)
    common: dict[str, Any] = {
        "seq": recorded.seq,
        "t_plus_ms": (recorded.at_ns - start_ns) // _MS,
        "void": recorded.seq in reading.void,
        "reason": one_line(body.reason),
    }
    if isinstance(body, ev.PlanDropped):
        return _dropped(reading, recorded, body, common)
    asked = body.source != "local"
    solved = _answer(reading, recorded.seq, body.computed_at) if asked else None
    before, after = _changes(reading, recorded.seq, body.allocations)
    problem = _problem(reading, body, solved)
    return PlanChoice(
        **common,
        taken=True,
        source=body.source,
        computed_at=Sequence(body.computed_at),
        request_seq=Sequence(body.computed_at) if asked else None,
        solved_seq=solved[0] if solved else None,
        value_milli=body.value,
        waf_milli=body.waf_milli,
        explanation=tuple(map(one_line, body.explanation)),
        statistics=solved[1].statistics if solved else (),
        before=before,
        after=after,
        comparable=problem is not None,
        alternatives=_alternatives(problem, body) if problem is not None else (),
        strategies=_strategies(problem, body) if problem is not None and asked else (),
        trades=reading.trades.of(recorded.seq),
    )


def _dropped(
    reading: Reading, recorded: Recorded, body: ev.PlanDropped, common: dict[str, Any]
) -> PlanChoice:
    solved = _answer(reading, recorded.seq, body.request)
    answer = solved[1] if solved else None
    allocations = answer.allocations if answer else ()
    before, after = _changes(reading, recorded.seq, allocations)
    return PlanChoice(
        **common,
        taken=False,
        source=answer.source if answer else "",
        computed_at=Sequence(body.request),
        request_seq=Sequence(body.request),
        solved_seq=solved[0] if solved else None,
        value_milli=answer.value if answer else 0,
        waf_milli=answer.waf_milli if answer else 0,
        explanation=tuple(map(one_line, answer.explanation)) if answer else (),
        statistics=answer.statistics if answer else (),
        before=before,
        after=after,
        comparable=False,
        alternatives=(),
    )


def _answer(reading: Reading, before: int, request: int) -> tuple[Sequence, ev.PlanSolved] | None:
    """The newest answer to the request that stands before the decision."""
    for seq in range(before - 1, max(request, 0), -1):
        body = reading.body(seq)
        if isinstance(body, ev.PlanSolved) and body.request == request:
            return Sequence(seq), body
    return None


# --- What it changes -----------------------------------------------------------------------------


def _changes(
    reading: Reading, seq: int, allocations: SequenceOf[Allocation]
) -> tuple[tuple[GivenDevices, ...], tuple[GivenDevices, ...]]:
    """What the tasks had whose devices it changes, and what it gives them."""
    before, after = [], []
    for given in allocations:
        entry = reading.task_before(given.task, seq)
        if entry is None:
            continue
        task = entry[1]
        old = task.allocation or msgspec.structs.replace(given, slots=(), data_parallel=0)
        if old.slots != given.slots:
            before.append(_given(reading, task, old))
            after.append(_given(reading, task, given))
    return tuple(before), tuple(after)


def _given(reading: Reading, task: TaskState, allocation: Allocation) -> GivenDevices:
    devices = len(allocation.slots)
    return GivenDevices(
        task=allocation.task,
        devices=devices,
        tensor_parallel=allocation.tensor_parallel,
        pipeline_parallel=allocation.pipeline_parallel,
        data_parallel=allocation.data_parallel if devices else 0,
        gflops=reading.throughput.gflops(reading.state, task, devices),
        slots=allocation.slots,
    )


# --- What else could have been done --------------------------------------------------------------


def _problem(
    reading: Reading, body: ev.PlanDecided, solved: tuple[Sequence, ev.PlanSolved] | None
) -> PlanProblem | None:
    """What was solved, if this version sees the same in that state."""
    state = reading.computed_on(body.computed_at)
    if state is None:
        return None
    try:
        problem = problem_of(state)
        local = local_plan(problem)
    except BadProblem:
        return None
    if solved is not None and solved[1].problem_digest != digest(problem):
        return None
    if body.source == "local" and (body.value, body.waf_milli) != (
        local.value_gflops_milli,
        local.waf_milli,
    ):
        return None
    return problem


def _alternatives(problem: PlanProblem, body: ev.PlanDecided) -> tuple[Alternative, ...]:
    """The other methods' answers, where they are others."""
    others = [] if body.source == "local" else [local_plan(problem)]
    others += [dynamic_plan(problem), *_wait(problem)]
    chosen = {a.task: a.slots for a in body.allocations}
    found: dict[tuple[Assignment, ...], Alternative] = {}
    for plan in others:
        same = all(
            chosen.get(a.task, _held(problem, a.task)) == a.slots for a in allocations_of(plan)
        )
        if not same and plan.assignments not in found:
            found[plan.assignments] = _alternative(problem, body, plan, plan.source)
    return tuple(found.values())


def _strategies(problem: PlanProblem, body: ev.PlanDecided) -> tuple[Alternative, ...]:
    """Answers of those who don't look at the value."""
    return tuple(
        _alternative(problem, body, strategy(problem), name)
        for name, strategy in STRATEGIES.items()
    )


def _alternative(problem: PlanProblem, body: ev.PlanDecided, plan: Plan, name: str) -> Alternative:
    return Alternative(
        name=name,
        what=_in_words(problem, plan),
        value_milli=plan.value_gflops_milli,
        waf_milli=plan.waf_milli,
        loss_milli=body.value - plan.value_gflops_milli,
    )


def _held(problem: PlanProblem, name: str) -> tuple[tuple[str, int], ...]:
    return tuple((s.node, s.device) for t in problem.tasks if t.task == name for s in t.placement)


def _wait(problem: PlanProblem) -> list[Plan]:
    """Tasks that were hit stand still, everybody else goes on."""
    if not any(task.hit for task in problem.tasks):
        return []
    assignments = (
        Assignment(task=t.task)
        if t.hit or t.current is None
        else Assignment(task=t.task, layout=t.current, kind=t.current_kind, slots=t.placement)
        for t in problem.tasks
    )
    return [finish(problem, "wait", assignments)]


def _in_words(problem: PlanProblem, plan: Plan) -> str:
    held = {task.task: len(task.placement) for task in problem.tasks}
    parts = [
        f"{a.task} {held[a.task]} -> {count(len(a.slots), 'device')}"
        if a.slots
        else f"{a.task} stands still"
        for a in plan.assignments
        if len(a.slots) != held[a.task]
    ]
    return one_line(", ".join(parts)) or "everything stays as it is"
