"""Fold of worker processes: their orders, their lives and their failures."""

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.change import (
    add_cause,
    break_generation,
    drop,
    replace,
    sicken,
    to_status,
    want_plan,
    with_node,
    with_task,
    with_worker,
)
from unicron.controlplane.core.connections import client_name, closed
from unicron.controlplane.core.leases import can_go
from unicron.controlplane.core.state import Cause, ClusterState, Failure, WorkerState
from unicron.controlplane.core.supply import devices, usable
from unicron.controlplane.core.unsettled import workers_of, workers_on
from unicron.events import (
    ExceptionReported,
    Incarnation,
    PeerErrorReported,
    Sequence,
    TaskId,
    WorkerExited,
    WorkerId,
    WorkerPrepared,
    WorkerStarted,
    WorkerStartFailed,
    WorkerStartOrdered,
    WorkerStopOrdered,
    worker_id,
)

#: Signatures that speak against the task's own code when they repeat on more than one node.
_CODE = ("exception:", "exit:exit code", "start")


def known(state: ClusterState, worker: WorkerId, incarnation: Incarnation) -> WorkerState | None:
    """The worker, if the fact is about its present incarnation."""
    found = state.workers.get(worker)
    return found if found is not None and found.incarnation == incarnation else None


# --- Orders -------------------------------------------------------------------------------------


def start_ordered(
    state: ClusterState, at: Sequence, body: WorkerStartOrdered
) -> ClusterState | None:
    """A new incarnation of the slot; the history of its failures stays if it is the same task."""
    old = state.workers.get(body.worker)
    if old is not None and body.incarnation == old.incarnation:
        return _said_again(state, at, old)
    if old is not None and body.incarnation < old.incarnation:
        return None
    task, node = state.tasks.get(body.task), state.nodes.get(body.node)
    if task is None or task.phase in tables.ENDED or node is None or node.status == "lost":
        return None
    if body.worker != worker_id(body.node, body.device):
        return None
    if body.agent not in (0, node.incarnation):
        return None  # its agent began anew meanwhile, and wouldn't obey
    if old is not None:
        name = client_name("worker", old.worker, old.incarnation)
        state = replace(state, connections=drop(state.connections, name))
    worker = WorkerState(
        worker=body.worker,
        task=body.task,
        node=body.node,
        device=body.device,
        incarnation=body.incarnation,
        status="ordered",
        order=at,
        failures=old.failures if old is not None and old.task == body.task else (),
    )
    return with_worker(state, worker)


def _said_again(state: ClusterState, at: Sequence, worker: WorkerState) -> ClusterState | None:
    """A new leader repeats, in its own term, a start that no agent has confirmed."""
    if worker.begun or worker.status not in ("ordered", "stopping"):
        return None
    return with_worker(state, replace(worker, order=at))


def stop_ordered(state: ClusterState, at: Sequence, body: WorkerStopOrdered) -> ClusterState | None:
    """The slot is being vacated."""
    worker = known(state, body.worker, body.incarnation)
    if worker is None:
        return None
    return with_worker(state, replace(to_status(worker, "stopping"), stop_order=at))


# --- Lives --------------------------------------------------------------------------------------


def started(
    state: ClusterState, at: Sequence, body: WorkerStarted, worker: WorkerState
) -> ClusterState:
    """The process exists."""
    worker = replace(worker, begun=True)
    if worker.status == "ordered":
        worker = to_status(worker, "started")
    return with_worker(state, worker)


def prepared(
    state: ClusterState, at: Sequence, body: WorkerPrepared, worker: WorkerState
) -> ClusterState:
    """The worker has built its model and waits; refuse one that would compute other bits."""
    if worker.status not in ("ordered", "started"):
        return state
    digest = f"{body.spec_digest} threads={body.threads} {body.torch} {body.megatron}"
    worker = replace(worker, begun=True, spec_digest=digest)
    for other in workers_of(state, worker.task):
        holds = other.joined and other.status in ("prepared", "member")
        if holds and other.spec_digest != digest:
            return _refused(state, at, worker, other)
    return with_worker(state, to_status(worker, "prepared"))


def refuse_others(state: ClusterState, at: Sequence, holder: WorkerState) -> ClusterState:
    """The first of a task hold its training state: whoever waits with other software can't join
    them any more. See formation.first for who comes first."""
    for worker in workers_of(state, holder.task):
        if worker.status == "prepared" and worker.spec_digest != holder.spec_digest:
            state = _refused(state, at, worker, holder)
    return state


