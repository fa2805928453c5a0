"""When no node has room for a group, though the cluster has: others give way.

`Crowd`: groups of smaller sizes that are kept on one node are let go, which are placed later. The
node is the one where that costs the fewest devices taken anew. `displace`: a group moves to another
node, where it may take another's place, and so on, until one finds room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
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


class Crowd:
    """The smaller groups that stand where a job may go, while it is being placed."""

    def __init__(self, floor: Floor, jobs: Sequence[Job], job: Job) -> None:
        self.floor = floor
        self.job = job
        self.by_node: dict[str, list[_Seat]] = {}
        for seat in _seats(other for other in jobs if other.size < job.size):
            self.by_node.setdefault(seat.group[0].node, []).append(seat)
        self.heap: list[tuple[int, int, str]] = []
        self.chosen: dict[str, list[_Seat]] = {}
        for name in self.by_node:
            if job.may_use(floor.nodes[name]):
                self._consider(name)

    def evict(self) -> bool:
        """Let go of groups on one node, so that one more of the job's size fits there; False if
        that helps nowhere.

        What the job takes meanwhile are multiples of its size, so the costs stay what they are.
        """
        if not self.heap:
            return False
        name = heappop(self.heap)[-1]
        for seat in self.chosen.pop(name):
            self.by_node[name].remove(seat)
            self.floor.give(seat.group)
            seat.job.replicas[seat.replica][seat.stage] = None
        self._consider(name)
        return True

    def _consider(self, name: str) -> None:
        """Work out what one more group on this node would cost."""
        free = len(self.floor.nodes[name].free)
        way = _cheapest(self.by_node[name], self.job.size - free % self.job.size)
        if way is not None:
            cost, largest, self.chosen[name] = way
            heappush(self.heap, (cost, largest, name))


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
        own = seat.job.held(seat.group)
        for total, (cost, largest, chosen) in list(ways.items()):
            reached = min(total + seat.job.size, need)
            way = (cost + own, max(largest, seat.job.size), [*chosen, seat])
            if total < need and (reached not in ways or way[:2] < ways[reached][:2]):
                ways[reached] = way
    return ways.get(need)
