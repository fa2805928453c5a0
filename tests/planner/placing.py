"""Random clusters to place into, and an oracle that tries every way to fill the nodes.

The oracle knows nodes by how many devices each task takes there, which is all that feasibility and
the number of devices taken anew depend on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from unicron.planner import LayoutOption, NodeSupply, PlanProblem, Slot, TaskDemand
from unicron.planner.problem import Layout

Placed = Sequence[tuple[Slot, ...]]


class Wish(NamedTuple):
    """What `place` is asked for one task."""

    layout: Layout | None
    kind: str = ""
    stays: bool = False


class World(NamedTuple):
    problem: PlanProblem
    wishes: list[Wish]

    @property
    def tasks(self) -> tuple[TaskDemand, ...]:
        return self.problem.tasks


def world(seed: int, *, avoid: bool = False, kinds: bool = False) -> World:
    """Up to four nodes, some of them maimed or draining, one perhaps lost; up to three tasks."""
    rng = random.Random(seed)
    nodes = [
        NodeSupply(
            node=f"n{i}",
            kind=rng.choice("AB") if kinds else "A",
            devices=rng.choice([(0, 1, 2, 3)] * 4 + [(0, 1, 3), (2, 3), (1,)]),
            rack=f"r{rng.randint(0, 2)}",
            draining=rng.random() < 0.08,
        )
        for i in range(rng.randint(1, 4))
    ]
    usable = {node.node: node for node in nodes if not node.draining}
    free = {f"n{i}": [0, 1, 2, 3] for i in range(len(nodes) + 1)}
    tasks, wishes = [], []
    for name in "abc"[: rng.randint(1, 3)]:
        banned = tuple(n.node for n in nodes if rng.random() < 0.25) if avoid else ()
        current, held = _hold(rng, free)
        wish = _wish(rng, current, kinds)
        if current and rng.random() < 0.3 and _may_stay(held, usable, banned):
            wish = Wish(current, "", stays=True)
        task = TaskDemand(
            task=name,
            weight_milli=1,
            min_devices=0,
            max_devices=64,
            options=(LayoutOption(layout=wish.layout, throughput_gflops=1, kind=wish.kind),),
            current=current,
            placement=held,
            avoid=banned,
        )
        tasks.append(task)
        wishes.append(wish if wish.stays or rng.random() < 0.95 else Wish(None))
    problem = PlanProblem(computed_at=0, nodes=tuple(nodes), tasks=tuple(tasks), expected_run_ms=1)
    return World(problem, wishes)


def _hold(rng: random.Random, free: dict[str, list[int]]) -> tuple[Layout | None, tuple[Slot, ...]]:
    tp, pp, dp = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2]), rng.randint(1, 4)
    groups: list[list[Slot]] = []
    for name in rng.sample(sorted(free), len(free)):
        while len(free[name]) >= tp and len(groups) < pp * dp and rng.random() < 0.8:
            devices = rng.sample(free[name], tp)
            free[name] = [device for device in free[name] if device not in devices]
            groups.append([Slot(node=name, device=device) for device in devices])
    if len(groups) == pp * dp and rng.random() < 0.75:
        return Layout(tp=tp, pp=pp, dp=dp), tuple(slot for group in groups for slot in group)
    for group in groups:
        for slot in group:
            free[slot.node].append(slot.device)
    return None, ()


def _wish(rng: random.Random, current: Layout | None, kinds: bool) -> Wish:
    tp, pp, dp = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2]), rng.randint(1, 4)
    if current and rng.random() < 0.5:
        tp, pp, dp = (
            current.tp,
            current.pp,
            max(1, current.dp + rng.choice([-1, 0, 0, 1])),
        )
    return Wish(Layout(tp=tp, pp=pp, dp=dp), rng.choice(["", "A", "B"]) if kinds else "")


def _may_stay(held: Sequence[Slot], usable: dict[str, NodeSupply], banned: Sequence[str]) -> bool:
    return all(
        slot.node in usable and slot.device in usable[slot.node].devices and slot.node not in banned
        for slot in held
    )


def taken_anew(given: World, placed: Placed) -> int:
    """How many devices are used by tasks that didn't hold them."""
    return sum(
        len(set(slots) - set(task.placement))
        for task, slots in zip(given.tasks, placed, strict=True)
    )


def assert_right(given: World, placed: Placed) -> None:
    """Everything that a placement has to keep, whatever it is worth."""
    nodes = {node.node: node for node in given.problem.nodes if not node.draining}
    used: set[Slot] = set()
    for task, wish, slots in zip(given.tasks, given.wishes, placed, strict=True):
        assert len(slots) == (wish.layout.devices if wish.layout else 0)
        assert used.isdisjoint(slots) and len(set(slots)) == len(slots)
        used.update(slots)
        if wish.stays:
            assert slots == task.placement
            continue
        for slot in slots:
            assert slot.device in nodes[slot.node].devices
            assert wish.kind in ("", nodes[slot.node].kind)
            assert slot.node not in task.avoid
        tp = wish.layout.tp if wish.layout else 1
        groups = [slots[i : i + tp] for i in range(0, len(slots), tp)]
        assert all(len({slot.node for slot in group}) == 1 for group in groups)


def fewest_taken_anew(given: World) -> int | None:
    """The least that any placement takes anew; None if there is none."""
    nodes = [node for node in given.problem.nodes if not node.draining]
    free = {node.node: set(node.devices) for node in nodes}
    for task, wish in zip(given.tasks, given.wishes, strict=True):
        for slot in task.placement if wish.stays else ():
            free[slot.node].discard(slot.device)
    jobs = [
        (
            wish.layout.tp,
            wish.layout.pp * wish.layout.dp,
            [
                sum(s.node == n.node and s.device in free[s.node] for s in task.placement)
                for n in nodes
            ],
            [wish.kind in ("", n.kind) and n.node not in task.avoid for n in nodes],
        )
        for task, wish in zip(given.tasks, given.wishes, strict=True)
        if wish.layout is not None and not wish.stays
    ]

    @cache
    def best(job: int, room: tuple[int, ...]) -> int | None:
        if job == len(jobs):
            return 0
        tp, groups, own, allowed = jobs[job]
        costs = []
        for counts in ways(
            groups, [r // tp if a else 0 for r, a in zip(room, allowed, strict=True)]
        ):
            rest = best(job + 1, tuple(r - c * tp for r, c in zip(room, counts, strict=True)))
            if rest is not None:
                anew = sum(max(0, c * tp - o) for c, o in zip(counts, own, strict=True))
                costs.append(rest + anew)
        return min(costs, default=None)

    return best(0, tuple(len(free[node.node]) for node in nodes))


def ways(groups: int, room: Sequence[int]) -> list[tuple[int, ...]]:
    """All ways to spread so many groups over nodes with room for so many."""
    if not room:
        return [()] if groups == 0 else []
    return [
        (first, *rest)
        for first in range(min(groups, room[0]) + 1)
        for rest in ways(groups - first, room[1:])
    ]
