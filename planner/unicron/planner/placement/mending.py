"""Groups for devices that were left of broken ones: on the same node, beside what is free there.

Each such device saves taking one anew. They are used before anything else is placed, the nodes with
most of them first, and no task takes those of another while the node has others.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from unicron.planner.placement.floor import Floor, Node
from unicron.planner.placement.job import Job
from unicron.planner.placement.keeping import Group
from unicron.planner.problem import Slot

#: Which job holds a device that is left of a broken group, as its position, and with which rank.
Left: TypeAlias = dict[Slot, tuple[int, int]]
_NOBODY = (-1, -1)


def mend(floor: Floor, jobs: Sequence[Job]) -> None:
    """Form these groups for all jobs, in their order."""
    short = [job for job in jobs if job.task.current is not None and job.missing()]
    left: Left = {
        slot: (job.position, rank)
        for job in short
        for rank, slot in enumerate(job.task.placement)
        if job.may_keep(floor, slot)
    }
    for job in short:
        _mend(floor, job, left)


def _mend(floor: Floor, job: Job, left: Left) -> None:
    own: dict[str, int] = {}
    for slot in job.task.placement:
        mine = left.get(slot, _NOBODY)[0] == job.position
        if mine and slot.device in floor.nodes[slot.node].free:
            own[slot.node] = own.get(slot.node, 0) + 1
    heap = [(-min(count, job.size), name) for name, count in own.items()]
    heapify(heap)
    holes = job.holes()
    while heap and holes:
        _, name = heappop(heap)
        node = floor.nodes[name]
        if len(node.free) < job.size:
            continue
        group = _group(node, job, left)
        replica, stage = holes.pop(_best_hole(job, group, left, holes))
        job.replicas[replica][stage] = group
        floor.take_all(group)
        own[name] -= sum(left.get(slot, _NOBODY)[0] == job.position for slot in group)
        if own[name]:
            heappush(heap, (-min(own[name], job.size), name))


def _group(node: Node, job: Job, left: Left) -> Group:
    """A group on this node; devices that keep their tensor parallel rank stand where it says."""

    def rank(slot: Slot) -> tuple[int, int]:
        holder = left.get(slot, _NOBODY)[0]
        return (0 if holder == job.position else 1 if holder < 0 else 2, slot.device)

    free = [Slot(node=node.name, device=device) for device in node.free]
    chosen = sorted(sorted(free, key=rank)[: job.size], key=lambda slot: slot.device)
    current = job.task.current
    assert current is not None, "only who holds something has something left"
    if current.tp != job.size:
        return tuple(chosen)
    seats: list[Slot | None] = [None] * job.size
    others = []
    for slot in chosen:
        holder, held = left.get(slot, _NOBODY)
        if holder == job.position and seats[held % job.size] is None:
            seats[held % job.size] = slot
        else:
            others.append(slot)
    return tuple(slot if slot is not None else others.pop(0) for slot in seats)


def _best_hole(job: Job, group: Group, left: Left, holes: Sequence[tuple[int, int]]) -> int:
    """Which hole: one of a stage that one of its devices was in, or else the first."""
    old = job.task.current
    assert old is not None
    if old.pp != job.layout.pp:
        return 0
    mine = [left[slot] for slot in group if slot in left]
    stages = {rank // (old.tp * old.dp) for holder, rank in mine if holder == job.position}
    return next((i for i, (_, stage) in enumerate(holes) if stage in stages), 0)
