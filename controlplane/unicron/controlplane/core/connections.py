"""What the state knows of the connections of our processes to the log's server."""

from unicron.controlplane.core.state import ClusterState, NodeState


def client_name(kind: str, name: str, incarnation: int) -> str:
    """The name under which a process of ours connects to the log's server."""
    return f"{kind}/{name}/{incarnation}"


def is_open(state: ClusterState, kind: str, name: str, incarnation: int) -> bool:
    """Has the process a connection? Neither open nor closed: it has not connected yet."""
    known = state.connections.get(client_name(kind, name, incarnation), "")
    return known != "" and not known.startswith("-")


def closed(state: ClusterState, kind: str, name: str, incarnation: int) -> bool:
    """Did the process's newest connection close?"""
    return state.connections.get(client_name(kind, name, incarnation), "").startswith("-")


def closed_with_most(state: ClusterState, node: NodeState) -> bool:
    """Did its agent's connection close when those of most agents did?"""
    client = client_name("agent", node.node, node.incarnation)
    return state.connections.get(client, "").startswith("-~")
