"""Fold of nodes, their agents and the connections of our processes."""

from unicron.controlplane.core import tables
from unicron.controlplane.core.change import (
    add_cause,
    break_generation,
    drop,
    put,
    replace,
    to_status,
    want_plan,
    with_node,
    with_worker,
)
from unicron.controlplane.core.connections import client_name, closed, is_open
from unicron.controlplane.core.state import Cause, ClusterState, NodeState
from unicron.controlplane.core.unsettled import count_present, cut_off_agents, workers_on
from unicron.events import (
    AgentStarted,
    AgentStopped,
    ConnectionClosed,
    ConnectionOpened,
    Incarnation,
    NodeAdmitted,
    NodeId,
    NodeIsolated,
    NodeLost,
    NodeRecovered,
    NodeReturned,
    NodeSuspected,
    Sequence,
    StoreBound,
    TaskId,
    node_of,
)

#: How the reason of a loss begins: such a node is well again once its agent starts anew.
LOST = "lost: "


def to_node(node: NodeState, status: str, at: Sequence, reason: str = "") -> NodeState:
    """The node in another status. Raises IllegalTransition."""
    status = tables.step(tables.NODE, node.status, status)
    return replace(node, status=status, since=at, reason=reason, confirmed=False)


# --- Agents -------------------------------------------------------------------------------------


def agent_started(
    state: ClusterState, at: Sequence, body: AgentStarted, incarnation: Incarnation
) -> ClusterState:
    """A node is offered, for the first time or again. Workers of its earlier life are gone."""
    old = state.nodes.get(body.node)
    status, reason = "joining", ""
    if old is not None:
        what = f"agent of {body.node} started anew: its workers are gone"
        for task in _tasks_on(state, body.node):
            state = add_cause(state, Cause(at=at, severity=2, what=what, task=task, node=body.node))
        state = _workers_gone(state, body.node, at, what)
        status, reason = _status_again(old)
        name = client_name("agent", old.node, old.incarnation)
        if old.incarnation != incarnation:
            state = replace(state, connections=drop(state.connections, name))
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
        reason=reason,
        sick=old.sick if old is not None else "",
    )
    return with_node(state, node)


def _status_again(old: NodeState) -> tuple[str, str]:
    """Status and reason of a node whose agent starts anew."""
    if old.status == "isolated" and not old.reason.startswith(LOST):
        return "isolated", old.reason  # a sick node does not heal by restarting its agent
    status = "joining" if old.status == "joining" else "returning"
    return tables.step(tables.NODE, old.status, status), ""


def agent_stopped(state: ClusterState, at: Sequence, body: AgentStopped) -> ClusterState:
    """The agent left in good order: its node is gone, and nobody is to blame."""
    node = state.nodes.get(body.node)
    if node is None or node.status == "lost":
        return state
    if node.status != "isolated":
        state = with_node(state, to_node(node, "lost", at, f"stopped: {body.reason}"))
        state = want_plan(state, at, f"{body.node} left")
    return _workers_gone(state, body.node, at, f"{body.node} was stopped")


def store_bound(state: ClusterState, at: Sequence, body: StoreBound) -> ClusterState:
    """The node's store listens on another port."""
    node = state.nodes.get(body.node)
    if node is None:
        return state
    return with_node(state, replace(node, address=body.address, store_port=body.store_port))


# --- Opinions and decisions ---------------------------------------------------------------------


def suspected(state: ClusterState, at: Sequence, body: NodeSuspected) -> ClusterState | None:
    """Void if the node was heard after the opinion was formed."""
    node = state.nodes.get(body.node)
    if node is None or node.incarnation != body.incarnation or node.status != "healthy":
        return None
    if node.last_fact > body.newest_fact:
        return None
    return with_node(state, to_node(node, "suspected", at, body.evidence))


def recovered(state: ClusterState, at: Sequence, body: NodeRecovered) -> ClusterState | None:
    """A flap: nothing had been done about it, and nothing is."""
    node = state.nodes.get(body.node)
    if node is None or node.incarnation != body.incarnation or node.status != "suspected":
        return None
    return with_node(state, to_node(node, "healthy", at))


def lost(state: ClusterState, at: Sequence, body: NodeLost) -> ClusterState | None:
    """The node and its workers are gone: evidence of a SEV1 for each task it carried."""
    node = state.nodes.get(body.node)
    if node is None or node.incarnation != body.incarnation:
        return None
    state = with_node(state, to_node(node, "lost", at, f"{LOST}{body.evidence}"))
    hit = sorted(
        set(_tasks_on(state, body.node))
        | {
            t.spec.task
            for t in state.tasks.values()
            if t.phase not in tables.ENDED
            and any(node_of(m.worker) == body.node for m in t.members)
        }
    )
    what = f"node {body.node} lost: {body.evidence}"
    for task in hit:
        state = add_cause(state, Cause(at=at, severity=1, what=what, task=task, node=body.node))
    if not hit:
        state = add_cause(state, Cause(at=at, severity=1, what=what, node=body.node))
    return _workers_gone(state, body.node, at, f"node {body.node} lost")


