"""Who stands in the next generation, with what, and on whose store.

Ranks: survivors keep theirs where the size allows, the highest ranks fill the holes, joiners
come last in the order of the allocation. Micro-batches: survivors keep what they have done of
the interrupted iteration, the rest is shared out by the gradient tree's rule.
"""

from dataclasses import dataclass

from unicron.controlplane.core.rules_worker import slot_workers, usable
from unicron.controlplane.core.state import Answer, ClusterState, TaskState, WorkerState
from unicron.events import NodeId, OrderedMember, node_of
from unicron.events.gradient_tree import assign


@dataclass(frozen=True, kw_only=True, slots=True)
class Formation:
    """The part of a TransitionOrdered that has to be thought about."""

    members: tuple[OrderedMember, ...]
    iteration: int
    store_node: NodeId
    reason: str


def seats(ranked: list[tuple[str, int]]) -> list[str]:
    """Names by new rank, for survivors with their old ranks: those whose rank still exists keep
    it, the others fill the holes in the order of their old ranks."""
    size = len(ranked)
    placed: dict[int, str] = {rank: name for name, rank in ranked if rank < size}
    others = [name for name, rank in sorted(ranked, key=lambda r: r[1]) if rank >= size]
    for rank in range(size):
        if rank not in placed:
            placed[rank] = others.pop(0)
    return [placed[rank] for rank in range(size)]


def _holders(state: ClusterState, task: TaskState) -> list[tuple[str, int]]:
    """(worker, rank) of those who stopped, hold training state and may go on. A joiner of a
    planned transition that had its state before the transition broke is one of them."""
    ranks = {m.worker: (m.incarnation, m.rank) for m in task.members}
    ranks |= {m.worker: (m.incarnation, m.rank) for m in task.target}
    wanted = set(slot_workers(task))
    taken: set[int] = set()
    holders = []
    for name, (incarnation, rank) in sorted(ranks.items()):
        worker = state.workers.get(name)
        answer = task.answers.get(name)
        if worker is None or worker.incarnation != incarnation or name not in wanted:
            continue
        if worker.status in ("member", "prepared") and answer and answer.iteration >= 0:
            while rank in taken:  # an old and a new rank may coincide
                rank += 1
            taken.add(rank)
            holders.append((name, rank))
    return holders


def survivors(state: ClusterState, task: TaskState) -> Formation | None:
    """The next generation out of those who stopped and hold state; None if nobody does.

    If anyone has stepped (stands one iteration ahead), everybody had voted, so all step forward;
    if all hold the reduced gradient, all step forward; otherwise it is reduced again from the
    micro-batches that were kept (design §8).
    """
    holders = _holders(state, task)
    if not holders:
        return None
    order = seats(holders)
    answers = {name: task.answers[name] for name in order}
    newest = max(a.iteration for a in answers.values())
    together = all(a.iteration == newest for a in answers.values())
    if together and all(a.reduced for a in answers.values()):
        goal, stepping = newest + 1, frozenset(order)
    else:
        goal = newest
        behind = {n for n, a in answers.items() if a.iteration == newest - 1 and a.reduced}
        stepping = frozenset(behind)
    donor = _donor(order, answers, goal, stepping)
    kept = {
        rank: answers[name].kept
        for rank, name in enumerate(order)
        if answers[name].iteration == goal
    }
    shares = assign(task.spec.micro_batches, len(order), kept)
    members = tuple(
        _survivor(state, name, rank, answers[name], goal, stepping, donor, shares[rank])
        for rank, name in enumerate(order)
    )
    lost = len(task.members) - len(order)
    gone = f"{lost} of {len(task.members)} members gone, " if lost > 0 else ""
    return Formation(
        members=members,
        iteration=goal,
        store_node=_store(state, members, task.generation),
        reason=f"{gone}{len(order)} go on",
    )


