"""Fold of limits that passed; deadlines.py says which wait has which key."""

from unicron.controlplane.core import limits
from unicron.controlplane.core.change import add_cause, replace, with_node, with_task
from unicron.controlplane.core.fold_node import cut_off
from unicron.controlplane.core.fold_task import awaited
from unicron.controlplane.core.fold_worker import failed, outlived, unreleased
from unicron.controlplane.core.leases import is_awaited, leases
from unicron.controlplane.core.state import Cause, ClusterState, TaskState
from unicron.events import DeadlinePassed, Sequence, WorkerId


def passed(state: ClusterState, at: Sequence, body: DeadlinePassed) -> ClusterState:
    """A wait reached its limit. Nothing happens if what it waited for came meanwhile."""
    kind, _, name = body.key.partition(":")
    subject, _, number = name.rpartition(":")
    match kind:
        case "confirm":
            return _confirm(state, subject, number)
        case "closed":
            return _closed(state, at, subject, number)
        case "start" | "stop":
            return _worker(state, at, kind, subject, number)
        case "release":
            return _release(state, at, subject, number)
        case "quiesce" | "ready":
            task = state.tasks.get(subject)
            phase = "closed" if kind == "quiesce" else "ordered"
            if task is None or task.phase != phase or str(task.generation) != number:
                return state
            if task.overdue:
                return state
            return _silent(state, at, task) if kind == "quiesce" else _late(state, at, task)
        case "solve" | "replan":
            return _plan(state, at, kind, name)
        case _:
            return state


def _confirm(state: ClusterState, subject: str, number: str) -> ClusterState:
    node = state.nodes.get(subject)
    if node is None or node.status != "suspected" or str(node.since) != number:
        return state
    return with_node(state, replace(node, confirmed=True))


def _closed(state: ClusterState, at: Sequence, subject: str, key: str) -> ClusterState:
    node = state.nodes.get(subject)
    if node is None or node.cut == key or cut_off(state, node) != key:
        return state
    return with_node(state, replace(node, cut=key, cut_at=at))


def _worker(
    state: ClusterState, at: Sequence, kind: str, subject: str, number: str
) -> ClusterState:
    worker = state.workers.get(subject)
    if worker is None or str(worker.incarnation) != number:
        return state
    if kind == "stop" and worker.status == "stopping" and not worker.overdue:
        return outlived(state, at, worker)
    if kind == "start" and worker.status in ("ordered", "started"):
        what = f"{worker.worker} did not get ready within {limits.START_MS} ms"
        return failed(state, at, worker, "start", what, severity=2)
    return state


def _release(state: ClusterState, at: Sequence, subject: str, number: str) -> ClusterState:
    for lease in leases(state):
        worker = lease.holder
        if (worker.worker, str(worker.incarnation)) == (subject, number) and is_awaited(lease):
            return unreleased(state, at, worker, lease.to)
    return state


def _silent(state: ClusterState, at: Sequence, task: TaskState) -> ClusterState:
    """Who didn't answer in time must go before the others go on without it."""
    state = with_task(state, replace(task, overdue=True))
    for name in awaited(state, task):
        what = f"{name} did not answer within {limits.QUIESCE_MS} ms after the close"
        state = failed(state, at, state.workers[name], "silent", what, severity=2)
    return state


def _late(state: ClusterState, at: Sequence, task: TaskState) -> ClusterState:
    """Tried again as it is, without those who hold up the others, as far as one can tell."""
    missing = [m.worker for m in task.target if m.worker not in task.ready]
    limit = limits.SWITCH_MS if task.planned else limits.READY_MS
    what = f"{', '.join(missing) or 'nobody'} not ready within {limit} ms"
    task = replace(task, overdue=True, late=task.late + 1)
    state = with_task(state, task)
    state = add_cause(state, Cause(at=at, severity=3, what=what, task=task.spec.task))
    for name in _culprits(task, missing):
        worker = state.workers.get(name)
        if worker is not None and worker.status in ("prepared", "member"):
            why = f"{name} held up the others: {what}"
            state = failed(state, at, worker, "late", why, severity=2)
    return state


def _culprits(task: TaskState, missing: list[WorkerId]) -> list[WorkerId]:
    """Joiners, when the members could do without them; at the second time in a row those whom
    others that are ready wait for. If all wait, it can't be told."""
    if task.planned:
        members = {m.worker for m in task.members}
        return [name for name in missing if name not in members]
    return missing if task.late > 1 and task.ready else []


def _plan(state: ClusterState, at: Sequence, kind: str, number: str) -> ClusterState:
    plan = state.plan
    if kind == "solve" and plan.request and not plan.answer and str(plan.request) == number:
        plan = replace(plan, answer=at, error="no answer within the limit", answered=())
    if kind == "replan" and not plan.request and str(plan.wanted) == number:
        plan = replace(plan, failures=min(plan.failures, limits.PLAN_FAILURES_MAX - 1))
    return replace(state, plan=plan)
