"""Fold of tasks and their transitions: closing, answers, orders, readiness, commits, the end."""

from unicron.controlplane.core import tables
from unicron.controlplane.core.change import (
    break_generation,
    put,
    replace,
    to_phase,
    to_status,
    with_task,
    with_worker,
)
from unicron.controlplane.core.fold_fleet import want_plan
from unicron.controlplane.core.state import (
    Answer,
    ClusterState,
    Member,
    TaskState,
    WorkerState,
)
from unicron.events import (
    Generation,
    GenerationClosed,
    MemberCommitted,
    MemberFinished,
    MemberQuiesced,
    MemberReady,
    Sequence,
    TaskCompleted,
    TaskFailed,
    TaskSubmitted,
    TransitionCompleted,
    TransitionOrdered,
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
    """Members are told to stop; their answers are awaited from here on."""
    task = state.tasks.get(body.task)
    if task is None or task.phase not in ("running", "ordered"):
        return None
    if body.generation != task.generation:
        return None
    task = replace(
        to_phase(task, "closed", at),
        close=at,
        answers={},
        ready={},
        committed={},
        closes=task.closes + 1,
    )
    return with_task(state, task)


def awaited(state: ClusterState, task: TaskState) -> tuple[str, ...]:
    """Workers whose answer the closed generation still waits for: members and joiners that are
    alive and have not answered. Sorted."""
    involved = {m.worker: m.incarnation for m in task.members}
    involved |= {m.worker: m.incarnation for m in task.target}
    return tuple(
        name
        for name, incarnation in sorted(involved.items())
        if name not in task.answers and _stands(state, name, incarnation)
    )


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
    if body.worker in task.answers:
        return state
    answer = Answer(
        iteration=body.iteration,
        kept=body.kept,
        reduced=body.reduced,
        voted=body.voted,
        at=at,
    )
    iteration = max(task.iteration, body.iteration)
    return with_task(
        state,
        replace(task, answers=put(task.answers, body.worker, answer), iteration=iteration),
    )


def transition_ordered(
    state: ClusterState, at: Sequence, body: TransitionOrdered
) -> ClusterState | None:
    """The next generation is being formed. In a planned one the old members train on."""
    task = state.tasks.get(body.task)
    if task is None or body.generation != task.generation + 1:
        return None
    if body.planned != (task.phase == "running"):
        return None
    members = task.members
    if not body.planned:
        members = tuple(
            Member(worker=m.worker, incarnation=m.incarnation, rank=m.rank) for m in body.members
        )
        state = _leave_out(state, task, body)
    task = replace(
        to_phase(task, "ordered", at),
        generation=body.generation,
        members=members,
        target=body.members,
        planned=body.planned,
        order=at,
        broken=(),
        broken_by="",
        answers={},
        ready={},
        committed={},
        finished={},
    )
    state = with_task(state, task)
    # Facts may have landed between the decision's basis and the decision itself: a member that
    # is gone already breaks the generation it was just ordered into.
    for member in body.members:
        if not _stands(state, member.worker, member.incarnation):
            why = f"{member.worker} is gone"
            state = break_generation(state, body.task, member.worker, at, why)
    return state


def _leave_out(state: ClusterState, task: TaskState, body: TransitionOrdered) -> ClusterState:
    """Former members that aren't ordered in wait as prepared, if they still live."""
    ordered = {m.worker for m in body.members}
    for member in (*task.members, *task.target):
        worker = state.workers.get(member.worker)
        if worker is None or member.worker in ordered:
            continue
        if worker.incarnation == member.incarnation and worker.status == "member":
            state = with_worker(state, replace(to_status(worker, "prepared"), joined=False))
    return state


def ready(
    state: ClusterState, at: Sequence, body: MemberReady, worker: WorkerState
) -> ClusterState:
    """A member stands in the generation that was ordered last."""
    task = state.tasks[worker.task]
    if task.phase != "ordered" or body.generation != task.generation:
        return state
    if all(m.worker != body.worker for m in task.target):
        return state
    if worker.status == "prepared":
        state = with_worker(state, replace(to_status(worker, "member"), joined=True))
    iteration = max(task.iteration, body.iteration)
    task = replace(
        task, ready=put(task.ready, body.worker, body.iteration), iteration=iteration
    )
    state = with_task(state, task)
    if len(set(task.ready.values())) > 1:
        why = f"members stand at different iterations: {sorted(task.ready.items())}"
        return break_generation(state, worker.task, worker.worker, at, why)
    return state


def transition_completed(
    state: ClusterState, at: Sequence, body: TransitionCompleted
) -> ClusterState | None:
    """The ordered generation runs."""
    task = state.tasks.get(body.task)
    if task is None or task.phase != "ordered" or body.generation != task.generation:
        return None
    members = tuple(
        Member(worker=m.worker, incarnation=m.incarnation, rank=m.rank) for m in task.target
    )
    state = _retire(state, task, members)
    task = replace(to_phase(task, "running", at), members=members, target=(), planned=False)
    return with_task(state, task)


def _retire(
    state: ClusterState, task: TaskState, members: tuple[Member, ...]
) -> ClusterState:
    """Members of the old generation that the new one leaves out (a planned shrink)."""
    staying = {m.worker for m in members}
    for member in task.members:
        worker = state.workers.get(member.worker)
        if worker is not None and member.worker not in staying and worker.status == "member":
            state = with_worker(state, replace(to_status(worker, "prepared"), joined=False))
    return state


def committed(
    state: ClusterState, body: MemberCommitted, worker: WorkerState
) -> ClusterState:
    """A member's first commit in its generation."""
    task = state.tasks[worker.task]
    if body.generation != task.generation or task.phase not in ("ordered", "running"):
        return state
    return with_task(
        state,
        replace(
            task,
            committed=put(task.committed, body.worker, body.iteration),
            iteration=max(task.iteration, body.iteration),
        ),
    )


def finished(
    state: ClusterState, body: MemberFinished, worker: WorkerState
) -> ClusterState:
    """A member has committed the last iteration."""
    task = state.tasks[worker.task]
    if task.phase in tables.ENDED or not _current(task, body.generation):
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
