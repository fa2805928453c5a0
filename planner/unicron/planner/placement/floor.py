"""What is free where, and quickly: nodes by rack, racks by how many groups they have room for.

A *shelf* is the nodes of one rack that are of one kind. A node whose rack isn't known is a rack of
its own. Racks that are alike are found together (`alike`), so that choosing one doesn't take the
longer the more racks there are. Only nodes with something free are here at all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from unicron.planner.problem import NodeSupply, Slot

#: (rack, ""), or ("", node) for a node whose rack isn't known.
Rack: TypeAlias = tuple[str, str]


class Shelf:
    """The nodes of one rack and kind; `room` is how many groups of the floor's size fit."""

    __slots__ = ("kind", "nodes", "order", "rack", "room", "segment")

    def __init__(self, rack: Rack, kind: str, segment: str) -> None:
        self.rack = rack
        self.kind = kind
        self.segment = segment
        self.nodes: list[Node] = []
        self.room = 0
        self.order = 0


class Node:
    """One node: its devices that nobody has yet, ascending; `size`: of how many healthy ones."""

    __slots__ = ("free", "name", "shelf", "size")

    def __init__(self, name: str, free: list[int], size: int, shelf: Shelf) -> None:
        self.name = name
        self.free = free
        self.size = size
        self.shelf = shelf


class Floor:
    """Who may still take what. `sizes`: the group sizes in use, each divides the next.

    `size` is the one that is being placed; `room` counts in groups of it. `totals[kind][size]`:
    devices of that kind that groups of that size can use. `racks`: the shelves of each.
    """

    def __init__(
        self,
        nodes: Iterable[NodeSupply],
        used: Mapping[str, list[int]],
        sizes: Sequence[int],
    ) -> None:
        self.sizes = tuple(sizes)
        self.size = max(sizes, default=1)
        self.nodes: dict[str, Node] = {}
        self.totals: dict[str, dict[int, int]] = {}
        self._classes: dict[tuple[str, str], dict[int, list[int]]] = {}
        self._hidden: dict[Node, list[int]] = {}
        shelves: dict[tuple[Rack, str], Shelf] = {}
        for supply in nodes:
            taken = used.get(supply.node, ())
            if supply.draining or len(taken) == len(supply.devices):
                continue
            rack = (supply.rack, "" if supply.rack else supply.node)
            shelf = shelves.get((rack, supply.kind))
            if shelf is None:
                shelf = shelves[rack, supply.kind] = Shelf(rack, supply.kind, supply.segment)
            free = sorted(set(supply.devices).difference(taken))
            node = Node(supply.node, free, len(supply.devices), shelf)
            shelf.nodes.append(node)
            self.nodes[supply.node] = node
            totals = self.totals.setdefault(supply.kind, dict.fromkeys(self.sizes, 0))
            for size in self.sizes:
                totals[size] += len(free) // size * size
        self.shelves = [shelves[key] for key in sorted(shelves)]
        self.racks: dict[Rack, list[Shelf]] = {}
        for order, shelf in enumerate(self.shelves):
            shelf.order = order
            shelf.nodes.sort(key=lambda node: node.name)
            self.racks.setdefault(shelf.rack, []).append(shelf)
        self.set_size(self.size)

    def set_size(self, size: int) -> None:
        """From now on groups of this size are placed."""
        self.size = size
        self._classes = {}
        for shelf in self.shelves:
            shelf.room = sum([len(node.free) // size for node in shelf.nodes])
            if shelf.room:
                for row in self._rows(shelf):
                    row.setdefault(shelf.room, []).append(shelf.order)

    def alike(self, kind: str, segments: Iterable[str]) -> Iterator[dict[int, list[int]]]:
        """For each kind (that one, or all for "") and segment ("": all of them): room -> shelves
        that have so much, as ascending positions."""
        kinds = (kind,) if kind else tuple(self.totals)
        for segment in segments:
            for of_kind in kinds:
                row = self._classes.get((of_kind, segment))
                if row:
                    yield row

    def most(self, kind: str) -> int:
        """The most room that one shelf of this kind has ("": of any kind)."""
        return max((max(row) for row in self.alike(kind, ("",))), default=0)

    def take(self, node: Node, devices: Iterable[int]) -> None:
        """Take these; one that isn't free is a mistake of ours and raises `ValueError`."""
        before = len(node.free)
        for device in devices:
            node.free.remove(device)
        self._resized(node, before)

    def take_all(self, group: Sequence[Slot]) -> None:
        """Take the slots of a group, all on one node."""
        self.take(self.nodes[group[0].node], [slot.device for slot in group])

    def give(self, group: Sequence[Slot]) -> None:
        """Give the slots of a group back."""
        node = self.nodes[group[0].node]
        before = len(node.free)
        for slot in group:
            insort(node.free, slot.device)
        self._resized(node, before)

    def hide(self, names: Iterable[str]) -> None:
        """Act as if nothing were free on these nodes, until `show`."""
        for name in names:
            node = self.nodes.get(name)
            if node is not None and node.free:
                self._hidden[node] = node.free
                node.free = []
                self._resized(node, len(self._hidden[node]))

    def show(self) -> None:
        """Undo `hide`."""
        for node, free in self._hidden.items():
            node.free = free
            self._resized(node, 0)
        self._hidden.clear()

    def _resized(self, node: Node, before: int) -> None:
        after, shelf = len(node.free), node.shelf
        totals = self.totals[shelf.kind]
        for size in self.sizes:
            totals[size] += (after // size - before // size) * size
        change = after // self.size - before // self.size
        if not change:
            return
        room_before, shelf.room = shelf.room, shelf.room + change
        for row in self._rows(shelf):
            if room_before:
                alike = row[room_before]
                del alike[bisect_left(alike, shelf.order)]
                if not alike:
                    del row[room_before]
            if shelf.room:
                insort(row.setdefault(shelf.room, []), shelf.order)

    def _rows(self, shelf: Shelf) -> Iterator[dict[int, list[int]]]:
        """Where it stands with those that are alike: of all segments, and of its own."""
        for segment in ("", shelf.segment) if shelf.segment else ("",):
            yield self._classes.setdefault((shelf.kind, segment), {})
