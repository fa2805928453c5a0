"""How the things that an incident hit stand at the end of the log, and what to do about it."""

from collections.abc import Iterable

from unicron.controlplane.core import tables
from unicron.controlplane.core.fold_node import LOST
from unicron.controlplane.core.leases import leases
from unicron.controlplane.core.state import ClusterState, NodeState, TaskState, WorkerState
from unicron.controlplane.core.supply import usable
from unicron.controlplane.replay.phrases import names, one_line
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.story import NextCommand, NowState
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.controlplane.replay.units import count
from unicron.events import ExceptionReported, Sequence


def standing_of(reading: Reading, incident: IncidentSummary) -> tuple[NowState, ...]:
    """The node, the worker and the tasks that it hit, as far as there were any."""
    state = reading.state
    found: list[NowState] = []
    if incident.node is not None and incident.node in state.nodes:
        found.append(node_now(state.nodes[incident.node]))
    if incident.worker is not None and incident.worker in state.workers:
        found.append(worker_now(state, state.workers[incident.worker]))
    found += [task_now(reading, state.tasks[name]) for name in incident.tasks]
    return tuple(found)


def commands_of(reading: Reading, incident: IncidentSummary) -> tuple[NextCommand, ...]:
    """What to ask next, the most useful first."""
    node = reading.state.nodes.get(incident.node) if incident.node is not None else None
    found: list[NextCommand] = []
    if incident.is_open:
        found.append(NextCommand(arguments=("status",), about="how the cluster stands"))
    if node is not None and node.status in ("isolated", "lost"):
        found.append(
            NextCommand(arguments=("why", node.node), about=f"why {node.node} is {node.status}")
        )
    found += tracebacks(reading, reading.state.incidents[incident.id].evidence)[:1]
    found.append(
        NextCommand(
            arguments=("why", str(incident.resolved_seq or incident.opened_seq)),
            about="the chain of causes",
        )
    )
    found.append(
        NextCommand(
            arguments=("events", "--for", incident.id), about="every event, with its fields"
        )
    )
    return tuple(found)


def tracebacks(reading: Reading, seqs: Iterable[Sequence]) -> tuple[NextCommand, ...]:
    """How to see those of the exceptions among these events."""
    return tuple(
        NextCommand(arguments=("traceback", str(seq)), about=f"the traceback of {body.worker}")
        for seq in seqs
        if isinstance(body := reading.body(seq), ExceptionReported) and body.traceback
    )


def node_now(node: NodeState) -> NowState:
    """How the node stands, and what would change that."""
    given_up = ""
    if node.given_up:
        devices = ", ".join(str(d) for d in node.given_up)
        given_up = f"; device {devices} given up, an operator can give it back"
    return NowState(
        kind="node",
        name=node.node,
        state=node.status,
        since_seq=node.since,
        what=one_line(_node_words(node) + given_up),
    )


def _node_words(node: NodeState) -> str:
    match node.status:
        case "healthy":
            return "takes part in plans"
        case "suspected":
            return f"may be gone: {node.reason}"
        case "isolated" if not node.reason.startswith(LOST):
            return f"takes no part until an operator gives it back: {node.reason}"
        case "isolated" | "lost":
            return f"takes part again once its agent starts anew; {node.reason}"
        case _:
            return "waits to be admitted"


def worker_now(state: ClusterState, worker: WorkerState) -> NowState:
    """How the newest life of the worker stands."""
    rank = rank_of(state, worker)
    if rank is not None:
        words = f"life {worker.incarnation} trains {worker.task} as rank {rank}"
    elif worker.status in tables.ALIVE:
        words = f"life {worker.incarnation} lives, and does not train"
    else:
        words = f"life {worker.incarnation} has ended"
    to = next((lease.to for lease in leases(state) if lease.holder is worker), None)
    if to is not None:
        words += f"; the plan gives its device to {to}"
    return NowState(
        kind="worker",
        name=worker.worker,
        state=worker.status,
        since_seq=max(worker.order, worker.stop_order),
        what=words,
    )


def rank_of(state: ClusterState, worker: WorkerState) -> int | None:
    """Its rank in the generation that stands, if it is a member of it."""
    task = state.tasks.get(worker.task)
    members = task.members if task is not None and worker.status == "member" else ()
    return next((m.rank for m in members if m.worker == worker.worker), None)


def task_now(reading: Reading, task: TaskState) -> NowState:
    """How the task stands."""
    return NowState(
        kind="task",
        name=task.spec.task,
        state=task.phase,
        since_seq=task.since,
        what=one_line(task_words(reading, task)),
    )


def task_words(reading: Reading, task: TaskState) -> str:
    """``trains on 3 of 4 devices, iteration 12 of 50``."""
    if task.phase in tables.ENDED:
        return task.outcome
    wanted = len(task.allocation.slots) if task.allocation is not None else 0
    at = f"iteration {task.iteration} of {task.spec.iterations}"
    paces = reading.throughput.paces.get(task.spec.task, [])
    devices = paces[-1].devices if paces else 0
    if devices:
        held = _held(reading.state, task)
        return f"trains on {devices} of {count(wanted, 'device')}, {at}{held}"
    if task.allocation is not None and not wanted:
        return f"is parked at {at}, until a plan gives it devices{_no_kind(reading.state, task)}"
    held = _held(reading.state, task)
    return f"stands still at {at}; the plan gives it {count(wanted, 'device')}{held}"


def _no_kind(state: ClusterState, task: TaskState) -> str:
    """What is missing, if there is no node of a kind that it may run on."""
    there = {n.device_kind for n in state.nodes.values() if usable(state, n.node)}
    kinds = task.spec.device_kinds
    if not kinds or there.intersection(kinds):
        return ""
    have = f"; there is {names(tuple(sorted(there)))}" if there else ""
    return f": it may run only on {names(kinds)}, of which no node is in use{have}"


def _held(state: ClusterState, task: TaskState) -> str:
    """Devices that it waits for."""
    mine = [lease.holder for lease in leases(state) if lease.to == task.spec.task]
    donors = sorted({holder.task for holder in mine})
    return "".join(
        f"; waits for {names(tuple(h.worker for h in mine if h.task == donor))}, "
        f"held by {donor} until its worker there has stopped"
        for donor in donors
    )