def _donor(
    order: list[str], answers: dict[str, Answer], goal: int, stepping: frozenset[str]
) -> int:
    """Rank of the first member that will stand at `goal` by itself."""
    for rank, name in enumerate(order):
        if answers[name].iteration == goal or name in stepping:
            return rank
    raise AssertionError("the newest member stands at the goal")


def _survivor(
    state: ClusterState,
    name: str,
    rank: int,
    answer: Answer,
    goal: int,
    stepping: frozenset[str],
    donor: int,
    share: tuple[int, ...],
) -> OrderedMember:
    worker = state.workers[name]
    keeps = answer.kept if answer.iteration == goal else ()
    lagging = answer.iteration != goal and name not in stepping
    return OrderedMember(
        worker=worker.worker,
        incarnation=worker.incarnation,
        node=worker.node,
        rank=rank,
        keeps=tuple(sorted(keeps)),
        owes=tuple(m for m in share if m not in keeps),
        step_forward=name in stepping,
        state_from=donor if lagging else None,
    )


def planned(state: ClusterState, task: TaskState) -> Formation | None:
    """The generation that the allocation asks for, once every joiner is warm; None if the
    running one is already what is wanted, or joiners are still warming up."""
    members = {m.worker: m.rank for m in task.members}
    wanted = slot_workers(task)
    joiners = []
    for name in wanted:
        worker = state.workers.get(name)
        if name in members or not usable(state, name.rpartition("/")[0]):
            continue
        if worker is None or worker.status in ("ordered", "started", "exited", "lost"):
            return None
        if worker.status == "prepared" and worker.task == task.spec.task:
            joiners.append(worker)
    staying = [(name, rank) for name, rank in members.items() if name in wanted]
    leaving = len(members) - len(staying)
    if not staying or (not joiners and not leaving):
        return None
    order = seats(staying)
    known = [state.workers[name] for name in order]
    people = tuple(
        _plain(worker, rank, 0 if rank >= len(known) else None)
        for rank, worker in enumerate([*known, *joiners])
    )
    return Formation(
        members=people,
        iteration=-1,
        store_node=_store(state, people, task.generation),
        reason=f"{len(joiners)} join, {leaving} leave",
    )


def first(state: ClusterState, task: TaskState) -> Formation | None:
    """All workers of the allocation, from the initial state; None until all are warm."""
    wanted = [n for n in slot_workers(task) if usable(state, n.rpartition("/")[0])]
    workers = [state.workers.get(name) for name in wanted]
    ready = [w for w in workers if w is not None and w.status in ("prepared", "member")]
    if not wanted or len(ready) != len(wanted):
        return None
    shares = assign(task.spec.micro_batches, len(ready))
    members = tuple(
        OrderedMember(
            worker=worker.worker,
            incarnation=worker.incarnation,
            node=worker.node,
            rank=rank,
            keeps=(),
            owes=shares[rank],
            state_from=-1,
        )
        for rank, worker in enumerate(ready)
    )
    again = "starts again from the initial state: no member is left" if task.generation else "starts"
    return Formation(
        members=members,
        iteration=0,
        store_node=_store(state, members, task.generation),
        reason=f"{task.spec.task} {again}",
    )


def _plain(worker: WorkerState, rank: int, donor: int | None) -> OrderedMember:
    return OrderedMember(
        worker=worker.worker,
        incarnation=worker.incarnation,
        node=worker.node,
        rank=rank,
        keeps=(),
        owes=(),
        state_from=donor,
    )


def _store(
    state: ClusterState, members: tuple[OrderedMember, ...], generation: int
) -> NodeId:
    """A member's node whose agent hosts the store; another one each time, so that a store that
    doesn't work can't break two generations in a row."""
    nodes = sorted({node_of(m.worker) for m in members if m.state_from in (None, -1)})
    usable_nodes = [n for n in nodes if state.nodes[n].status == "healthy"] or nodes
    return usable_nodes[generation % len(usable_nodes)]
