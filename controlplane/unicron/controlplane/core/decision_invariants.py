"""What holds of a decision on the state it is made on, before it is written: that it is due, and
whom it may touch. Orders of transitions have a file of their own.

Each predicate is an invariant of its name; its docstring is the sentence for people.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.connections import closed
from unicron.controlplane.core.fold_task import everybody
from unicron.controlplane.core.leases import can_go
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.supply import fits, kind_on, usable
from unicron.controlplane.core.verdict import Verdict
from unicron.events import (
    GenerationClosed,
    IncidentEscalated,
    IncidentOpened,
    IncidentResolved,
    NodeAdmitted,
    NodeIsolated,
    NodeLost,
    PlanDecided,
    PlanDropped,
    PlanRequested,
    TaskCompleted,
    TaskFailed,
    TransitionCompleted,
    TransitionOrdered,
    WorkerStartOrdered,
    WorkerStopOrdered,
)


def decisions_name_what_exists(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A decision names only tasks, nodes, workers and incidents that are in the state."""
    body = verdict.body
    named: list[tuple[str, dict[str, Any]]] = [
        ("task", at.tasks),
        ("node", at.nodes),
        ("worker", at.workers),
        ("incident", at.incidents),
    ]
    for field, known in named:
        name = getattr(body, field, None)
        new = isinstance(body, _NAMES_ANEW.get(field, ()))
        if name is not None and name not in known and not new:
            yield f"{_name(verdict)} names the {field} {name}, which doesn't exist"
    for given in body.allocations if isinstance(body, PlanDecided) else ():
        if given.task not in at.tasks:
            yield f"{_name(verdict)} names the task {given.task}, which doesn't exist"


#: Decisions that name something for the first time, by the field in which they do.
_NAMES_ANEW: Final[dict[str, type]] = {"worker": WorkerStartOrdered, "incident": IncidentOpened}


