"""When no node has room for a group, though the cluster has: others give way.

`evict`: groups of smaller sizes that are kept on one node are let go, which are placed later. The
node is the one where that costs the fewest devices taken anew. `displace`: a group moves to another
node, where it may take another's place, and so on, until one finds room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from unicron.planner.placement.floor import Floor, Node
from unicron.planner.placement.job import Job
from unicron.planner.placement.keeping import Group
from unicron.planner.problem import Slot

#: How many moves a search for a chain considers before it gives up.
MOVES_MAX = 20_000


class _Seat(NamedTuple):
    """Where a group stands in a job's table."""

    job: Job
    replica: int
    stage: int

    @property
    def group(self) -> Group:
        group = self.job.replicas[self.replica][self.stage]
        assert group is not None
        return group


class _Want(NamedTuple):
    """Room for `size` is wanted on `node`, for `seat` (None: for the job that asked)."""

    node: Node
    size: int
    seat: _Seat | None
    before: _Want | None

    def left_behind(self) -> dict[Node, int]:
        """What will be free on the nodes of the chain up to here, once all in it have moved."""
        rooms = {self.node: 0}
        step = self
        while step.before is not None and step.seat is not None:
            leaving, node = step.seat.job.size, step.before.node
            rooms[node] = len(node.free) + leaving - step.before.size
            step = step.before
        return rooms


def evict(floor: Floor, jobs: Sequence[Job], job: Job) -> bool:
    """Let go of smaller groups on one node, so that one more of the job's size fits there; False
    if that helps nowhere."""
    by_node: dict[str, list[_Seat]] = {}
    for seat in _seats(other for other in jobs if other.size < job.size):
        by_node.setdefault(seat.group[0].node, []).append(seat)
    best: tuple[tuple[int, int, str], list[_Seat]] | None = None
    for name, seats in by_node.items():
        node = floor.nodes[name]
        if not job.may_use(node):
            continue
        chosen = _cheapest(seats, job.size - len(node.free) % job.size)
        if chosen is not None and (best is None or (*chosen[:2], name) < best[0]):
            best = (*chosen[:2], name), chosen[2]
    if best is None:
        return False
    for seat in best[1]:
        floor.give(seat.group)
        seat.job.replicas[seat.replica][seat.stage] = None
    return True


def displace(floor: Floor, jobs: Sequence[Job], job: Job) -> bool:
    """Move groups of other jobs, one in each other's place, so that a group of this job fits
    somewhere; False if no such chain is found."""
    by_node: dict[Node, list[_Seat]] = {}
    for seat in _seats(other for other in jobs if other is not job):
        by_node.setdefault(floor.nodes[seat.group[0].node], []).append(seat)
    nodes = [node for _, node in sorted(floor.nodes.items())]
    queue = deque(_Want(node, job.size, None, None) for node in nodes if job.may_use(node))
    known = {(want.node, want.size) for want in queue}
    moves = 0
    while queue:
        want = queue.popleft()
        behind = want.left_behind()
        for seat in by_node.get(want.node, ()):
            size = seat.job.size
            if len(want.node.free) + size < want.size:
                continue
            for node in nodes:
                if node is want.node or not seat.job.may_use(node):
                    continue
                moves += 1
                if moves > MOVES_MAX:
                    return False
                step = _Want(node, size, seat, want)
                if behind.get(node, len(node.free)) >= size:
                    _carry_out(floor, step)
                    return True
                if node not in behind and (node, size) not in known:
                    known.add((node, size))
                    queue.append(step)
    return False


def _carry_out(floor: Floor, last: _Want) -> None:
    """Move the groups of a chain, all at once: one may go where another one is still."""
    moves = []
    step: _Want | None = last
    while step is not None and step.seat is not None:
        floor.give(step.seat.group)
        moves.append((step.seat, step.node))
        step = step.before
    for seat, node in moves:
        devices = node.free[: seat.job.size]
        floor.take(node, devices)
        group = tuple(Slot(node=node.name, device=device) for device in devices)
        seat.job.replicas[seat.replica][seat.stage] = group


def _seats(jobs: Iterable[Job]) -> Iterator[_Seat]:
    for job in jobs:
        for r, replica in enumerate(job.replicas):
            for stage, group in enumerate(replica):
                if group is not None:
                    yield _Seat(job, r, stage)


def _cheapest(seats: list[_Seat], need: int) -> tuple[int, int, list[_Seat]] | None:
    """Those that make `need` devices free or more, with what that costs; None if all are fewer.

    The cost is the devices in them that their tasks held before and would have to do without; of
    equal costs those of the smaller groups, which find another place more easily. It comes with the
    size of the largest.
    """
    ways: dict[int, tuple[int, int, list[_Seat]]] = {0: (0, 0, [])}
    for seat in sorted(seats, key=lambda seat: (seat.job.size, seat.job.task.task)):
        own = len(set(seat.group).intersection(seat.job.task.placement))
        for total, (cost, largest, chosen) in list(ways.items()):
            reached = min(total + seat.job.size, need)
            way = (cost + own, max(largest, seat.job.size), [*chosen, seat])
            if total < need and (reached not in ways or way[:2] < ways[reached][:2]):
                ways[reached] = way
    return ways.get(need)
