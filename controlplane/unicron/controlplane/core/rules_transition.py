"""Rules about generations: close a broken one, order the next, complete it, end the task."""

from unicron.controlplane.core import formation, limits
from unicron.controlplane.core.admission import fault_of
from unicron.controlplane.core.fold_task import awaited
from unicron.controlplane.core.rules_worker import stop_order
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.core.unsettled import unsettled_tasks
from unicron.controlplane.core.verdict import Verdict
from unicron.events import (
    Generation,
    GenerationClosed,
    Sequence,
    TaskCompleted,
    TaskFailed,
    TransitionCompleted,
    TransitionOrdered,
)


def _tasks(state: ClusterState, *phases: str) -> list[TaskState]:
    """Tasks in one of the phases; who has waited longest comes first."""
    found = [t for t in unsettled_tasks(state) if t.phase in phases]
    return sorted(found, key=lambda t: (t.since, t.submitted)) if len(found) > 1 else found


def close_generation(state: ClusterState) -> Verdict | None:
    """A generation that something broke, that isn't ready within the limit, or whose task the
    plan parks, is closed."""
    for task in _tasks(state, "running", "ordered"):
        if _all_finished(task):
            continue  # nothing is left to be interrupted: the task completes instead
        if task.broken:
            reason = task.broken_by
        elif task.phase == "ordered" and task.overdue:
            reason = "not all members were ready within the limit"
        elif task.phase == "running" and task.allocation is not None and not task.allocation.slots:
            reason = "the plan parks the task"
        else:
            continue
        body = GenerationClosed(task=task.spec.task, generation=task.generation, reason=reason)
        basis = task.order if task.phase == "ordered" else task.planned_at
        return Verdict(body=body, cause=task.broken[:1] or (basis,), incident=task.incident)
    return None


def fence(state: ClusterState) -> Verdict | None:
    """Whoever failed, but may still be there, must go before the others go on without it."""
    for task in _tasks(state, "closed"):
        for name in sorted({m.worker for m in task.members} | {m.worker for m in task.target}):
            worker = state.workers.get(name)
            if worker is not None and worker.task == task.spec.task and worker.status == "failed":
                return stop_order(task, worker, "it failed and must go", 0, cause=task.close)
    return None


def order_after_fault(state: ClusterState) -> Verdict | None:
    """All answers are in: survivors go on at once with what they have, on the devices that are left
    to the task (adopt_local stands before this)."""
    for task in _tasks(state, "closed"):
        if awaited(state, task) or _lost_cause(task):
            continue
        formed = formation.survivors(state, task)
        if formed is None:
            continue  # nobody is left: order_first starts the task anew
        cause = tuple(sorted(a.at for a in task.answers.values()))
        return _order(state, task, formed, planned=False, cause=(task.close, *cause))
    return None


def order_planned(state: ClusterState) -> Verdict | None:
    """Joiners are warm, or members are to leave: switch at the next iteration boundary."""
    for task in _tasks(state, "running"):
        if task.broken or task.finished or task.allocation is None:
            continue
        members = {m.worker for m in task.members}
        if set(task.committed) != members:
            continue  # the running generation proves itself first
        formed = formation.planned(state, task)
        if formed is None:
            continue
        return _order(state, task, formed, planned=True, cause=(task.planned_at,))
    return None


def order_first(state: ClusterState) -> Verdict | None:
    """Nobody holds the task's state: all workers of the allocation start from the beginning."""
    for task in _tasks(state, "idle", "closed"):
        if task.phase == "closed" and (awaited(state, task) or formation.holders(state, task)):
            continue
        formed = formation.first(state, task)
        if formed is not None:
            return _order(state, task, formed, planned=False, cause=(task.planned_at,))
    return None


def _order(
    state: ClusterState,
    task: TaskState,
    formed: formation.Formation,
    *,
    planned: bool,
    cause: tuple[Sequence, ...],
) -> Verdict:
    store = state.nodes[formed.store_node]
    body = TransitionOrdered(
        task=task.spec.task,
        generation=Generation(task.generation + 1),
        planned=planned,
        iteration=formed.iteration,
        tensor_parallel=task.spec.tensor_parallel,
        pipeline_parallel=task.spec.pipeline_parallel,
        data_parallel=len(formed.members),
        store_address=store.address,
        store_port=store.store_port,
        members=formed.members,
        reason=formed.reason,
    )
    return Verdict(body=body, cause=tuple(c for c in cause if c), incident=task.incident)


def complete(state: ClusterState) -> Verdict | None:
    """All members of the ordered generation are ready, at one iteration."""
    for task in _tasks(state, "ordered"):
        wanted = {m.worker for m in task.target}
        if task.broken or set(task.ready) != wanted:
            continue
        iterations = set(task.ready.values())
        if len(iterations) != 1:
            continue
        body = TransitionCompleted(
            task=task.spec.task, generation=task.generation, iteration=iterations.pop()
        )
        return Verdict(body=body, cause=(task.order,), incident=task.incident)
    return None


def _all_finished(task: TaskState) -> bool:
    return bool(task.members) and set(task.finished) >= {m.worker for m in task.members}


def finish_task(state: ClusterState) -> Verdict | None:
    """All members committed the last iteration: one state everywhere, or a failure."""
    for task in _tasks(state, "running", "ordered"):
        if not _all_finished(task):
            continue
        digests = {task.finished[m.worker] for m in task.members}
        if len(digests) > 1:
            reason = (
                f"members finished with different states {sorted(digests)}: "
                "the results can't be trusted; please report it with the log"
            )
            return _fail(task, reason)
        completed = TaskCompleted(
            task=task.spec.task, iteration=task.iteration, state_digest=digests.pop()
        )
        return Verdict(body=completed, cause=(task.since,), incident=task.incident)
    return None


def refuse(state: ClusterState) -> Verdict | None:
    """A task that can't be planned for would make every plan of the cluster impossible."""
    for task in _tasks(state, "idle"):
        fault = fault_of(task.spec, state.planning) if task.allocation is None else ""
        if fault:
            return _fail(task, fault)
    return None


def give_up(state: ClusterState) -> Verdict | None:
    """A task that is itself at fault, or whose faults cost more generations than its budget."""
    for task in _tasks(state, "idle", "ordered", "running", "closed"):
        if why := _lost_cause(task):
            return _fail(task, why)
    return None


def _lost_cause(task: TaskState) -> str:
    """Why the task can't go on, whoever is left, or ""."""
    if task.blame:
        return task.blame
    if task.closes > limits.FAULT_GENERATIONS_MAX:
        return (
            f"faults cost {task.closes} generations, more than the budget of "
            f"{limits.FAULT_GENERATIONS_MAX}: find the cause before you submit it again"
        )
    return ""


def _fail(task: TaskState, reason: str) -> Verdict:
    body = TaskFailed(task=task.spec.task, reason=reason)
    return Verdict(body=body, cause=(task.since,), incident=task.incident)
