"""What of a state may call for anything to be done, and who stands where, without looking at all.

In a large cluster nearly everything is settled: nodes are well, tasks train as planned. The rules
of decide(), the limits and the checks at rest ask for what is not. A small state is simply gone
through. Of a large one an index is kept from call to call and brought up to date with what is
another object than last time; nobody sees it, so the answers are functions of the state alone.

Settled is, and none of those who ask has anything to do with it:

- a node that is healthy, not sick, and whose agent's connection isn't closed;
- a task that runs unbroken with exactly the members that the plan wants, each on a device that fits
  and that the plan gives to nobody else; or one that has ended;
- a worker that is gone, or one of those members.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.change import changed_keys
from unicron.controlplane.core.connections import closed, closed_with_most
from unicron.controlplane.core.state import ClusterState, IncidentState, NodeState, TaskState
from unicron.controlplane.core.state import WorkerState as Worker
from unicron.controlplane.core.supply import WORKING, fits
from unicron.events import NodeId, TaskId, worker_id

#: States with no more nodes than this, nor workers, are gone through.
SMALL_MAX: Final = 64
_GONE: Final = ("exited", "lost")
_AGE: Final = attrgetter("planned_at", "submitted")

Slot: TypeAlias = tuple[NodeId, int]
N = TypeVar("N", bound=str)


def unsettled_nodes(state: ClusterState) -> Collection[NodeState]:
    """In no particular order. Settled ones of a small state are among them, here and below."""
    if _is_small(state):
        return state.nodes.values()
    with _index(state) as index:
        return [state.nodes[name] for name in index.nodes]


def unsettled_workers(state: ClusterState) -> Collection[Worker]:
    """In no particular order."""
    if _is_small(state):
        return state.workers.values()
    with _index(state) as index:
        return [state.workers[name] for loose in index.loose.values() for name in loose]


def unsettled_tasks(state: ClusterState) -> Collection[TaskState]:
    """In no particular order."""
    if _is_small(state):
        return state.tasks.values()
    with _index(state) as index:
        return [state.tasks[name] for name in index.tasks]


def open_incidents(state: ClusterState) -> list[IncidentState]:
    """Those that aren't resolved, in the order in which they were opened."""
    if _is_small(state):
        found = [i for i in state.incidents.values() if not i.resolved]
    else:
        with _index(state) as index:
            found = [state.incidents[name] for name in index.incidents]
    return sorted(found, key=attrgetter("opened")) if len(found) > 1 else found


def count_present(state: ClusterState) -> int:
    """How many nodes there are that may carry work."""
    if _is_small(state):
        return sum(n.status in WORKING for n in state.nodes.values())
    with _index(state) as index:
        return index.present


def cut_off_agents(state: ClusterState) -> tuple[int, list[NodeState]]:
    """How many nodes may carry work while their agent's connection is closed; and those of them
    of which it isn't noted yet that it closed with most."""
    if _is_small(state):
        found = [n for n in state.nodes.values() if _is_cut_off(state, n)]
        return len(found), [n for n in found if not closed_with_most(state, n)]
    with _index(state) as index:
        return len(index.cut_off), [state.nodes[name] for name in index.alone]


def workers_on(state: ClusterState, node: str) -> list[Worker]:
    """The node's workers whose process exists or may exist, by name."""
    if _is_small(state):
        found = [w for w in state.workers.values() if w.node == node and w.status in tables.ALIVE]
    else:
        with _index(state) as index:
            on_node = [state.workers[name] for name in index.on_node.get(node, ())]
        found = [w for w in on_node if w.status in tables.ALIVE]
    return sorted(found, key=attrgetter("worker")) if len(found) > 1 else found


def workers_of(state: ClusterState, task: str) -> list[Worker]:
    """All workers of the task, gone ones as well, by name."""
    if _is_small(state):
        found = [w for w in state.workers.values() if w.task == task]
    else:
        with _index(state) as index:
            found = [state.workers[name] for name in index.of_task.get(task, ())]
    return sorted(found, key=attrgetter("worker")) if len(found) > 1 else found


def owners_of(state: ClusterState, slots: Iterable[Slot]) -> dict[Slot, TaskId]:
    """To which tasks the plan in force gives these devices (and perhaps others), as far as it does.
    Should two be given one, it is that of the newest plan."""
    if _is_small(state):
        return {
            slot: task.spec.task
            for task in sorted(state.tasks.values(), key=_AGE)
            if task.allocation is not None
            for slot in task.allocation.slots
        }
    with _index(state) as index:
        names = {slot: [*index.claims[slot]] for slot in slots if slot in index.claims}
    return {
        slot: max(found, key=lambda name: _AGE(state.tasks[name])) for slot, found in names.items()
    }


def _is_small(state: ClusterState) -> bool:
    return len(state.nodes) <= SMALL_MAX >= len(state.workers)


# --- The index ------------------------------------------------------------------------------------


