"""Fold of tasks and their transitions: closing, answers, orders, readiness, commits, the end."""

from unicron.controlplane.core import tables
from unicron.controlplane.core.change import (
    add_cause,
    break_generation,
    put,
    replace,
    to_phase,
    to_status,
    want_plan,
    with_task,
    with_worker,
)
from unicron.controlplane.core.fold_worker import refuse_others
from unicron.controlplane.core.state import (
    Answer,
    Cause,
    ClusterState,
    Member,
    TaskState,
    WorkerState,
)
from unicron.controlplane.core.unsettled import workers_of
from unicron.events import (
    Generation,
    GenerationClosed,
    Incarnation,
    MemberCommitted,
    MemberFinished,
    MemberQuiesced,
    MemberReady,
    OrderedMember,
    Sequence,
    TaskCompleted,
    TaskFailed,
    TaskSubmitted,
    TransitionCompleted,
    TransitionOrdered,
    WorkerId,
)


def submitted(state: ClusterState, at: Sequence, body: TaskSubmitted) -> ClusterState | None:
    """A task enters; None (void) if its name is taken."""
    if body.spec.task in state.tasks:
        return None
    task = TaskState(spec=body.spec, phase="idle", since=at, submitted=at)
    return want_plan(with_task(state, task), at, f"task {body.spec.task} submitted")


def generation_closed(
    state: ClusterState, at: Sequence, body: GenerationClosed
) -> ClusterState | None:
    """Members are told to stop; their answers are awaited from here on. It counts as the cost of
    a fault unless it is the plan that stops the task."""
    task = state.tasks.get(body.task)
    if task is None or task.phase not in ("running", "ordered"):
        return None
    if body.generation != task.generation:
        return None
    fault = bool(task.broken) or task.overdue
    task = replace(
        to_phase(task, "closed", at),
        close=at,
        answers={},
        ready={},
        committed={},
        finished={},
        closes=task.closes + fault,
        fruitless=0 if task.committed else task.fruitless + 1,
    )
    return with_task(state, task)


def awaited(state: ClusterState, task: TaskState) -> tuple[WorkerId, ...]:
    """Workers whose answer the closed generation still waits for: members, joiners and others of
    the task that may hold its state, as far as they are alive and have not answered. Sorted."""
    involved = {m.worker: m.incarnation for m in task.members}
    involved |= {m.worker: m.incarnation for m in task.target}
    return tuple(
        worker.worker
        for worker in workers_of(state, task.spec.task)
        if worker.status in ("prepared", "member")
        and (worker.joined or involved.get(worker.worker) == worker.incarnation)
        and not answer_of(task, worker)
    )


def answer_of(task: TaskState, worker: WorkerState) -> Answer | None:
    """What this life of the worker answered to the newest close."""
    answer = task.answers.get(worker.worker)
    return answer if answer is not None and answer.incarnation == worker.incarnation else None


def in_transition(state: ClusterState, task: TaskState) -> bool:
    """A generation is being formed, or it isn't known yet who can form the next one."""
    return task.phase == "ordered" or (task.phase == "closed" and bool(awaited(state, task)))


def is_parked(state: ClusterState, task: TaskState) -> bool:
    """The plan gives it no device, and it stands still."""
    parked = task.allocation is not None and not task.allocation.slots
    return parked and task.phase in ("idle", "closed") and not in_transition(state, task)


def _stands(state: ClusterState, name: str, incarnation: int) -> bool:
    worker = state.workers.get(name)
    return (
        worker is not None
        and worker.incarnation == incarnation
        and worker.status in ("prepared", "member")
    )


def quiesced(
    state: ClusterState, at: Sequence, body: MemberQuiesced, worker: WorkerState
) -> ClusterState:
    """An answer counts for the generation that was closed last, and once."""
    task = state.tasks[worker.task]
    if task.phase != "closed" or body.generation != task.generation:
        return state
    if answer_of(task, worker) is not None:
        return state
    answer = Answer(
        incarnation=worker.incarnation,
        iteration=body.iteration,
        kept=body.kept,
        reduced=body.reduced,
        voted=body.voted,
        at=at,
    )
    iteration = max(task.iteration, body.iteration)
    task = replace(task, answers=put(task.answers, body.worker, answer), iteration=iteration)
    return _joined(with_task(state, task), at, worker, body.iteration)


def _joined(state: ClusterState, at: Sequence, worker: WorkerState, iteration: int) -> ClusterState:
    """It holds the training state; note since when."""
    if worker.joined or iteration < 0:
        return state
    worker = replace(worker, joined_at=iteration)
    return refuse_others(with_worker(state, worker), at, worker)


def transition_ordered(
    state: ClusterState, at: Sequence, body: TransitionOrdered
) -> ClusterState | None:
    """The next generation is being formed. In a planned one the old members train on."""
    task = state.tasks.get(body.task)
    if task is None or body.generation != task.generation + 1:
        return None
    if task.phase not in (("running",) if body.planned else ("idle", "closed")):
        return None
    formed = replace(
        to_phase(task, "ordered", at),
        generation=body.generation,
        target=body.members,
        planned=body.planned,
        order=at,
        answers={},
        ready={},
        committed={},
    )
    if not body.planned:
        state = _leave_out(state, task, body)
        members = _members(body.members)
        formed = replace(
            formed,
            members=members,
            broken=(),
            broken_by="",
            finished={},
            iteration=body.iteration,
            fruitless=task.fruitless if members == task.members else 0,
        )
    # What broke the old generation of a planned one, or was finished in it, since the decision
    # was made, still stands: its members train on in it.
    state = with_task(state, formed)
    # Facts may have landed between the decision's basis and the decision itself: a member that
    # is gone already breaks the generation it was just ordered into.
    for name, incarnation in sorted(everybody(formed)):
        if not _stands(state, name, incarnation):
            state = break_generation(state, body.task, name, at, f"{name} is gone")
    return state


