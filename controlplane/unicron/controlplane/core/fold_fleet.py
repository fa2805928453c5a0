"""Fold of nodes, agents, connections and worker processes."""

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.change import (
    add_cause,
    break_generation,
    put,
    replace,
    to_status,
    with_node,
    with_task,
    with_worker,
)
from unicron.controlplane.core.state import (
    Cause,
    ClusterState,
    Failure,
    NodeState,
    WorkerState,
)
from unicron.events import (
    AgentStarted,
    AgentStopped,
    ConnectionClosed,
    ConnectionOpened,
    ExceptionReported,
    Incarnation,
    NodeId,
    NodeLost,
    PeerErrorReported,
    Sequence,
    StoreBound,
    WorkerExited,
    WorkerId,
    WorkerPrepared,
    WorkerStarted,
    WorkerStartFailed,
    WorkerStartOrdered,
    WorkerStopOrdered,
    node_of,
)


def client_name(kind: str, name: str, incarnation: int) -> str:
    """The name under which a process of ours connects to the log's server."""
    return f"{kind}/{name}/{incarnation}"


def want_plan(state: ClusterState, at: Sequence, reason: str) -> ClusterState:
    """Note that something happened which calls for a plan of the whole cluster."""
    return replace(state, plan=replace(state.plan, wanted=at, reason=reason, failures=0))


# --- nodes ------------------------------------------------------------------------------------


def agent_started(
    state: ClusterState, at: Sequence, body: AgentStarted, incarnation: Incarnation
) -> ClusterState:
    """A node is offered, for the first time or again. Workers of its earlier life are gone."""
    old = state.nodes.get(body.node)
    status = "joining"
    if old is not None:
        what = f"agent of {body.node} started anew: its workers are gone"
        for task in sorted({w.task for w in state.workers.values() if _lives_on(w, body.node)}):
            state = add_cause(
                state, Cause(at=at, severity=2, what=what, task=task, node=body.node)
            )
        state = _workers_gone(state, body.node, at, what)
        if old.status != "joining":
            status = "returning"
        if old.status == "isolated" and not old.reason.startswith("lost"):
            status = "isolated"  # a sick node does not heal by restarting its agent
    node = NodeState(
        node=body.node,
        incarnation=incarnation,
        status=status,
        since=at,
        address=body.address,
        store_port=body.store_port,
        devices=body.devices,
        device_kind=body.device_kind,
        rack=body.rack,
        last_fact=at,
        reason=old.reason if old is not None and status == "isolated" else "",
    )
    return with_node(state, node)


def agent_stopped(state: ClusterState, at: Sequence, body: AgentStopped) -> ClusterState:
    """The agent left in good order: its node is gone, and nobody is to blame."""
    node = state.nodes.get(body.node)
    if node is None or node.status in ("lost", "isolated"):
        return state
    gone = replace(node, status=_node(node, "lost"), since=at, reason=f"stopped: {body.reason}")
    state = _workers_gone(with_node(state, gone), body.node, at, f"{body.node} was stopped")
    return want_plan(state, at, f"{body.node} left")


def store_bound(state: ClusterState, at: Sequence, body: StoreBound) -> ClusterState:
    """The node's store listens on another port."""
    node = state.nodes.get(body.node)
    if node is None:
        return state
    return with_node(state, replace(node, address=body.address, store_port=body.store_port))


def node_lost(state: ClusterState, at: Sequence, body: NodeLost) -> ClusterState:
    """The node and its workers are gone: evidence of a SEV1 for each task it carried."""
    node = state.nodes[body.node]
    state = with_node(
        state, replace(node, status=_node(node, "lost"), since=at, reason=f"lost: {body.evidence}")
    )
    hit = sorted(
        {w.task for w in state.workers.values() if _lives_on(w, body.node)}
        | {
            t.spec.task
            for t in state.tasks.values()
            if t.phase not in tables.ENDED and any(node_of(m.worker) == body.node for m in t.members)
        }
    )
    what = f"node {body.node} lost: {body.evidence}"
    for task in hit:
        state = add_cause(
            state, Cause(at=at, severity=1, what=what, task=task, node=body.node)
        )
    if not hit:
        state = add_cause(state, Cause(at=at, severity=1, what=what, node=body.node))
    return _workers_gone(state, body.node, at, f"node {body.node} lost")