def decisions_name_their_cause(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """Every decision names the events that led to it, and they stand in the log before it."""
    wrong = [c for c in verdict.cause if not 0 < c <= at.seq]
    if wrong or not verdict.cause:
        yield f"{_name(verdict)} on #{at.seq} names {list(verdict.cause)} as its cause"


def decisions_name_their_incident(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A decision that belongs to an incident belongs to an open one."""
    if verdict.incident is None or isinstance(verdict.body, IncidentOpened):
        return
    found = at.incidents.get(verdict.incident)
    if found is None or found.resolved:
        yield f"{_name(verdict)} belongs to {verdict.incident}, which isn't open"


# --- One decision per cause ---------------------------------------------------------------------


def nothing_is_decided_twice(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A decision is made only while what it would change is still to be done: there is one for
    each generation, transition, start, answer and end."""
    is_due = _DUE.get(type(verdict.body))
    if is_due is not None and not is_due(at, verdict.body):
        yield f"nothing calls for {verdict.body}"


def _close_due(at: ClusterState, body: GenerationClosed) -> bool:
    task = at.tasks[body.task]
    return task.phase in ("running", "ordered") and task.generation == body.generation


def _order_due(at: ClusterState, body: TransitionOrdered) -> bool:
    task = at.tasks[body.task]
    phases = ("running",) if body.planned else ("idle", "closed")
    return task.phase in phases and body.generation == task.generation + 1


def _completion_due(at: ClusterState, body: TransitionCompleted) -> bool:
    task = at.tasks[body.task]
    return task.phase == "ordered" and task.generation == body.generation and not task.broken


def _end_due(at: ClusterState, body: TaskCompleted | TaskFailed) -> bool:
    return at.tasks[body.task].phase not in tables.ENDED


def _start_due(at: ClusterState, body: WorkerStartOrdered) -> bool:
    old = at.workers.get(body.worker)
    if old is None:
        return body.incarnation == 1
    if old.incarnation == body.incarnation:  # said again under a new leader
        unheard = not old.begun and old.status in ("ordered", "stopping")
        return unheard and old.order < at.term
    return body.incarnation == old.incarnation + 1


def _stop_due(at: ClusterState, body: WorkerStopOrdered) -> bool:
    worker = at.workers[body.worker]
    if worker.incarnation != body.incarnation or worker.status in ("exited", "lost"):
        return False
    return worker.status != "stopping" or worker.stop_order < at.term


def _loss_due(at: ClusterState, body: NodeLost) -> bool:
    node = at.nodes[body.node]
    return node.incarnation == body.incarnation and node.status in ("healthy", "suspected")


def _isolation_due(at: ClusterState, body: NodeIsolated) -> bool:
    return at.nodes[body.node].status != "isolated"


def _admission_due(at: ClusterState, body: NodeAdmitted) -> bool:
    node = at.nodes[body.node]
    fresh = node.status in ("joining", "returning")
    return fresh and node.incarnation == body.incarnation and not node.sick


def _opening_due(at: ClusterState, body: IncidentOpened) -> bool:
    task = at.tasks.get(body.task) if body.task is not None else None
    known = body.incident in at.incidents or (task is not None and task.incident is not None)
    same = [c for c in at.causes if c.task == body.task and (body.task or c.node == body.node)]
    return not known and any(c.severity == body.severity for c in same)


def _escalation_due(at: ClusterState, body: IncidentEscalated) -> bool:
    incident = at.incidents[body.incident]
    waits = any(c.task == incident.task and c.severity == body.severity for c in at.causes)
    return not incident.resolved and body.severity < incident.severity and waits


def _resolution_due(at: ClusterState, body: IncidentResolved) -> bool:
    return not at.incidents[body.incident].resolved


def _request_due(at: ClusterState, body: PlanRequested) -> bool:
    return bool(at.plan.wanted) and not at.plan.request


def _plan_due(at: ClusterState, body: PlanDecided) -> bool:
    return body.source == "local" or (bool(at.plan.answer) and body.computed_at == at.plan.request)


def _drop_due(at: ClusterState, body: PlanDropped) -> bool:
    return bool(at.plan.answer) and body.request == at.plan.request


_DUE: Final[dict[type, Callable[[ClusterState, Any], bool]]] = {
    GenerationClosed: _close_due,
    TransitionOrdered: _order_due,
    TransitionCompleted: _completion_due,
    TaskCompleted: _end_due,
    TaskFailed: _end_due,
    WorkerStartOrdered: _start_due,
    WorkerStopOrdered: _stop_due,
    NodeLost: _loss_due,
    NodeIsolated: _isolation_due,
    NodeAdmitted: _admission_due,
    IncidentOpened: _opening_due,
    IncidentEscalated: _escalation_due,
    IncidentResolved: _resolution_due,
    PlanRequested: _request_due,
    PlanDecided: _plan_due,
    PlanDropped: _drop_due,
}


# --- Nodes and workers --------------------------------------------------------------------------


def losses_need_two_signs(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A node is given up as lost only on two signs of four: silence, that it lasts, its agent's
    connection closed, its workers' connections closed; and never while most nodes show one."""
    body = verdict.body
    if not isinstance(body, NodeLost):
        return
    signs = _signs(at, body.node)
    if len(signs) < 2:
        yield f"{body.node} is given up on {signs or 'no sign'}"
    present = [n for n in at.nodes.values() if n.status in ("healthy", "suspected")]
    doubtful = [
        n for n in present if n.status == "suspected" or closed(at, "agent", n.node, n.incarnation)
    ]
    if 2 * len(doubtful) > len(present):
        yield f"{body.node} is given up while {len(doubtful)} of {len(present)} nodes are in doubt"


def _signs(at: ClusterState, name: str) -> list[str]:
    node = at.nodes[name]
    workers = [w for w in at.workers.values() if w.node == name and w.status in tables.ALIVE]
    gone = [closed(at, "worker", w.worker, w.incarnation) for w in workers]
    signs = {
        "silent": node.status == "suspected",
        "silent for long": node.status == "suspected" and node.confirmed,
        "agent closed": closed(at, "agent", name, node.incarnation),
        "workers closed": any(gone),
    }
    return [sign for sign, holds in signs.items() if holds]


def workers_start_on_free_devices(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A worker is started only on a device that may be used, that its task was given, and that no
    process holds."""
    body = verdict.body
    if not isinstance(body, WorkerStartOrdered):
        return
    old = at.workers.get(body.worker)
    if old is not None and old.incarnation == body.incarnation:
        return  # said again; whether that was due is looked at elsewhere
    if old is not None and old.status not in ("exited", "lost"):
        yield f"{body.worker} is to start while life {old.incarnation} is {old.status}"
    if not fits(at, body.node, body.device):
        yield f"{body.worker} is to start on a device that can't be used"
    task = at.tasks[body.task]
    slots = task.allocation.slots if task.allocation is not None else ()
    if (body.node, body.device) not in slots or task.phase in tables.ENDED:
        yield f"{body.worker} is to start for {body.task}, which has {slots} and is {task.phase}"


def members_are_not_stopped(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """Nobody who stands in a generation that runs or is being formed is stopped, unless it failed
    itself."""
    body = verdict.body
    if not isinstance(body, WorkerStopOrdered):
        return
    task, worker = at.tasks[body.task], at.workers[body.worker]
    stands = task.phase in ("running", "ordered") and worker.status in ("prepared", "member")
    if stands and (body.worker, body.incarnation) in everybody(task):
        yield f"{body.worker} is stopped in generation {task.generation} of task {body.task}"


def last_copies_are_kept(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """Of the members of a task that has devices, the last one that holds its training state is not
    stopped for another task, unless it failed itself or its node can't be used."""
    body = verdict.body
    if not isinstance(body, WorkerStopOrdered):
        return
    task, worker = at.tasks[body.task], at.workers[body.worker]
    wanted = task.allocation is not None and bool(task.allocation.slots)
    if task.phase in tables.ENDED or not wanted or worker.status not in ("prepared", "member"):
        return
    stood = (body.worker, body.incarnation) in everybody(task)
    if stood and usable(at, worker.node) and not can_go(at, task, worker):
        yield f"{body.worker} is stopped and holds the last copy of {body.task}"


def plans_give_a_device_once(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A plan gives each device to one task at most, and only devices that may be used."""
    body = verdict.body
    if not isinstance(body, PlanDecided):
        return
    changed = {a.task: a for a in body.allocations}
    if len(changed) < len(body.allocations):
        yield f"a task has two allocations: {[a.task for a in body.allocations]}"
    owners: dict[tuple[str, int], str] = {}
    for task in at.tasks.values():
        name = task.spec.task
        given = changed.get(name, task.allocation)
        if given is None or task.phase in tables.ENDED:
            continue
        for slot in given.slots:
            if slot in owners:
                yield f"{slot[0]}/{slot[1]} is given to {owners[slot]} and to {name}"
            owners[slot] = name
            if name in changed and not fits(at, slot[0], slot[1]):
                yield f"{slot[0]}/{slot[1]} can't be used and is given to {name}"


def plans_fit_their_tasks(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A plan gives a task as many devices as its layout has ranks, and no more than it can use; all
    of one kind that it may run on, and on no node that it avoids."""
    body = verdict.body
    if not isinstance(body, PlanDecided):
        return
    for given in body.allocations:
        size = len(given.slots)
        ranks = given.tensor_parallel * given.pipeline_parallel * given.data_parallel
        spec = at.tasks[given.task].spec
        if size != ranks or size > min(spec.max_devices, spec.micro_batches):
            yield f"{given.task} gets {size} devices for {ranks} ranks, at most {spec.max_devices}"
        names = {node for node, _ in given.slots}
        kinds = {kind_on(at.nodes[name]) for name in names if name in at.nodes}
        if len(kinds) > 1 or not kinds <= set(spec.device_kinds or kinds):
            yield f"{given.task} gets devices of {', '.join(sorted(kinds))}"
        for name in sorted(names.intersection(spec.avoid)):
            yield f"{given.task} gets devices of {name}, which it avoids"


def tasks_out_of_budget_are_not_ordered(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A task that is itself to blame, or has used up its budget of generations, is ordered no
    more."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered):
        return
    task = at.tasks[body.task]
    if task.blame or task.closes > limits.FAULT_GENERATIONS_MAX:
        yield f"task {body.task} cost {task.closes} generations and is ordered again. {task.blame}"


def _name(verdict: Verdict) -> str:
    return type(verdict.body).__name__


#: The first one guards the others: they may take it for granted.
DECISION_CHECKS: Final = (
    decisions_name_what_exists,
    decisions_name_their_cause,
    decisions_name_their_incident,
    nothing_is_decided_twice,
    losses_need_two_signs,
    workers_start_on_free_devices,
    members_are_not_stopped,
    last_copies_are_kept,
    plans_give_a_device_once,
    plans_fit_their_tasks,
    tasks_out_of_budget_are_not_ordered,
)
