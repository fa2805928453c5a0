"""What had broken a generation by the time it was closed. The close itself names the first report
only, and that is often a survivor's, which says no more than that something failed somewhere."""

from unicron import events as ev
from unicron.events import NodeId, Sequence, TaskId, WorkerId, node_of


class Breaks:
    """Goes through a log entry by entry, without those that changed nothing."""

    def __init__(self) -> None:
        self._ordered: dict[TaskId, Sequence] = {}
        self._members: dict[TaskId, dict[WorkerId, int]] = {}
        self._told: dict[TaskId, list[tuple[Sequence, bool]]] = {}
        self._closed: dict[str, Sequence] = {}

    def note(self, seq: Sequence, body: ev.AnyEvent) -> None:
        """The next entry."""
        match body:
            case ev.TransitionOrdered(task=task):
                self._ordered[task] = seq
                self._members[task] = {m.worker: m.incarnation for m in body.members}
                self._told[task] = []
            case ev.PeerErrorReported(task=task) | ev.TaskStalled(task=task, behind=()):
                self._told.setdefault(task, []).append((seq, True))
            case ev.ExceptionReported(task=task) | ev.TaskStalled(task=task):
                self._told.setdefault(task, []).append((seq, False))
            case ev.WorkerExited(ordered=False) | ev.NodeLost():
                for task in self._hit(body):
                    self._told[task].append((seq, False))
            case ev.ConnectionClosed(client=client):
                self._closed[client] = seq
            case ev.ConnectionOpened(client=client):
                self._closed.pop(client, None)
            case _:
                pass

    def of(self, task: TaskId) -> tuple[Sequence, ...]:
        """What broke the task's newest generation so far; where nobody has said what failed, with
        connections of its members and their agents that closed and stayed so."""
        told = self._told.get(task, [])
        found = [seq for seq, _ in told]
        if told and all(symptom for _, symptom in told):
            since = self._ordered.get(task, Sequence(0))
            found += [seq for client, seq in self._closed.items() if self._is_of(task, client)
                      and seq > since]  # fmt: skip
        return tuple(found)

    def _hit(self, body: ev.WorkerExited | ev.NodeLost) -> list[TaskId]:
        """Tasks of which a member has gone."""
        if isinstance(body, ev.NodeLost):
            return [t for t, ms in self._members.items() if body.node in map(node_of, ms)]
        life = (body.worker, body.incarnation)
        return [task for task, members in self._members.items() if life in members.items()]

    def _is_of(self, task: TaskId, client: str) -> bool:
        kind, _, rest = client.partition("/")
        name, _, life = rest.rpartition("/")
        members = self._members.get(task, {})
        if kind == "agent":
            return NodeId(name) in map(node_of, members)
        return kind == "worker" and str(members.get(WorkerId(name))) == life
