"""One pass over a log: everything that views are made from, by sequence.

Whole states are kept for few sequences only: one of a large cluster is large.
"""

from bisect import bisect_left
from collections.abc import Iterable

from unicron import events as ev
from unicron.controlplane.core import tables
from unicron.controlplane.core.connections import client_name, closed, is_open
from unicron.controlplane.core.state import ClusterState, IncidentState, TaskState, WorkerState
from unicron.controlplane.replay.folding import Folding
from unicron.controlplane.replay.links import Linker
from unicron.controlplane.replay.phrases import names
from unicron.controlplane.replay.story import Leader
from unicron.controlplane.replay.throughput import ThroughputBook
from unicron.controlplane.replay.trades import TradeBook
from unicron.controlplane.replay.units import duration
from unicron.events import Envelope, NodeId, Recorded, Sequence

#: So many of the newest states are kept for a plan that was computed on one of them.
_RECENT = 256
_MS = 1_000_000


class Reading:
    """A log that is being read, one entry after the other. `state` is the one after the last.

    `links`: for each entry, what led to it. `tasks`: of each task its states, each with the
    sequence that made it. `stores`: (task, generation) -> the node whose store it was formed on.
    `notes`: what an entry does not say itself, but the state it came into does. `named`: decisions
    by the incident they name.
    """

    def __init__(self, log: Iterable[Recorded] = ()) -> None:
        """Raises as add() does."""
        self.log: list[Recorded] = []
        self.links: list[tuple[Sequence, ...]] = []
        self.throughput = ThroughputBook(self.log)
        self.trades = TradeBook()
        self.tasks: dict[str, list[tuple[Sequence, TaskState]]] = {}
        self.stores: dict[tuple[str, int], NodeId] = {}
        self.notes: dict[Sequence, str] = {}
        self.leaders: list[Leader] = []
        self.named: dict[str, list[Recorded]] = {}
        self.void: set[Sequence] = set()
        self.twice: set[Sequence] = set()
        self._folding = Folding()
        self._linker = Linker(self.log)
        self._closed: dict[str, int] = {}
        self._recent: dict[int, ClusterState] = {}
        self._kept: dict[int, ClusterState] = {}
        for recorded in log:
            self.add(recorded)

    def add(self, recorded: Recorded) -> None:
        """The next entry.

        Raises:
            LogBroken: it isn't the next one.
            ReplayDivergence: the fold can't take it.
        """
        before = self.state
        after = self._folding.step(recorded)
        self.log.append(recorded)
        if after.void > before.void:
            self.void.add(recorded.seq)
        if after.duplicates > before.duplicates:
            self.twice.add(recorded.seq)
        self.links.append(self._linker.link(recorded, void=recorded.seq in self.void))
        self._see(before, after, recorded)

    @property
    def state(self) -> ClusterState:
        """After the last entry."""
        return self._folding.state

    @property
    def chain(self) -> bytes:
        """After the last entry."""
        return self._folding.chain

    @property
    def incidents(self) -> list[IncidentState]:
        """All incidents, oldest first."""
        return sorted(self.state.incidents.values(), key=lambda i: (i.opened, i.incident))

    @property
    def end_ns(self) -> int:
        """When the last entry was stored; 0 for an empty log."""
        return self.log[-1].at_ns if self.log else 0

    def body(self, seq: int) -> ev.AnyEvent | None:
        """What the entry says, None if it can't be read."""
        envelope = self.log[seq - 1].envelope
        return envelope.body if envelope is not None else None

    def computed_on(self, seq: int) -> ClusterState | None:
        """The state after `seq`, if a plan was computed on it."""
        return self._kept.get(seq)

    def task_before(self, task: str, seq: int) -> tuple[Sequence, TaskState] | None:
        """The newest state of the task from an entry before `seq`, with that entry."""
        entries = self.tasks.get(task, [])
        index = bisect_left(entries, seq, key=lambda entry: entry[0])
        return entries[index - 1] if index else None

    # --- What is noted of an entry ----------------------------------------------------------------

    def _see(self, before: ClusterState, after: ClusterState, recorded: Recorded) -> None:
        self._keep(after, recorded)
        if after.tasks is not before.tasks:
            for name, task in after.tasks.items():
                if before.tasks.get(name) is not task:
                    self.tasks.setdefault(name, []).append((recorded.seq, task))
        if recorded.envelope is not None:
            self._note(before, recorded, recorded.envelope)
        self.throughput.see(before, after, recorded)
        self.trades.see(before, after, recorded)

    def _note(self, before: ClusterState, recorded: Recorded, envelope: Envelope) -> None:
        if envelope.incident is not None:
            self.named.setdefault(envelope.incident, []).append(recorded)
        match envelope.body:
            case ev.LeadershipTaken() as body:
                self.leaders.append(_leader(recorded.seq, body))
            case ev.TransitionOrdered() as body:
                self._note_store(before, body)
            case ev.AgentStarted(node=node):
                self._note_start(before, recorded, node)
            case ev.NodeLost(node=node):
                self._note_loss(before, recorded.seq, node)
            case ev.ConnectionClosed(client=client):
                self._closed[client] = recorded.at_ns
            case ev.ConnectionOpened(client=client):
                self._closed.pop(client, None)
            case _:
                pass

    def _keep(self, after: ClusterState, recorded: Recorded) -> None:
        """Of the states that plans are computed on."""
        self._recent[recorded.seq] = after
        self._recent.pop(recorded.seq - _RECENT, None)
        match self.body(recorded.seq):
            case ev.PlanRequested():
                self._kept[recorded.seq] = after
            case ev.PlanDecided(computed_at=seq) if seq in self._recent:
                self._kept[seq] = self._recent[seq]
            case _:
                pass

    def _note_store(self, state: ClusterState, body: ev.TransitionOrdered) -> None:
        for node in state.nodes.values():
            if (node.address, node.store_port) == (body.store_address, body.store_port):
                self.stores[body.task, body.generation] = node.node

    def _note_loss(self, state: ClusterState, seq: Sequence, node: NodeId) -> None:
        """Its workers were still connected: its agent alone has died, or it was cut off."""
        alive = [
            w for w in _alive(state, node) if is_open(state, "worker", w.worker, w.incarnation)
        ]
        if not alive:
            return
        old = state.nodes.get(node)
        workers = names(tuple(w.worker for w in alive))
        are = "was" if len(alive) == 1 else "were"
        text = f"{workers} {are} still connected to the log"
        if old is not None and closed(state, "agent", node, old.incarnation):
            self.throughput.trained_on.add(seq)
            text += ": its agent alone had died"
        self.notes[seq] = text

    def _note_start(self, state: ClusterState, recorded: Recorded, node: NodeId) -> None:
        """When its agent and its workers were gone for the log: workers live on without their
        agent, until the next one ends them."""
        old, alive = state.nodes.get(node), _alive(state, node)
        agent = client_name("agent", node, old.incarnation) if old is not None else ""
        if not alive or agent not in self._closed:
            return
        clients = [client_name("worker", w.worker, w.incarnation) for w in alive]
        last = max(self._closed.get(client, recorded.at_ns) for client in clients)
        gone = duration((recorded.at_ns - self._closed[agent]) // _MS)
        until = duration((recorded.at_ns - last) // _MS)
        workers = names(tuple(w.worker for w in alive))
        self.notes[recorded.seq] = (
            f"its connection had been closed for {gone}, those of {workers} for {until}"
        )


def _alive(state: ClusterState, node: NodeId) -> list[WorkerState]:
    found = [w for w in state.workers.values() if w.node == node and w.status in tables.ALIVE]
    return sorted(found, key=lambda w: w.worker)


def _leader(seq: Sequence, body: ev.LeadershipTaken) -> Leader:
    return Leader(
        term=seq,
        instance=body.instance,
        version=body.version,
        logic_version=body.logic_version,
        fold_version=body.fold_version,
    )