def _node(node: NodeState, status: str) -> str:
    return tables.step(tables.NODE, node.status, status)


def _workers_gone(state: ClusterState, node: NodeId, at: Sequence, why: str) -> ClusterState:
    for worker in [w for w in state.workers.values() if _lives_on(w, node)]:
        state = with_worker(state, to_status(worker, "lost"))
        state = break_generation(state, worker.task, worker.worker, at, why)
    return state


def _alive(worker: WorkerState) -> bool:
    return worker.status in tables.ALIVE


def _lives_on(worker: WorkerState, node: NodeId) -> bool:
    return worker.node == node and _alive(worker)


# --- connections ------------------------------------------------------------------------------


def connection(state: ClusterState, body: ConnectionOpened | ConnectionClosed) -> ClusterState:
    """Remember the newest connection of each of our processes; ignore all other clients'."""
    if not body.client.startswith(("agent/", "worker/")):
        return state
    key = f"{body.server}/{body.client_number}"
    if isinstance(body, ConnectionOpened):
        return replace(state, connections=put(state.connections, body.client, key))
    if state.connections.get(body.client) != key:
        return state
    return replace(state, connections=put(state.connections, body.client, ""))


def closed(state: ClusterState, kind: str, name: str, incarnation: int) -> bool:
    """Did the process's newest connection close?"""
    return state.connections.get(client_name(kind, name, incarnation)) == ""


# --- workers ----------------------------------------------------------------------------------


def start_ordered(state: ClusterState, at: Sequence, body: WorkerStartOrdered) -> ClusterState:
    """A new incarnation of the slot; the history of its failures stays."""
    old = state.workers.get(body.worker)
    worker = WorkerState(
        worker=body.worker,
        task=body.task,
        node=body.node,
        device=body.device,
        incarnation=body.incarnation,
        status="ordered",
        order=at,
        failures=old.failures if old is not None else (),
    )
    return with_worker(state, worker)


def stop_ordered(state: ClusterState, at: Sequence, body: WorkerStopOrdered) -> ClusterState:
    """The slot is being vacated."""
    worker = state.workers[body.worker]
    return with_worker(state, replace(to_status(worker, "stopping"), stop_order=at))


def started(state: ClusterState, body: WorkerStarted, worker: WorkerState) -> ClusterState:
    """The process exists."""
    if worker.status != "ordered":
        return state
    return with_worker(state, to_status(worker, "started"))


def prepared(
    state: ClusterState, at: Sequence, body: WorkerPrepared, worker: WorkerState
) -> ClusterState:
    """The worker has built its model and waits; refuse one that would compute other bits."""
    if worker.status not in ("ordered", "started"):
        return state
    digest = f"{body.spec_digest} threads={body.threads} {body.torch} {body.megatron}"
    for other in state.workers.values():
        same_task = other.task == worker.task and other.worker != worker.worker
        if same_task and other.joined and _alive(other) and other.spec_digest != digest:
            what = (
                f"{worker.worker} runs other software than {other.worker} "
                f"({digest} against {other.spec_digest}): results would not be reproducible"
            )
            return _failed(state, at, worker, "software", what, severity=1)
    return with_worker(state, replace(to_status(worker, "prepared"), spec_digest=digest))


def start_failed(
    state: ClusterState, at: Sequence, body: WorkerStartFailed, worker: WorkerState
) -> ClusterState:
    """The agent could not start it."""
    if worker.status not in ("ordered", "started"):
        return state
    what = f"{worker.worker} did not start: {body.error}"
    state = _failed(state, at, worker, "start", what, severity=2)
    return with_worker(state, to_status(state.workers[worker.worker], "exited"))


def exited(
    state: ClusterState, at: Sequence, body: WorkerExited, worker: WorkerState
) -> ClusterState:
    """The process is gone. What we ordered ourselves opens no incident."""
    if not _alive(worker) and worker.status != "failed":
        return state
    ordered = body.ordered or worker.status in ("stopping", "failed")
    end = f"signal {body.signal}" if body.signal is not None else f"exit code {body.exit_code}"
    ended = state.tasks[worker.task].phase in tables.ENDED
    if ordered or ended:
        state = with_worker(state, to_status(worker, "exited"))
        return break_generation(state, worker.task, worker.worker, at, f"{worker.worker} stopped")
    what = f"worker {worker.worker} exited abnormally ({end})"
    state = _failed(state, at, worker, f"exit:{end}", what, severity=2)
    return with_worker(state, to_status(state.workers[worker.worker], "exited"))