def everybody(task: TaskState) -> set[tuple[WorkerId, Incarnation]]:
    """Who stands in the running generation or is wanted by the next one, with their lives."""
    return {(m.worker, m.incarnation) for m in task.members} | {
        (m.worker, m.incarnation) for m in task.target
    }


def _is_among(worker: WorkerState, members: tuple[Member | OrderedMember, ...]) -> bool:
    """Does this life of the worker stand there?"""
    for member in members:
        if member.worker == worker.worker:
            return member.incarnation == worker.incarnation
    return False


def _members(ordered: tuple[OrderedMember, ...]) -> tuple[Member, ...]:
    return tuple(Member(worker=m.worker, incarnation=m.incarnation, rank=m.rank) for m in ordered)


def _leave_out(state: ClusterState, task: TaskState, body: TransitionOrdered) -> ClusterState:
    """Former members that aren't ordered in wait as prepared, if they still live."""
    ordered = {m.worker for m in body.members}
    for name, incarnation in sorted(everybody(task)):
        worker = state.workers.get(name)
        if worker is None or name in ordered:
            continue
        if worker.incarnation == incarnation and worker.status == "member":
            state = with_worker(state, to_status(worker, "prepared"))
    return state


def ready(
    state: ClusterState, at: Sequence, body: MemberReady, worker: WorkerState
) -> ClusterState:
    """A member stands in the generation that was ordered last."""
    task = state.tasks[worker.task]
    if task.phase != "ordered" or body.generation != task.generation:
        return state
    if not _is_among(worker, task.target):
        return state
    if worker.status == "prepared":
        state = with_worker(state, to_status(worker, "member"))
    state = _joined(state, at, state.workers[worker.worker], body.iteration)
    task = state.tasks[worker.task]
    iteration = max(task.iteration, body.iteration)
    task = replace(task, ready=put(task.ready, body.worker, body.iteration), iteration=iteration)
    state = with_task(state, task)
    if len(set(task.ready.values())) > 1:
        why = f"members stand at different iterations: {sorted(task.ready.items())}"
        state = add_cause(state, Cause(at=at, severity=3, what=why, task=worker.task))
        return break_generation(state, worker.task, worker.worker, at, why)
    return state


def transition_completed(
    state: ClusterState, at: Sequence, body: TransitionCompleted
) -> ClusterState | None:
    """The ordered generation runs."""
    task = state.tasks.get(body.task)
    if task is None or task.phase != "ordered" or body.generation != task.generation:
        return None
    members = _members(task.target)
    state = _retire(state, task, members)
    task = replace(to_phase(task, "running", at), members=members, target=(), planned=False, late=0)
    return with_task(state, task)


def _retire(state: ClusterState, task: TaskState, members: tuple[Member, ...]) -> ClusterState:
    """Members of the old generation that the new one leaves out (a planned shrink)."""
    staying = {m.worker for m in members}
    for member in task.members:
        worker = state.workers.get(member.worker)
        if worker is not None and member.worker not in staying and worker.status == "member":
            state = with_worker(state, to_status(worker, "prepared"))
    return state


def committed(
    state: ClusterState, at: Sequence, body: MemberCommitted, worker: WorkerState
) -> ClusterState:
    """A member's first commit in its generation."""
    task = state.tasks[worker.task]
    if body.generation != task.generation or task.phase not in ("ordered", "running"):
        return state
    if not _is_among(worker, task.members) and not _is_among(worker, task.target):
        return state
    return with_task(
        state,
        replace(
            task,
            committed=put(task.committed, body.worker, body.iteration),
            iteration=max(task.iteration, body.iteration),
            trained=True,
            fruitless=0,
        ),
    )


def finished(
    state: ClusterState, at: Sequence, body: MemberFinished, worker: WorkerState
) -> ClusterState:
    """A member has committed the last iteration. After a close it says so in its answer."""
    task = state.tasks[worker.task]
    if task.phase not in ("ordered", "running") or not _current(task, body.generation):
        return state
    if not _is_among(worker, task.members) and not _is_among(worker, task.target):
        return state
    return with_task(
        state,
        replace(
            task,
            finished=put(task.finished, body.worker, body.state_digest),
            iteration=max(task.iteration, body.iteration),
        ),
    )


def _current(task: TaskState, generation: Generation) -> bool:
    """Members of the old generation may finish while a planned one is being formed."""
    return generation == task.generation or (task.planned and generation == task.generation - 1)


def completed(state: ClusterState, at: Sequence, body: TaskCompleted) -> ClusterState | None:
    """The task reached its last iteration with one state everywhere."""
    return _end(state, at, body.task, "completed", f"completed iteration {body.iteration}")


def failed(state: ClusterState, at: Sequence, body: TaskFailed) -> ClusterState | None:
    """The task is given up, with a reason."""
    return _end(state, at, body.task, "failed", body.reason)


def _end(
    state: ClusterState, at: Sequence, name: str, phase: str, outcome: str
) -> ClusterState | None:
    task = state.tasks.get(name)
    if task is None or task.phase in tables.ENDED:
        return None
    task = replace(
        to_phase(task, phase, at), outcome=outcome, allocation=None, target=(), broken=()
    )
    causes = tuple(c for c in state.causes if c.task != name)
    state = replace(with_task(state, task), causes=causes)
    return want_plan(state, at, f"task {name} {phase}")
