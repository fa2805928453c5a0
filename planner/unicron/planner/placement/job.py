"""A task that changes over, while its devices are being found."""

from __future__ import annotations

from collections import Counter

from unicron.planner.placement.floor import Floor, Node
from unicron.planner.placement.keeping import Group, Replica, in_rank_order
from unicron.planner.problem import Layout, Slot, TaskDemand


class Job:
    """What one task is to get, and what of it has been found; `size`: devices of a group."""

    __slots__ = (
        "_held",
        "_kept",
        "avoid",
        "kind",
        "layout",
        "position",
        "replicas",
        "size",
        "task",
    )

    def __init__(self, position: int, task: TaskDemand, layout: Layout, kind: str) -> None:
        self.position = position
        self.task = task
        self.layout = layout
        self.kind = kind
        self.size = layout.tp
        self.avoid = frozenset(task.avoid)
        self._held: frozenset[Slot] = frozenset()
        self.start([[None] * layout.pp for _ in range(layout.dp)])

    def start(self, kept: list[Replica]) -> None:
        """Begin with what is kept."""
        self.replicas = kept
        self._kept = [list(replica) for replica in kept]

    def may_use(self, node: Node) -> bool:
        """Whether the task may have devices of this node."""
        return self.kind in ("", node.shelf.kind) and node.name not in self.avoid

    def may_keep(self, floor: Floor, slot: Slot) -> bool:
        """Whether the task may keep this device, which it holds."""
        node = floor.nodes.get(slot.node)
        return node is not None and slot.device in node.free and self.may_use(node)

    def held(self, group: Group) -> int:
        """How many of these devices the task held before."""
        if not self._held:
            self._held = frozenset(self.task.placement)
        return len(self._held.intersection(group))

    def missing(self) -> int:
        """How many groups it lacks."""
        return sum([replica.count(None) for replica in self.replicas])

    def holes(self) -> list[tuple[int, int]]:
        """Where it lacks one: (replica, stage), the stages of a replica together."""
        return [
            (r, stage)
            for r, replica in enumerate(self.replicas)
            for stage, group in enumerate(replica)
            if group is None
        ]

    def slots(self) -> tuple[Slot, ...]:
        """All its slots in rank order: replicas kept whole first, then those kept in part, then new
        ones, in turn on one node after the other, so that the first ones are on several."""
        rows: list[tuple[int, int, Replica]] = []
        on_node: Counter[str] = Counter()
        for replica, before in zip(self.replicas, self._kept, strict=True):
            stayed = sum(now is group for now, group in zip(replica, before, strict=True))
            newness = 0 if stayed == len(replica) else 1 if stayed else 2
            first = replica[0]
            assert first is not None, "asked for before it is complete"
            rows.append((newness, on_node[first[0].node] if newness == 2 else 0, replica))
            on_node[first[0].node] += 1
        rows.sort(key=lambda row: row[:2])
        slots = in_rank_order([replica for _, _, replica in rows])
        assert slots is not None
        return slots
