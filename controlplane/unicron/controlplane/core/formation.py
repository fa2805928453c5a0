"""Who stands in the next generation, with what, and on whose store.

Ranks: survivors keep theirs where the size allows, the highest ranks fill the holes, joiners
come last in the order of the allocation. Micro-batches: survivors keep what they have done of
the interrupted iteration, the rest is shared out by the gradient tree's rule.
"""

from dataclasses import dataclass

from unicron.controlplane.core.donors import donors
from unicron.controlplane.core.fold_task import answer_of
from unicron.controlplane.core.leases import leases
from unicron.controlplane.core.state import Answer, ClusterState, TaskState, WorkerState
from unicron.controlplane.core.supply import fitting, slot_workers
from unicron.controlplane.core.unsettled import workers_of
from unicron.events import NodeId, OrderedMember, WorkerId, node_of
from unicron.events.gradient_tree import assign


@dataclass(frozen=True, kw_only=True, slots=True)
class Formation:
    """The part of a TransitionOrdered that has to be thought about."""

    members: tuple[OrderedMember, ...]
    iteration: int
    store_node: NodeId
    reason: str


def seats(ranked: list[tuple[WorkerId, int]]) -> list[WorkerId]:
    """Names by new rank, for survivors with their old ranks: those whose rank still exists keep
    it, the others fill the holes in the order of their old ranks."""
    size = len(ranked)
    placed: dict[int, WorkerId] = {rank: name for name, rank in ranked if rank < size}
    others = [name for name, rank in sorted(ranked, key=lambda r: r[1]) if rank >= size]
    for rank in range(size):
        if rank not in placed:
            placed[rank] = others.pop(0)
    return [placed[rank] for rank in range(size)]


def holders(state: ClusterState, task: TaskState) -> list[tuple[WorkerId, int]]:
    """(worker, rank) of those who stopped, hold training state and are alive. A joiner of a
    planned transition that had its state before the transition broke is one of them, and so is
    who was left out before but still holds an older state."""
    ranks = {m.worker: m.rank for m in task.members} | {m.worker: m.rank for m in task.target}
    taken: set[int] = set()
    found = []
    for worker in workers_of(state, task.spec.task):
        answer = answer_of(task, worker)
        if answer is None or answer.iteration < 0:
            continue
        if worker.status in ("member", "prepared"):
            rank = ranks.get(worker.worker, len(ranks))
            while rank in taken:  # an old and a new rank may coincide
                rank += 1
            taken.add(rank)
            found.append((worker.worker, rank))
    return found


def survivors(state: ClusterState, task: TaskState) -> Formation | None:
    """The next generation out of those who stopped and hold state; None if it can't be formed now.

    If the allocation has lost the newest state, who holds it hands it over: it stays until the
    others have it, and leaves by a planned transition.
    """
    wanted = slot_workers(task)
    ranked = holders(state, task)
    if not ranked or not wanted:
        return None
    staying = [(name, rank) for name, rank in ranked if name in wanted]
    inside = [task.answers[name] for name, _ in staying]
    reach = max((a.iteration + a.reduced for a in inside), default=-1)
    furthest = max(ranked, key=lambda r: _progress(task.answers[r[0]]))
    if task.answers[furthest[0]].iteration <= reach:
        return _go_on(state, task, seats(staying), [])
    room = task.spec.micro_batches - 1
    if staying:
        return _go_on(state, task, seats([*staying[:room], furthest]), [])
    alike = state.workers[furthest[0]].spec_digest
    joiners = [n for n in _warm(state, task) if state.workers[n].spec_digest == alike]
    return _go_on(state, task, [furthest[0]], joiners[:room]) if joiners else None


def _progress(answer: Answer) -> tuple[int, bool, int]:
    return answer.iteration, answer.reduced, len(answer.kept)


def _warm(state: ClusterState, task: TaskState) -> list[WorkerId]:
    """The allocation's workers, if all that can be are prepared; otherwise nobody yet."""
    names = fitting(state, task)
    workers = [state.workers.get(n) for n in names]
    warm = [
        w.worker
        for w in workers
        if w is not None and w.task == task.spec.task and w.status in ("prepared", "member")
    ]
    return warm if len(warm) == len(names) else []


def _of_one_software(state: ClusterState, names: list[WorkerId]) -> list[WorkerId]:
    """Whoever computes with other bits can't take part: the largest group stays, of two as large
    the one with the lowest name. The others are refused once these hold the training state."""
    groups: dict[str, list[WorkerId]] = {}
    for name in names:
        groups.setdefault(state.workers[name].spec_digest, []).append(name)
    return min(groups.values(), key=lambda group: (-len(group), min(group)), default=[])