def _refused(
    state: ClusterState, at: Sequence, worker: WorkerState, holder: WorkerState
) -> ClusterState:
    """Its node is set apart, if tasks can do without: whatever starts there would be the same."""
    what = (
        f"{worker.worker} runs other software than {holder.worker} "
        f"({worker.spec_digest} against {holder.spec_digest}): results would not be reproducible"
    )
    severity = 1 if _has_elsewhere(state, worker) else 2
    return failed(state, at, worker, "software", what, severity=severity)


def start_failed(
    state: ClusterState, at: Sequence, body: WorkerStartFailed, worker: WorkerState
) -> ClusterState:
    """The agent could not start it. What was to be stopped anyway is gone, and that is all."""
    if worker.status in ("stopping", "failed"):
        return with_worker(state, to_status(worker, "exited"))
    if worker.status not in ("ordered", "started"):
        return state
    what = f"{worker.worker} did not start: {body.error[:200]}"
    state = failed(state, at, worker, "start", what, severity=2)
    return with_worker(state, to_status(state.workers[worker.worker], "exited"))


def exited(
    state: ClusterState, at: Sequence, body: WorkerExited, worker: WorkerState
) -> ClusterState:
    """The process is gone. What we ordered ourselves opens no incident."""
    if worker.status not in tables.ALIVE:
        return state
    ordered = body.ordered or worker.status in ("stopping", "failed")
    end = _end(body)
    ended = state.tasks[worker.task].phase in tables.ENDED
    if ordered or ended:
        state = with_worker(state, to_status(worker, "exited"))
        return break_generation(state, worker.task, worker.worker, at, f"{worker.worker} stopped")
    what = f"worker {worker.worker} exited abnormally ({end})"
    state = failed(state, at, worker, f"exit:{end}", what, severity=2, iteration=body.iteration)
    return with_worker(state, to_status(state.workers[worker.worker], "exited"))


def _end(body: WorkerExited) -> str:
    if body.signal is not None:
        return f"signal {body.signal}"
    return f"exit code {body.exit_code}" if body.exit_code is not None else "nobody saw how"


# --- Failures -----------------------------------------------------------------------------------


def exception(
    state: ClusterState, at: Sequence, body: ExceptionReported, worker: WorkerState
) -> ClusterState:
    """The training step raised: severity from the table, climbing when it repeats."""
    if worker.stop_order or worker.status == "lost":
        return state  # our own doing, or of no use any more
    what = f"{body.kind} in {worker.worker}: {body.message[:200]}"
    severity = tables.severity_of(body.kind)
    if worker.status in ("exited", "failed"):  # its end was heard first: what it was still counts
        return _blame_node(state, at, worker, what) if severity == 1 else state
    if severity == 3:
        return symptom(state, at, worker, what)
    return failed(
        state,
        at,
        worker,
        f"exception:{body.kind}",
        what,
        severity=severity,
        iteration=body.iteration,
    )


def peer_error(
    state: ClusterState, at: Sequence, body: PeerErrorReported, worker: WorkerState
) -> ClusterState:
    """A symptom: closes the generation, never sets the severity (3 until more is known)."""
    task = state.tasks[worker.task]
    if task.phase not in ("running", "ordered") or body.generation < _standing(state, worker):
        return state
    return symptom(state, at, worker, f"{worker.worker} reports: {body.error[:200]}")


def _standing(state: ClusterState, worker: WorkerState) -> int:
    """Generations below this one were left already, so an error in them is stale."""
    task = state.tasks[worker.task]
    if task.phase == "ordered" and task.planned:
        return task.generation - 1
    return task.generation


def symptom(state: ClusterState, at: Sequence, worker: WorkerState, what: str) -> ClusterState:
    """Something broke under the worker; who broke it isn't said, so all try again in place. When
    that has come to nothing often enough, it climbs: they go on without who reports it first."""
    task = state.tasks[worker.task]
    tried = task.fruitless >= limits.REATTEMPTS_MAX and not task.broken
    if tried and worker.status in ("prepared", "member") and not worker.stop_order:
        what += f", as at {task.fruitless} attempts before"
        return failed(state, at, worker, "reattempt", what, severity=2)
    state = add_cause(
        state, Cause(at=at, severity=3, what=what, task=worker.task, worker=worker.worker)
    )
    return break_generation(state, worker.task, worker.worker, at, what)


