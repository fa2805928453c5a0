"""From sizes to devices.

Tasks that stay keep exactly what they hold. The others keep their surviving slots where they can,
in their order, and get new ones after them. A tensor-parallel group never leaves its node; new
groups go where the task has devices left, then to a node that holds none of its groups yet (so that
the nearest copy of its state is on another node), then to its own kind of device, then to the node
with most free devices, then to the lowest name.

Group sizes divide one another, so placing the larger ones first always succeeds if, for every size,
the nodes hold enough groups of it: a larger group takes away whole groups of each smaller size.
Slots kept by small groups can stand in the way of a large one; then the second attempt lets go of
them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from unicron.planner.objective import Choice
from unicron.planner.problem import PlanProblem, Slot, TaskDemand

Group = tuple[Slot, ...]


def place(
    problem: PlanProblem, tasks: Sequence[TaskDemand], picks: Sequence[Choice]
) -> list[tuple[Slot, ...]] | None:
    """Slots for each pick, in its order; None if they don't fit."""
    for reserve in (True, False):
        slots = _attempt(problem, tasks, picks, reserve=reserve)
        if slots is not None:
            return slots
    return None


def surviving_groups(task: TaskDemand, tp: int, usable: frozenset[Slot]) -> list[Group]:
    """The task's own usable slots as groups of `tp`, in rank order, incomplete ones left out.

    With an unchanged group size the groups are those it has; else they are cut anew on each node.
    """
    if task.current is not None and task.current.tp == tp:
        groups = [task.placement[i : i + tp] for i in range(0, len(task.placement), tp)]
        return [
            group
            for group in groups
            if usable.issuperset(group) and len({slot.node for slot in group}) == 1
        ]
    by_node: dict[str, list[Slot]] = {}
    for slot in task.placement:
        if slot in usable:
            by_node.setdefault(slot.node, []).append(slot)
    return [
        tuple(slots[i : i + tp])
        for slots in by_node.values()
        for i in range(0, len(slots) - tp + 1, tp)
    ]


class _Floor:
    """Who may still take what: free devices by node, ascending."""

    def __init__(self, problem: PlanProblem) -> None:
        self.free = {node.node: sorted(node.devices) for node in problem.nodes}
        self.kind = {node.node: node.kind for node in problem.nodes}

    def slots(self) -> frozenset[Slot]:
        return frozenset(
            Slot(node=node, device=device)
            for node, devices in self.free.items()
            for device in devices
        )

    def take(self, slots: Sequence[Slot]) -> None:
        """Take these; a slot that isn't free is a mistake of ours and raises `ValueError`."""
        for slot in slots:
            self.free[slot.node].remove(slot.device)


def _attempt(
    problem: PlanProblem, tasks: Sequence[TaskDemand], picks: Sequence[Choice], *, reserve: bool
) -> list[tuple[Slot, ...]] | None:
    floor = _Floor(problem)
    groups: list[list[Group]] = [[] for _ in tasks]
    for i, (task, pick) in enumerate(zip(tasks, picks, strict=True)):
        if pick.stays:
            groups[i].append(task.placement)
            floor.take(task.placement)
    changing = sorted(
        (i for i, pick in enumerate(picks) if not pick.stays and pick.devices),
        key=lambda i: (-picks[i].tp, tasks[i].task),
    )
    if reserve:
        for i in changing:
            groups[i] = _keep(floor, tasks[i], picks[i])
    for i in changing:
        if not reserve:
            groups[i] = _keep(floor, tasks[i], picks[i])
        if not _add(floor, tasks[i], picks[i], groups[i]):
            return None
    return [tuple(slot for group in row for slot in group) for row in groups]


def _keep(floor: _Floor, task: TaskDemand, pick: Choice) -> list[Group]:
    """Take what the task keeps: its first groups that are still free, as many as it needs."""
    kept = surviving_groups(task, pick.tp, floor.slots())[: pick.devices // pick.tp]
    for group in kept:
        floor.take(group)
    return kept


def _add(floor: _Floor, task: TaskDemand, pick: Choice, groups: list[Group]) -> bool:
    """Give the task new groups until it has all it needs; False if no node has room for one."""
    own: dict[str, set[int]] = {}
    for slot in task.placement:
        own.setdefault(slot.node, set()).add(slot.device)
    spread = Counter(group[0].node for group in groups)
    kinds = {floor.kind[node] for node in own if node in floor.kind}

    def rank(node: str) -> tuple[int, int, bool, int, str]:
        """Lowest first, in the order that the module's text gives."""
        free = floor.free[node]
        left = sum(device in own.get(node, ()) for device in free)
        foreign = bool(kinds) and floor.kind[node] not in kinds
        return (-min(pick.tp, left), spread[node], foreign, -len(free), node)

    # Taking a group changes the rank of its own node only, so a heap stays right.
    heap = [rank(node) for node, free in floor.free.items() if len(free) >= pick.tp]
    heapq.heapify(heap)
    while len(groups) * pick.tp < pick.devices:
        if not heap:
            return False
        node = heapq.heappop(heap)[-1]
        mine = own.get(node, set())
        devices = sorted(floor.free[node], key=lambda device: (device not in mine, device))
        group = tuple(Slot(node=node, device=device) for device in sorted(devices[: pick.tp]))
        floor.take(group)
        spread[node] += 1
        groups.append(group)
        if len(floor.free[node]) >= pick.tp:
            heapq.heappush(heap, rank(node))
    return True