class _Index:
    """Of the state that was looked at last. Names are kept in dicts: their values say nothing."""

    def __init__(self) -> None:
        self._seen = ClusterState()
        self.present = 0
        self.cut_off: dict[str, None] = {}  # see cut_off_agents()
        self.alone: dict[str, None] = {}
        self.nodes: dict[str, None] = {}
        self.tasks: dict[str, None] = {}
        self.incidents: dict[str, None] = {}
        self.loose: dict[str, list[str]] = {}  # task -> its workers that aren't settled
        self.on_node: dict[str, dict[str, None]] = {}
        self.of_task: dict[str, dict[str, None]] = {}
        self.claims: dict[Slot, dict[TaskId, None]] = {}
        self._claimants: dict[str, dict[str, int]] = {}  # node -> tasks and how many devices

    def move(self, state: ClusterState) -> None:
        """Make it that of this state."""
        seen, self._seen = self._seen, state
        if state is seen:
            return
        nodes: dict[str, None] = {}
        tasks: dict[str, None] = {}
        for name in changed_keys(seen.tasks, state.tasks):
            tasks[name] = None
            self._claim(TaskId(name), seen.tasks.get(name), state.tasks.get(name), tasks)
        for name in changed_keys(seen.workers, state.workers):
            for worker, there in ((seen.workers.get(name), False), (state.workers.get(name), True)):
                if worker is not None:
                    _mark(self.on_node.setdefault(worker.node, {}), name, there)
                    _mark(self.of_task.setdefault(worker.task, {}), name, there)
                    tasks[worker.task] = None
        for name in changed_keys(seen.nodes, state.nodes):
            nodes[name] = None
            tasks.update(dict.fromkeys(self._claimants.get(name, ())))
            self.present += _is_present(state, name) - _is_present(seen, name)
        for client in changed_keys(seen.connections, state.connections):
            kind, _, rest = client.partition("/")
            if kind == "agent":
                nodes[rest.rpartition("/")[0]] = None
        for name in changed_keys(seen.incidents, state.incidents):
            incident = state.incidents.get(name)
            _mark(self.incidents, name, incident is not None and not incident.resolved)
        for name in nodes:
            node = state.nodes.get(name)
            is_cut_off = node is not None and _is_cut_off(state, node)
            alone = is_cut_off and node is not None and not closed_with_most(state, node)
            _mark(self.cut_off, name, is_cut_off)
            _mark(self.alone, name, alone)
            _mark(self.nodes, name, not _is_well(state, name))
        for name in tasks:
            self._look_at(state, name)

    def _claim(
        self, name: TaskId, old: TaskState | None, new: TaskState | None, tasks: dict[str, None]
    ) -> None:
        """The task's allocation changed; whoever else claims one of its devices is concerned."""
        before, after = _slots(old), _slots(new)
        if before is after:
            return
        for slot in before:
            self._mark_claim(slot, name, claimed=False)
        for slot in after:
            self._mark_claim(slot, name, claimed=True)
        for slot in (*before, *after):
            tasks.update(dict.fromkeys(self.claims.get(slot, ())))

    def _mark_claim(self, slot: Slot, name: TaskId, *, claimed: bool) -> None:
        claims = self.claims.setdefault(slot, {})
        _mark(claims, name, claimed)
        if not claims:
            del self.claims[slot]
        on_node = self._claimants.setdefault(slot[0], {})
        on_node[name] = on_node.get(name, 0) + (1 if claimed else -1)
        if not on_node[name]:
            del on_node[name]

    def _look_at(self, state: ClusterState, name: str) -> None:
        task = state.tasks.get(name)
        ended = task is not None and task.phase in tables.ENDED
        at_ease = task is not None and not ended and self._is_at_ease(state, task)
        _mark(self.tasks, name, task is not None and not ended and not at_ease)
        loose = [
            worker
            for worker in self.of_task.get(name, ())
            if state.workers[worker].status not in _GONE
        ]
        if at_ease and task is not None:
            members = {m.worker for m in task.members}
            loose = [worker for worker in loose if worker not in members]
        if loose:
            self.loose[name] = loose
        else:
            self.loose.pop(name, None)

    def _is_at_ease(self, state: ClusterState, task: TaskState) -> bool:
        """It runs as planned; see above."""
        slots, members = _slots(task), {m.worker for m in task.members}
        if (
            task.phase != "running"
            or not slots
            or task.broken
            or task.finished
            or task.blame
            or task.closes > limits.FAULT_GENERATIONS_MAX
            or len(members) != len(slots)
        ):
            return False
        for node, device in slots:
            name = worker_id(node, device)
            worker = state.workers.get(name)
            if worker is None or worker.task != task.spec.task or worker.status != "member":
                return False
            if name not in members or len(self.claims[node, device]) > 1:
                return False
            if not fits(state, node, device):
                return False
        return True


def _slots(task: TaskState | None) -> tuple[Slot, ...]:
    return task.allocation.slots if task is not None and task.allocation is not None else ()


def _is_present(state: ClusterState, name: str) -> int:
    node = state.nodes.get(name)
    return node is not None and node.status in WORKING


def _is_cut_off(state: ClusterState, node: NodeState) -> bool:
    return node.status in WORKING and closed(state, "agent", node.node, node.incarnation)


def _is_well(state: ClusterState, name: str) -> bool:
    """One that isn't there is well, too."""
    node = state.nodes.get(name)
    return node is None or (
        node.status == "healthy"
        and not node.sick
        and not closed(state, "agent", name, node.incarnation)
    )


def _mark(names: dict[N, None], name: N, is_in: bool) -> None:
    if is_in:
        names[name] = None
    else:
        names.pop(name, None)


#: The index of the state that was looked at last. Whoever uses it takes it out meanwhile, so that
#: another thread begins anew instead of meeting half of a change.
_kept: list[_Index] = []


@contextmanager
def _index(state: ClusterState) -> Iterator[_Index]:
    try:
        index = _kept.pop()
    except IndexError:
        index = _Index()
    index.move(state)
    yield index
    _kept[:] = [index]