def failed(
    state: ClusterState,
    at: Sequence,
    worker: WorkerState,
    signature: str,
    what: str,
    *,
    severity: int,
    iteration: int = -1,
) -> ClusterState:
    """The worker must go. The same failure again, without training well for a while in between,
    climbs: its node is sick, or its device is given up where the node can't be spared; or the
    task is to blame, if it happens on other nodes as well.
    `iteration`: how far it had come, -1 if that isn't known."""
    task = state.tasks[worker.task]
    reached = iteration if iteration >= 0 else task.iteration
    trained_well = (
        worker.joined and reached - worker.joined_at >= limits.SIGNATURE_MEMORY_ITERATIONS
    )
    recent = () if trained_well else worker.failures
    times = sum(f.signature == signature for f in recent) + 1
    if times > 1:
        what += ", the same as shortly before"
        if why := _is_the_task(state, worker, signature, times):
            reason = f"{what}, {why}: the task itself is at fault"
            state = with_task(state, replace(task, blame=task.blame or reason))
        elif _has_elsewhere(state, worker):
            severity = 1
        elif times < limits.SAME_FAILURES_MAX:
            what += "; kept in use, no other node could carry the task"
        else:
            what += f", {times} times: its device is given up"
            state = _give_up(state, at, worker)
    failure = Failure(signature=signature, iteration=reached)
    worker = replace(to_status(worker, "failed"), failures=(*recent, failure))
    state = with_worker(state, worker)
    if severity == 1:
        state = _blame_node(state, at, worker, what)
    else:
        cause = Cause(
            at=at,
            severity=severity,
            what=what,
            task=worker.task,
            node=worker.node,
            worker=worker.worker,
        )
        state = add_cause(state, cause)
    return break_generation(state, worker.task, worker.worker, at, what)


def _is_the_task(state: ClusterState, worker: WorkerState, signature: str, times: int) -> str:
    """Why it is the code and not a device, or ""."""
    if not signature.startswith(_CODE):
        return ""
    if any(
        f.signature == signature
        for w in workers_of(state, worker.task)
        if w.node != worker.node
        for f in w.failures
    ):
        return "and on other nodes too"
    if times >= limits.SAME_FAILURES_MAX and not state.tasks[worker.task].trained:
        return f"{times} times, before the task has trained at all"
    return ""


def _give_up(state: ClusterState, at: Sequence, worker: WorkerState) -> ClusterState:
    node = state.nodes.get(worker.node)
    if node is None or worker.device in node.given_up:
        return state
    node = replace(node, given_up=tuple(sorted((*node.given_up, worker.device))))
    return want_plan(with_node(state, node), at, f"{worker.worker} keeps failing")


def _has_elsewhere(state: ClusterState, worker: WorkerState) -> bool:
    """Could other nodes carry the worker's task, and each that trains on its node? Isolating the
    last node that can would end it, which is no cure for a process that keeps dying."""
    others = [
        len(devices(n))
        for n in state.nodes.values()
        if n.node != worker.node
        and usable(state, n.node)
        and not n.sick
        and not closed(state, "agent", n.node, n.incarnation)  # it may be gone already
    ]
    here = workers_on(state, worker.node)
    tasks = [state.tasks[name] for name in {worker.task, *(w.task for w in here if w.joined)}]
    needed = [max(1, t.spec.min_devices) for t in tasks if t.phase not in tables.ENDED]
    return sum(others) >= max(needed, default=1)


def _blame_node(state: ClusterState, at: Sequence, worker: WorkerState, what: str) -> ClusterState:
    cause = Cause(
        at=at, severity=1, what=what, task=worker.task, node=worker.node, worker=worker.worker
    )
    return add_cause(sicken(state, worker.node, what), cause)


def outlived(state: ClusterState, at: Sequence, worker: WorkerState) -> ClusterState:
    """It could not be stopped within the limit: whoever it was, its device can't be used."""
    state = with_worker(state, replace(worker, overdue=True))
    what = f"{worker.worker} could not be stopped: its device is not usable"
    return _blame_node(state, at, worker, what)


def unreleased(state: ClusterState, at: Sequence, worker: WorkerState, to: TaskId) -> ClusterState:
    """It has not left its device to the task `to` within the limit. It must go, and its task goes
    on without it. If that would lose the state of a task that trains, the cluster is planned anew
    instead, and the next plan gives it another limit."""
    what = f"{worker.worker} was not released to {to} within {limits.RELEASE_MS} ms"
    task = state.tasks[worker.task]
    if task.phase != "closed" and not can_go(state, task, worker):
        state = with_worker(state, replace(worker, overdue=True))
        return want_plan(state, at, f"{what}, {worker.task} can't do without it yet")
    state = with_worker(state, to_status(worker, "failed"))
    cause = Cause(
        at=at, severity=2, what=what, task=worker.task, node=worker.node, worker=worker.worker
    )
    return break_generation(add_cause(state, cause), worker.task, worker.worker, at, what)