def _go_on(
    state: ClusterState, task: TaskState, order: list[WorkerId], joiners: list[WorkerId]
) -> Formation:
    """`order`: who holds state, by rank; `joiners` follow and get theirs from them.

    If anyone has stepped (stands one iteration ahead), everybody had voted, so all step forward;
    if all who have come furthest hold the reduced gradient, they step forward; otherwise it is
    reduced again from the micro-batches that were kept (design §8).
    """
    answers = {name: task.answers[name] for name in order}
    newest = max(a.iteration for a in answers.values())
    furthest = {name: a for name, a in answers.items() if a.iteration == newest}
    if all(a.reduced for a in furthest.values()):
        goal, stepping = newest + 1, set(furthest)
    else:
        goal = newest
        stepping = {n for n, a in answers.items() if a.iteration == newest - 1 and a.reduced}
    kept = _kept(task.spec.micro_batches, order, answers, goal)
    standing = [name in kept or name in stepping for name in order] + [False] * len(joiners)
    people = [*order, *joiners]
    given = donors(state, [state.workers[name] for name in people], standing)
    shares = assign(
        task.spec.micro_batches,
        len(people),
        {rank: kept[name] for rank, name in enumerate(order) if name in kept},
    )
    members = tuple(
        OrderedMember(
            worker=name,
            incarnation=state.workers[name].incarnation,
            node=state.workers[name].node,
            rank=rank,
            keeps=kept.get(name, ()),
            owes=tuple(m for m in shares[rank] if m not in kept.get(name, ())),
            step_forward=name in stepping,
            state_from=given[rank],
        )
        for rank, name in enumerate(people)
    )
    lost = len(task.members) - len(order)
    gone = f"{lost} of {len(task.members)} members gone, " if lost > 0 else ""
    come = f", {len(joiners)} join" if joiners else ""
    return Formation(
        members=members,
        iteration=goal,
        store_node=_store(state, members, task.generation),
        reason=f"{gone}{len(order)} go on{come}",
    )


def _kept(
    micro_batches: int, order: list[WorkerId], answers: dict[WorkerId, Answer], goal: int
) -> dict[WorkerId, tuple[int, ...]]:
    """Who stands at the goal keeps what it has done of it. No two members can have done the same;
    should one say so all the same, it is left out here and starts clean, from a donor's state."""
    seen: set[int] = set()
    kept: dict[WorkerId, tuple[int, ...]] = {}
    for name in order:
        mine = tuple(sorted(answers[name].kept))
        if answers[name].iteration != goal:
            continue
        fresh = len({*mine}) == len(mine) and all(0 <= m < micro_batches for m in mine)
        if fresh and not seen & {*mine}:
            kept[name] = mine
            seen |= {*mine}
    if not kept and goal in {a.iteration for a in answers.values()}:
        first = next(name for name in order if answers[name].iteration == goal)
        kept[first] = ()
    return kept


def planned(state: ClusterState, task: TaskState) -> Formation | None:
    """The generation that the allocation asks for, once every joiner is warm; None if the
    running one is already what is wanted, or joiners are still warming up.

    A joiner whose device another task hasn't left yet is not waited for, nor is any while another
    task waits for who leaves. If nobody stays, rank 0 does until the joiners have the state.
    """
    members = {m.worker: m.rank for m in task.members}
    wanted = slot_workers(task)
    if members.keys() == {*wanted}:
        return None  # almost always
    software = {state.workers[name].spec_digest for name in members}
    joiners: list[WorkerState] = []
    waits = False
    for name in fitting(state, task):
        worker = state.workers.get(name)
        if name in members:
            continue
        if worker is None or worker.status in ("exited", "lost"):
            waits = True
        elif worker.task == task.spec.task:
            waits |= worker.status in ("ordered", "started")
            fits_in = worker.status == "prepared" and worker.spec_digest in software
            joiners += [worker] if fits_in else []
    if waits and not any(lease.holder.worker in members for lease in leases(state)):
        return None
    staying = [(name, rank) for name, rank in members.items() if name in wanted]
    if not staying and joiners:
        staying = [(name, rank) for name, rank in members.items() if rank == 0]
        joiners = joiners[: task.spec.micro_batches - 1]
    leaving = len(members) - len(staying)
    if not staying or (not joiners and not leaving):
        return None
    known = [state.workers[name] for name in seats(staying)]
    standing = [True] * len(known) + [False] * len(joiners)
    given = donors(state, [*known, *joiners], standing)
    people = tuple(
        _plain(worker, rank, given[rank]) for rank, worker in enumerate([*known, *joiners])
    )
    return Formation(
        members=people,
        iteration=-1,
        store_node=_store(state, people, task.generation),
        reason=f"{len(joiners)} join, {leaving} leave",
    )


def first(state: ClusterState, task: TaskState) -> Formation | None:
    """All workers of the allocation that run the same software, from the initial state; None until
    all are warm."""
    ready = [state.workers[name] for name in _of_one_software(state, _warm(state, task))]
    if not ready:
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
    again = (
        "starts again from the initial state: no member is left" if task.generation else "starts"
    )
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


def _store(state: ClusterState, members: tuple[OrderedMember, ...], generation: int) -> NodeId:
    """A member's node whose agent hosts the store; another one each time, so that a store that
    doesn't work can't break two generations in a row."""
    nodes = sorted({node_of(m.worker) for m in members if m.state_from in (None, -1)})
    usable_nodes = [n for n in nodes if state.nodes[n].status == "healthy"] or nodes
    return usable_nodes[generation % len(usable_nodes)]