def isolated(state: ClusterState, at: Sequence, body: NodeIsolated) -> ClusterState | None:
    """The node takes no part in plans; the cluster is planned anew. Void if it was decided for a
    loss, and the node's agent has started anew since."""
    node = state.nodes.get(body.node)
    if node is None or node.status == "isolated":
        return None
    if body.reason.startswith(LOST) and node.status != "lost":
        return None
    state = with_node(state, to_node(node, "isolated", at, body.reason))
    incidents = {
        name: replace(i, isolated=True) if i.node == body.node and not i.resolved else i
        for name, i in state.incidents.items()
    }
    return want_plan(replace(state, incidents=incidents), at, f"{body.node} isolated")


def admitted(state: ClusterState, at: Sequence, body: NodeAdmitted) -> ClusterState | None:
    """The node may be planned with. Void if it has fallen sick since that was decided."""
    node = state.nodes.get(body.node)
    if node is None or node.incarnation != body.incarnation or node.sick:
        return None
    if node.status not in ("joining", "returning"):
        return None
    return want_plan(with_node(state, to_node(node, "healthy", at)), at, f"{body.node} joined")


def may_return(node: NodeState) -> bool:
    """Does anything keep it or one of its devices apart that an operator can end? One that was
    lost comes back by itself, when its agent does."""
    if node.status == "healthy":
        return bool(node.given_up)
    return node.status == "isolated" and not node.reason.startswith(LOST)


def returned(state: ClusterState, at: Sequence, body: NodeReturned) -> ClusterState | None:
    """An operator says the node is well again. Who could not be stopped there gets another try."""
    node = state.nodes.get(body.node)
    if node is None or not may_return(node):
        return None
    if node.status == "healthy":
        state = with_node(state, replace(node, given_up=()))
        return want_plan(state, at, f"{body.node} is well again")
    for worker in state.workers.values():
        if worker.node == body.node and worker.overdue:
            state = with_worker(state, replace(worker, overdue=False))
    node = replace(to_node(node, "returning", at, body.reason), sick="", given_up=())
    return with_node(state, node)


# --- Workers of a node --------------------------------------------------------------------------


def _workers_gone(state: ClusterState, node: NodeId, at: Sequence, why: str) -> ClusterState:
    for worker in workers_on(state, node):
        state = with_worker(state, to_status(worker, "lost"))
        state = break_generation(state, worker.task, worker.worker, at, why)
    return state


def _tasks_on(state: ClusterState, node: NodeId) -> list[TaskId]:
    return sorted({w.task for w in workers_on(state, node)})


# --- Connections --------------------------------------------------------------------------------


def connection(state: ClusterState, body: ConnectionOpened | ConnectionClosed) -> ClusterState:
    """Remember the newest connection of each of our processes' present lives; ignore all other
    clients'. A server counts its connections, so a report that comes again, or late, changes
    nothing."""
    known = state.connections.get(body.client, "")
    key = f"{body.server}/{body.client_number}"
    if isinstance(body, ConnectionClosed):
        if known != key:
            return state
        state = replace(state, connections=put(state.connections, body.client, f"-{key}"))
        return _in_company(state)
    if not _is_ours(state, body.client):
        return state
    server, _, number = _key(known).rpartition("/")
    if known and server == body.server and body.client_number <= int(number):
        return state
    return replace(state, connections=put(state.connections, body.client, key))


def _in_company(state: ClusterState) -> ClusterState:
    """Once most agents are cut off at the same time it is us or the network. That speaks against
    none of their nodes, also when some are connected again and the others are no longer most."""
    off, alone = cut_off_agents(state)
    if not alone or 2 * off <= count_present(state):
        return state
    clients = [client_name("agent", n.node, n.incarnation) for n in alone]
    marked = {client: f"-~{_key(state.connections[client])}" for client in clients}
    return replace(state, connections={**state.connections, **marked})


def _key(known: str) -> str:
    """``server/number``, whether the connection is open, closed, or closed with most."""
    return known.removeprefix("-").removeprefix("~")


def _is_ours(state: ClusterState, client: str) -> bool:
    """It names a process of ours that isn't known to have had a successor."""
    who, _, incarnation = client.rpartition("/")
    kind, _, name = who.partition("/")
    if kind == "worker":
        worker = state.workers.get(name)
        return worker is not None and str(worker.incarnation) == incarnation
    source = state.sources.get(who)
    return kind == "agent" and (
        source is None or incarnation not in {str(past) for past in source.past}
    )


def cut_off(state: ClusterState, node: NodeState) -> str:
    """The connection of its agent, if that is closed and so are those of all its workers; else
    "". A worker that is starting had none yet: it neither speaks for the node nor against it."""
    if not closed(state, "agent", node.node, node.incarnation):
        return ""
    workers = [(w.worker, w.incarnation) for w in workers_on(state, node.node)]
    gone = any(closed(state, "worker", *life) for life in workers)
    if not gone or any(is_open(state, "worker", *life) for life in workers):
        return ""
    client = client_name("agent", node.node, node.incarnation)
    return _key(state.connections[client])
