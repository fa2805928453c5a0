"""What holds of tasks after every event: generations, members, iterations, devices, budgets.

Each predicate is an invariant of its name; its docstring is the sentence for people.
"""

from collections.abc import Iterator
from typing import Final

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.fold_task import everybody
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.core.step import Step, took_effect
from unicron.events import (
    ExceptionReported,
    GenerationClosed,
    MemberCommitted,
    MemberReady,
    PeerErrorReported,
    TaskMeasured,
    TransitionCompleted,
    TransitionOrdered,
    worker_id,
)

# --- Generations --------------------------------------------------------------------------------


def generations_grow_by_one(step: Step) -> Iterator[str]:
    """A task's generation grows by one at a time, and only by the order for that generation."""
    for old, new in step.tasks:
        before = old.generation if old is not None else 0
        if new.generation == before:
            continue
        body = step.body
        ordered = isinstance(body, TransitionOrdered) and body.generation == new.generation
        if new.generation != before + 1 or not ordered:
            yield f"task {new.spec.task} goes from generation {before} to {new.generation}"


def generations_close_once(step: Step) -> Iterator[str]:
    """A generation is closed at most once, while it is the task's newest and runs or is being
    formed."""
    body = step.body
    if not isinstance(body, GenerationClosed) or not took_effect(step):
        return
    old = step.before.tasks.get(body.task)
    if old is None or old.phase not in ("running", "ordered") or old.generation != body.generation:
        stood = f"{old.phase} in generation {old.generation}" if old is not None else "unknown"
        yield f"generation {body.generation} of task {body.task} is closed, which is {stood}"


def generations_run_when_all_are_ready(step: Step) -> Iterator[str]:
    """A generation runs once all its members are ready, at the iteration that is recorded."""
    body = step.body
    if not isinstance(body, TransitionCompleted) or not took_effect(step):
        return
    old = step.before.tasks.get(body.task)
    wanted = {m.worker for m in old.target} if old is not None else set()
    ready = old.ready if old is not None else {}
    if set(ready) != wanted or {*ready.values()} != {body.iteration}:
        yield f"generation {body.generation} of task {body.task} runs: ready are {ready}"


def ended_tasks_never_come_back(step: Step) -> Iterator[str]:
    """A task that has ended keeps its end, and gets no generation and no device any more."""
    for old, new in step.tasks:
        if new.phase in tables.ENDED and new.allocation is not None:
            yield f"task {new.spec.task} {new.phase} and has devices"
        if old is None or old.phase not in tables.ENDED:
            continue
        same = (old.phase, old.generation, old.outcome) == (new.phase, new.generation, new.outcome)
        if not same:
            yield f"task {new.spec.task} {old.phase} and is {new.phase} {new.generation} now"


# --- Members ------------------------------------------------------------------------------------


def members_live_or_the_generation_is_broken(step: Step) -> Iterator[str]:
    """Whoever stands in a generation that runs or is being formed is a living worker of its task,
    in the life that was ordered; otherwise the generation is known to be broken."""
    for task in step.tasks_hit:
        if task.phase not in ("running", "ordered") or task.broken:
            continue
        for name, life in sorted(everybody(task)):
            worker = step.after.workers.get(name)
            if worker is None or worker.incarnation != life:
                yield f"{name} of task {task.spec.task} is not in life {life}"
            elif worker.task != task.spec.task or worker.status not in ("prepared", "member"):
                yield f"{name} of task {task.spec.task} is {worker.status} for {worker.task}"


def members_stand_in_a_generation(step: Step) -> Iterator[str]:
    """A worker that is a member of a task stands in its generation, or in the one being formed."""
    for task in step.tasks_hit:
        if task.phase in tables.ENDED:
            continue
        listed = everybody(task)
        for worker in step.after.workers.values():
            if worker.status != "member" or worker.task != task.spec.task:
                continue
            if (worker.worker, worker.incarnation) not in listed:
                yield f"{worker.worker} is a member of {worker.task} and in no generation"


def ranks_count_from_zero(step: Step) -> Iterator[str]:
    """The ranks of a generation are 0, 1, 2 and so on, and no worker has two."""
    for old, new in step.tasks:
        if old is not None and old.members is new.members and old.target is new.target:
            continue
        for people in (new.members, new.target):
            ranks = [m.rank for m in people]
            if ranks != [*range(len(people))] or len({m.worker for m in people}) < len(people):
                who = [(m.worker, m.rank) for m in people]
                yield f"generation {new.generation} of task {new.spec.task} has {who}"


# --- Iterations ---------------------------------------------------------------------------------


def members_are_ready_at_one_iteration(step: Step) -> Iterator[str]:
    """All members of a generation are ready at the same committed iteration, the ordered one;
    otherwise the generation is known to be broken."""
    body = step.body
    if not isinstance(body, MemberReady) or not step.tasks:
        return
    old, new = step.tasks[0]
    if old is None or new.broken or new.ready is old.ready:
        return
    expected = _iteration_of(old)
    if expected is not None and body.iteration != expected:
        yield (
            f"{body.worker} is ready at iteration {body.iteration} in generation "
            f"{body.generation} of task {body.task}, the others stand at {expected}"
        )


