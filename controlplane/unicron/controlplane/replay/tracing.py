"""What made a node or a worker look dead before its end was known: closed connections, silence.

Facts about connections and the monitor's opinions stand in the log before the decision or the
fact that sums them up, and nothing in it names them.
"""

from collections.abc import Sequence as SequenceOf

from unicron import events as ev
from unicron.events import NodeId, Recorded, Sequence, WorkerId, node_of


def foreboding(log: SequenceOf[Recorded], seq: int) -> tuple[Sequence, ...]:
    """Sequences before `seq` that told of the same loss, ascending; `log` begins with #1."""
    envelope = log[seq - 1].envelope
    match envelope.body if envelope is not None else None:
        case ev.NodeLost(node=node):
            return tuple(sorted(_node_went_silent(log, seq, node)))
        case ev.DeadlinePassed(key=key) if key.startswith("closed:"):
            node = NodeId(key.removeprefix("closed:").rpartition(":")[0])
            return tuple(sorted(_node_went_silent(log, seq, node)))
        case ev.WorkerExited(worker=worker, incarnation=incarnation, ordered=False):
            return _connection_closed(log, seq, f"worker/{worker}/{incarnation}")
        case _:
            return ()


def _connection_closed(log: SequenceOf[Recorded], before: int, client: str) -> tuple[Sequence, ...]:
    """The newest report about the client's connection, if it says closed."""
    for recorded in reversed(log[: before - 1]):
        body = recorded.envelope.body if recorded.envelope else None
        match body:
            case ev.ConnectionOpened(client=found) if found == client:
                return ()
            case ev.ConnectionClosed(client=found) if found == client:
                return (recorded.seq,)
            case _:
                pass
    return ()


def _node_went_silent(log: SequenceOf[Recorded], before: int, lost: NodeId) -> set[Sequence]:
    """What made the node look lost: its suspicion, its closed connections."""
    mine: set[Sequence] = set()
    clients: dict[str, tuple[Sequence, str]] = {}  # slot or agent -> newest report, who if closed
    exited: set[str] = set()
    silent = True
    for recorded in reversed(log[: before - 1]):
        body = recorded.envelope.body if recorded.envelope else None
        match body:
            case ev.AgentStarted(node=node) if node == lost:
                break
            case ev.NodeRecovered(node=node) if node == lost:
                silent = False
            case ev.LeadershipTaken():
                silent = False  # it forgot the suspicions before it
            case ev.NodeSuspected(node=node) if node == lost and silent:
                mine.add(recorded.seq)
            case ev.DeadlinePassed(key=key) if silent and confirms(key, lost):
                mine.add(recorded.seq)
            case ev.WorkerExited(worker=worker, incarnation=life) if node_of(worker) == lost:
                exited.add(f"worker/{worker}/{life}")
            case ev.ConnectionOpened(client=client) | ev.ConnectionClosed(client=client):
                name = process_on(lost, client)
                if name and name not in clients:
                    gone = client if isinstance(body, ev.ConnectionClosed) else ""
                    clients[name] = (recorded.seq, gone)
            case _:
                pass
    return mine | {seq for seq, gone in clients.values() if gone and gone not in exited}


def confirms(key: str, node: NodeId) -> bool:
    """Is it the wait for a second opinion about the node?"""
    return key.startswith((f"confirm:{node}:", f"closed:{node}:"))


def process_on(node: NodeId, client: str) -> str:
    """``agent`` or the worker's name, if the client is a process of ours on the node."""
    kind, _, rest = client.partition("/")
    name = rest.rpartition("/")[0]
    if kind == "agent" and name == node:
        return "agent"
    return name if kind == "worker" and node_of(WorkerId(name)) == node else ""