def exception(
    state: ClusterState, at: Sequence, body: ExceptionReported, worker: WorkerState
) -> ClusterState:
    """The training step raised: severity from the table, climbing when it repeats."""
    what = f"{body.kind} in {worker.worker}: {body.message[:200]}"
    severity = tables.severity_of(body.kind)
    if severity == 3:
        state = add_cause(
            state,
            Cause(at=at, severity=3, what=what, task=worker.task, node=worker.node,
                  worker=worker.worker),
        )
        return break_generation(state, worker.task, worker.worker, at, what)
    return _failed(state, at, worker, f"exception:{body.kind}", what, severity=severity)


def peer_error(
    state: ClusterState, at: Sequence, body: PeerErrorReported, worker: WorkerState
) -> ClusterState:
    """A symptom: closes the generation, never sets the severity (3 until more is known)."""
    task = state.tasks[worker.task]
    if task.phase not in ("running", "ordered") or body.generation < _standing(state, worker):
        return state
    what = f"{worker.worker} reports: {body.error[:200]}"
    state = add_cause(
        state, Cause(at=at, severity=3, what=what, task=worker.task, worker=worker.worker)
    )
    return break_generation(state, worker.task, worker.worker, at, what)


def _standing(state: ClusterState, worker: WorkerState) -> int:
    """Generations below this one were left already, so an error in them is stale."""
    task = state.tasks[worker.task]
    if task.phase == "ordered" and task.planned:
        return task.generation - 1
    return task.generation


def _failed(
    state: ClusterState, at: Sequence, worker: WorkerState, signature: str, what: str, severity: int
) -> ClusterState:
    """The slot failed: remember the signature, climb if it is the same again too soon."""
    task = state.tasks[worker.task]
    recent = [
        f
        for f in worker.failures
        if task.iteration - f.iteration < limits.SIGNATURE_MEMORY_ITERATIONS
    ]
    if any(f.signature == signature for f in recent):
        severity = 1
        what += ", the same as shortly before"
    failure = Failure(signature=signature, iteration=task.iteration)
    worker = replace(to_status(worker, "failed"), failures=(*recent, failure))
    state = with_worker(state, worker)
    state = add_cause(
        state,
        Cause(at=at, severity=severity, what=what, task=worker.task, node=worker.node,
              worker=worker.worker),
    )
    return break_generation(state, worker.task, worker.worker, at, what)


def deadline(state: ClusterState, at: Sequence, key: str) -> ClusterState:
    """A wait on a node, a worker, a task or the solver reached its limit; see deadlines.py."""
    kind, _, name = key.partition(":")
    subject, _, number = name.rpartition(":")
    if kind == "confirm" and name in state.nodes:
        return with_node(state, replace(state.nodes[name], confirmed=True))
    if kind in ("start", "stop"):
        worker = state.workers.get(subject)
        if worker is not None and str(worker.incarnation) == number:
            return _overdue(state, at, kind, worker)
    if kind in ("quiesce", "ready"):
        task = state.tasks.get(subject)
        phase = "closed" if kind == "quiesce" else "ordered"
        if task is not None and task.phase == phase and str(task.generation) == number:
            return with_task(state, replace(task, overdue=True))
    if kind == "solve" and state.plan.request:
        failed = replace(state.plan, answer=at, error="no answer within the limit", answered=())
        return replace(state, plan=failed)
    return state


def _overdue(state: ClusterState, at: Sequence, kind: str, worker: WorkerState) -> ClusterState:
    waited = ("ordered", "started") if kind == "start" else ("stopping",)
    if worker.status not in waited:
        return state
    worker = replace(worker, overdue=True)
    state = with_worker(state, worker)
    if kind == "start":
        return state
    what = f"{worker.worker} could not be stopped: its device is not usable"
    return add_cause(
        state,
        Cause(at=at, severity=1, what=what, task=worker.task, node=worker.node,
              worker=worker.worker),
    )


def known(
    state: ClusterState, worker: WorkerId, incarnation: Incarnation
) -> WorkerState | None:
    """The worker, if the fact is about its present incarnation."""
    found = state.workers.get(worker)
    return found if found is not None and found.incarnation == incarnation else None