def members_commit_together(step: Step) -> Iterator[str]:
    """All members of a generation make their first commit at the same iteration, the one after
    that at which they were ready."""
    body = step.body
    if not isinstance(body, MemberCommitted) or not step.tasks:
        return
    old, _ = step.tasks[0]
    expected = _iteration_of(old) if old is not None and (old.ready or old.committed) else None
    if expected is not None and body.iteration != expected + 1:
        yield (
            f"{body.worker} commits iteration {body.iteration} first in generation "
            f"{body.generation} of task {body.task}, the others {expected + 1}"
        )


def _iteration_of(task: TaskState) -> int | None:
    """Where the generation began, as far as it was heard."""
    if task.ready:
        return min(task.ready.values())
    if task.committed:
        return min(task.committed.values()) - 1
    return None if task.planned else task.iteration


def members_finish_with_one_state(step: Step) -> Iterator[str]:
    """All members that commit a task's last iteration hold the same state, bit for bit."""
    for old, new in step.tasks:
        if old is not None and old.finished is new.finished:
            continue
        if len({*new.finished.values()}) > 1:
            yield f"members of task {new.spec.task} finished with {sorted(new.finished.items())}"


def iterations_stay_within_the_task(step: Step) -> Iterator[str]:
    """A task never stands beyond its last iteration."""
    for _, new in step.tasks:
        if not 0 <= new.iteration <= new.spec.iterations:
            yield f"task {new.spec.task} stands at {new.iteration} of {new.spec.iterations}"


# --- Devices ------------------------------------------------------------------------------------


def one_owner_per_device(step: Step) -> Iterator[str]:
    """No device is given to two tasks or twice to one, and a worker is the one of its device."""
    if any(old is None or old.allocation is not new.allocation for old, new in step.tasks):
        yield from _shared(step.after)
    for old, new in step.workers:
        if old is not None and old.incarnation == new.incarnation:
            continue
        if new.worker != worker_id(new.node, new.device):
            yield f"{new.worker} stands on device {new.device} of {new.node}"


def _shared(state: ClusterState) -> Iterator[str]:
    owners: dict[tuple[str, int], str] = {}
    for task in state.tasks.values():
        for slot in task.allocation.slots if task.allocation is not None else ():
            if slot in owners:
                yield f"{slot[0]}/{slot[1]} is given to {owners[slot]} and to {task.spec.task}"
            owners[slot] = task.spec.task


# --- Budgets ------------------------------------------------------------------------------------


def fault_generations_stay_in_budget(step: Step) -> Iterator[str]:
    """Faults cost a task at most its budget of generations; the next one is its last."""
    for _, new in step.tasks:
        if new.closes > limits.FAULT_GENERATIONS_MAX + 1:
            yield f"faults cost task {new.spec.task} {new.closes} generations"


def attempts_in_place_are_bounded(step: Step) -> Iterator[str]:
    """When attempts in place have come to nothing often enough, who reports the next break has to
    go."""
    body = step.body
    if not isinstance(body, PeerErrorReported | ExceptionReported):
        return
    old = step.before.tasks.get(body.task)
    new = step.after.tasks.get(body.task)
    if old is None or new is None or old.broken or not new.broken:
        return
    worker = step.after.workers.get(body.worker)
    stays = worker is not None and worker.status in ("prepared", "member")
    if stays and old.fruitless >= limits.REATTEMPTS_MAX:
        yield (
            f"{body.worker} reports a break of task {body.task} after {old.fruitless} attempts "
            "that came to nothing, and stays"
        )


def rejected_plans_are_bounded(step: Step) -> Iterator[str]:
    """The planner's answers are rejected at most a fixed number of times in a row."""
    if not 0 <= step.after.plan.failures <= limits.PLAN_FAILURES_MAX:
        yield f"{step.after.plan.failures} answers in a row were rejected"


# --- What was measured --------------------------------------------------------------------------


def times_change_by_being_measured(step: Step) -> Iterator[str]:
    """What is known of how long a task's iterations and transitions take comes from measurements,
    is bounded, and stays as it is while a plan is being made that rests on it."""
    for old, new in step.tasks:
        before = (old.step_times, old.transition_times) if old is not None else ((), ())
        if (new.step_times, new.transition_times) == before:
            continue
        name, body = new.spec.task, step.body
        if not isinstance(body, TaskMeasured) or body.task != name or not took_effect(step):
            yield f"other times are known of task {name}, which nobody measured"
        elif step.before.plan.request:
            yield f"other times are known of task {name} while a plan is made"
        most = (limits.STEP_TIMES_MAX, limits.TRANSITIONS_MAX)
        if len(new.step_times) > most[0] or len(new.transition_times) > most[1]:
            yield f"too many times are kept of task {name}"


TASK_CHECKS: Final = (
    generations_grow_by_one,
    generations_close_once,
    generations_run_when_all_are_ready,
    ended_tasks_never_come_back,
    members_live_or_the_generation_is_broken,
    members_stand_in_a_generation,
    ranks_count_from_zero,
    members_are_ready_at_one_iteration,
    members_commit_together,
    members_finish_with_one_state,
    iterations_stay_within_the_task,
    one_owner_per_device,
    fault_generations_stay_in_budget,
    attempts_in_place_are_bounded,
    rejected_plans_are_bounded,
    times_change_by_being_measured,
)
