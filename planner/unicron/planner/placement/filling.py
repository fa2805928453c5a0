"""Where the groups go that a task doesn't hold yet.

They are taken in the order of its replicas, and of the stages in each, so that what stands side by
side in a pipeline is placed side by side. First a rack is chosen, then nodes in it:

1. One where no stage would have more than half of its replicas, so that the loss of any one rack,
   and of any one node, leaves a copy of everything. Where that can't be had, the others do.
2. Of devices of a kind that the task has already, if the kind is left open.
3. With room for all that the replica still lacks.
4. Near: where the replica has groups already, else where the task has some; the same rack before
   the same segment.
5. The one with the least room that takes all that is left to place there, or else the one with the
   most: so tasks fill up what others left, and free devices stay together in whole nodes.
6. The lowest name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice

from unicron.planner.placement.floor import Floor, Node, Rack, Shelf
from unicron.planner.placement.job import Job
from unicron.planner.problem import Slot


class Filling:
    """One task's replicas being completed, one run of groups in one rack after the other."""

    def __init__(self, floor: Floor, job: Job, own_kinds: frozenset[str]) -> None:
        """`own_kinds`: kinds of devices that the task has already."""
        self.floor = floor
        self.replicas = job.replicas
        self.kind = job.kind
        self.own_kinds = own_kinds
        self.holes = job.holes()
        self.stages = job.layout.pp
        self.half = (job.layout.dp + 1) // 2
        self.at = 0
        # How many groups of each stage stand in each rack and on each node.
        self.standing: defaultdict[Hashable, Counter[int]] = defaultdict(Counter)
        self.segments: set[str] = set()
        self.racks: set[Rack] = set()
        self.open: dict[Rack, None] = {}  # those of the racks that had room when last seen
        for replica in job.replicas:
            for stage, group in enumerate(replica):
                if group is not None:
                    self._stands(floor.nodes[group[0].node], stage)

    @property
    def left(self) -> int:
        """How many groups are still to be placed."""
        return len(self.holes) - self.at

    def place_some(self, limits: dict[str, int] | None) -> bool:
        """Place the next run of groups; False if there is no room for any.

        `limits`: how many more groups devices of each kind may take, if that is bounded.
        """
        shelf = self._shelf(limits)
        if shelf is None:
            return False
        quota = min(shelf.room, self.left)
        if limits is not None:
            quota = min(quota, limits[shelf.kind])
        quota = self._whole(self._allowed(shelf.rack, quota) or quota)
        rooms: dict[int, list[Node]] = {}
        known = []
        for node in reversed(shelf.nodes):
            room = len(node.free) // self.floor.size
            if room and node in self.standing:
                known.append(node)
            elif room:
                rooms.setdefault(room, []).append(node)
        end = self.at + quota
        while self.at < end:
            self._fill(self._node(known, rooms, end - self.at), end - self.at)
        return True

    def look_again(self) -> None:
        """Others have made room since."""
        self.open = dict.fromkeys(sorted(self.racks))

    def _stands(self, node: Node, stage: int) -> None:
        self.standing[node][stage] += 1
        self.standing[node.shelf.rack][stage] += 1
        if node.shelf.rack not in self.racks:
            self.racks.add(node.shelf.rack)
            self.open[node.shelf.rack] = None
            if node.shelf.segment:
                self.segments.add(node.shelf.segment)

    def _lacking(self) -> int:
        """How many groups the replica that is being completed lacks."""
        number = self.holes[self.at][0]
        end = self.at
        while end < len(self.holes) and self.holes[end][0] == number:
            end += 1
        return end - self.at

    def _whole(self, count: int) -> int:
        """So many groups or fewer, to end with a replica, if one can be completed."""
        end = self.at + count
        if end == len(self.holes):
            return count
        number = self.holes[end][0]
        while end > self.at and self.holes[end - 1][0] == number:
            end -= 1
        return end - self.at or count

    def _allowed(self, place: Hashable, limit: int) -> int:
        """How many of the next groups, `limit` at most, may stand there without a stage having
        more than half of its replicas in one place."""
        standing = self.standing.get(place, Counter())
        if self.stages == 1:
            return max(0, min(limit, self.left, self.half - standing[0]))
        seen: Counter[int] = Counter()
        for count, (_, stage) in enumerate(self.holes[self.at : self.at + limit]):
            seen[stage] += 1
            if standing[stage] + seen[stage] > self.half:
                return count
        return min(limit, self.left)

    def _shelf(self, limits: dict[str, int] | None) -> Shelf | None:
        """The best rack for the next groups; None if there is room in none."""
        floor, lacking = self.floor, self._lacking()
        fresh = self._allowed(None, floor.most(self.kind))
        here = [floor.nodes[g[0].node].shelf for g in self.replicas[self.holes[self.at][0]] if g]
        racks = {shelf.rack for shelf in here} or self.racks
        segments = {shelf.segment for shelf in here if shelf.segment} or self.segments

        def rank(shelf: Shelf) -> tuple[bool, bool, bool, int, bool, int, int]:
            room = shelf.room if limits is None else min(shelf.room, limits[shelf.kind])
            allowed = min(room, fresh)
            if shelf.rack in self.racks:
                allowed = self._allowed(shelf.rack, room)
            return (
                not allowed,
                bool(self.own_kinds) and shelf.kind not in self.own_kinds,
                (allowed or room) < lacking,
                0 if shelf.rack in racks or not racks else 1 if shelf.segment in segments else 2,
                shelf.room < fresh,
                shelf.room if shelf.room >= fresh else -shelf.room,
                shelf.order,
            )

        found = [*self._own_shelves(), *self._new_shelves(fresh, segments)]
        if limits is not None:
            found = [shelf for shelf in found if limits[shelf.kind] > 0]
        return min(found, key=rank, default=None)

    def _own_shelves(self) -> Iterator[Shelf]:
        """Those with room in racks where the task has something."""
        for rack in list(self.open):
            row = [shelf for shelf in self.floor.racks[rack] if shelf.room]
            if not row:
                del self.open[rack]
            for shelf in row:
                if not self.kind or shelf.kind == self.kind:
                    yield shelf

    def _new_shelves(self, most: int, segments: Iterable[str]) -> Iterator[Shelf]:
        """The best of these segments, and of all, in racks where the task has nothing yet, if
        `most` groups are wanted at once; of each kind."""
        for row in self.floor.alike(self.kind, ("", *segments)):
            rooms = sorted(row, key=lambda room: (room < most, room if room >= most else -room))
            new = (
                shelf
                for room in rooms
                for i in row[room]
                if (shelf := self.floor.shelves[i]).rack not in self.racks
            )
            yield from islice(new, 1)

    def _node(self, known: list[Node], rooms: dict[int, list[Node]], quota: int) -> Node:
        """The best node of a rack that has room: one of those that the task stands on, or a new
        one, which are given by their room."""
        size, lacking = self.floor.size, min(self._lacking(), quota)
        here = {group[0].node for group in self.replicas[self.holes[self.at][0]] if group}

        def rank(node: Node) -> tuple[bool, bool, bool, str]:
            allowed = self._allowed(node, len(node.free) // size)
            return (not allowed, allowed < lacking, node.name not in here, node.name)

        best = min((n for n in known if len(n.free) >= size), key=rank, default=None)
        if best is not None and rank(best)[:2] == (False, False):
            return best
        if rooms:
            most = self._allowed(None, quota)
            enough = [room for room in rooms if room >= most]
            room = min(enough) if enough else max(rooms)
            if best is None or rank(best)[0] or room >= lacking:
                node = rooms[room].pop()
                if not rooms[room]:
                    del rooms[room]
                known.append(node)
                return node
        assert best is not None, "a rack's room is the sum of its nodes' room"
        return best

    def _fill(self, node: Node, quota: int) -> None:
        """Put groups on a node: as many as fit, but parts of a replica only if it must be."""
        size = self.floor.size
        room = min(quota, len(node.free) // size)
        count = self._whole(self._allowed(node, room) or room)
        devices = node.free[: count * size]
        self.floor.take(node, devices)
        for i in range(count):
            replica, stage = self.holes[self.at + i]
            part = devices[i * size : (i + 1) * size]
            self.replicas[replica][stage] = tuple(Slot(node=node.name, device=d) for d in part)
            self._stands(node, stage)
        self.at += count
