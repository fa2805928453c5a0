"""What a task keeps of what it holds when it changes over.

Its devices are seen as *replicas*, each with one tensor parallel group (or none yet) for every
stage of the pipeline. While tensor and pipeline sizes stay, replicas that are whole are kept as
they are, and those that lost a group are mended from one another: a group moves to another replica
of the same stage, which costs nothing, and to another stage only where it would be given back
otherwise. With other sizes the groups are cut anew, each going to the stage whose layers it mostly
holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias

from unicron.planner.problem import Layout, Slot, TaskDemand

Group: TypeAlias = tuple[Slot, ...]
#: One group for each stage; None where one is still to be found.
Replica: TypeAlias = list[Group | None]
#: Which of so many whole replicas to keep, as ascending positions.
Chooser: TypeAlias = Callable[[Sequence[Replica], int], Sequence[int]]


class _Survivor(NamedTuple):
    group: Group
    replica: int
    stage: int


def keep(
    task: TaskDemand,
    layout: Layout,
    usable: Callable[[Slot], bool],
    choose: Chooser = lambda whole, count: range(count),
) -> list[Replica]:
    """`layout.dp` replicas, made of as many of the task's usable groups as there is a use for.

    Those kept whole come first, in their order. `choose` decides where there are too many of them;
    by default the first ones stay.
    """
    rows = _survivors(task, layout, usable)
    same = task.current and (task.current.tp, task.current.pp) == (layout.tp, layout.pp)
    if not same and layout.pp == 1:  # every group is a replica
        rows = [_Survivor(row.group, number, 0) for number, row in enumerate(rows)]
    if same or layout.pp == 1:
        replicas, spare = _by_replica(rows, layout, choose)
    else:
        replicas, spare = _by_stage(rows, layout)
    by_stage: dict[int, deque[Group]] = {stage: deque() for stage in range(layout.pp)}
    for row in spare:
        by_stage[row.stage].append(row.group)
    holes = [(replica, s) for replica in replicas for s in range(layout.pp) if replica[s] is None]
    for replica, stage in holes:
        replica[stage] = by_stage[stage].popleft() if by_stage[stage] else None
    for replica, stage in holes:
        if replica[stage] is None:
            replica[stage] = next((row.popleft() for row in by_stage.values() if row), None)
    return replicas


def kept_slots(
    task: TaskDemand, layout: Layout, usable: Callable[[Slot], bool]
) -> tuple[Slot, ...] | None:
    """The task's own usable slots in this layout, in rank order; None if they don't suffice."""
    return in_rank_order(keep(task, layout, usable))


def whole_to_keep(place_of: Callable[[str], Hashable], frees: Callable[[str], bool]) -> Chooser:
    """Keep what leaves a copy of every stage in two racks, or else on two nodes; give back what
    leaves whole nodes free, then the last ones.

    `place_of` a node is its rack; `frees` says whether nobody else holds anything there.
    """

    def choose(whole: Sequence[Replica], count: int) -> Sequence[int]:
        surplus, given_back = len(whole) - count, set[int]()
        if not surplus:
            return range(count)
        nodes = [[group[0].node for group in replica if group] for replica in whole]
        safe = _apart([[place_of(node) for node in row] for row in nodes], nodes, count)
        touching: dict[str, list[int]] = {}
        for i, row in enumerate(nodes):
            for node in dict.fromkeys(row):
                touching.setdefault(node, []).append(i)
        for node, all_there in sorted(touching.items(), key=lambda item: -item[1][-1]):
            there = given_back.union(all_there) if len(all_there) <= surplus else set(all_there)
            if len(there) <= surplus and safe.isdisjoint(there) and frees(node):
                given_back = there
        for i in reversed(range(len(whole))):
            if len(given_back) < surplus and i not in safe:
                given_back.add(i)
        return [i for i in range(len(whole)) if i not in given_back]

    return choose


def _apart(
    racks: Sequence[Sequence[Hashable]], nodes: Sequence[Sequence[Hashable]], count: int
) -> set[int]:
    """Up to `count` replicas that have each stage in two racks, or else on two nodes."""
    safe = {0}
    for places in (racks, nodes):
        seen = [{places[i][stage] for i in safe} for stage in range(len(places[0]))]
        for i, row in enumerate(places):
            if len(safe) == count:
                break
            if any(len(s) == 1 and place not in s for s, place in zip(seen, row, strict=True)):
                safe.add(i)
                for stage, place in zip(seen, row, strict=True):
                    stage.add(place)
    return safe


def in_rank_order(replicas: Sequence[Replica]) -> tuple[Slot, ...] | None:
    """Stage by stage, and in each replica by replica; None if a group is missing."""
    slots: list[Slot] = []
    for stage in zip(*replicas, strict=True):
        for group in stage:
            if group is None:
                return None
            slots += group
    return tuple(slots)


def _survivors(task: TaskDemand, layout: Layout, usable: Callable[[Slot], bool]) -> list[_Survivor]:
    """The usable groups of `layout.tp`, in rank order, with the stage that suits them.

    With an unchanged group size the groups are those that the task has; else they are cut anew on
    each node.
    """
    old = task.current
    if old is None:
        return []
    fine = [usable(slot) for slot in task.placement]
    found: list[tuple[int, Group]] = []
    if old.tp == layout.tp:
        for rank in range(0, old.devices, old.tp):
            group = task.placement[rank : rank + old.tp]
            if all(fine[rank : rank + old.tp]) and len({slot.node for slot in group}) == 1:
                found.append((rank, group))
    else:
        by_node: dict[str, list[int]] = {}
        for rank, slot in enumerate(task.placement):
            if fine[rank]:
                by_node.setdefault(slot.node, []).append(rank)
        for ranks in by_node.values():
            for i in range(0, len(ranks) - layout.tp + 1, layout.tp):
                group = tuple(task.placement[rank] for rank in ranks[i : i + layout.tp])
                found.append((ranks[i], group))
    rows = []
    for rank, group in found:
        stage, replica = divmod(rank // old.tp, old.dp)
        middle = (2 * stage + 1) * layout.pp // (2 * old.pp)  # of its layers, in new stages
        rows.append(_Survivor(group, replica, middle))
    return rows


def _by_replica(
    rows: list[_Survivor], layout: Layout, choose: Chooser
) -> tuple[list[Replica], list[_Survivor]]:
    """The replicas to go on with, and the groups of those that are given up."""
    table: dict[int, Replica] = {}
    for row in rows:
        table.setdefault(row.replica, [None] * layout.pp)[row.stage] = row.group
    whole: list[Replica] = [table[n] for n in sorted(table) if None not in table[n]]
    if len(whole) >= layout.dp:
        return [whole[i] for i in choose(whole, layout.dp)], []
    broken = sorted(
        (number for number in table if None in table[number]),
        key=lambda number: (table[number].count(None), number),
    )
    mended = sorted(broken[: layout.dp - len(whole)])
    replicas: list[Replica] = [*whole, *(table[number] for number in mended)]
    while len(replicas) < layout.dp:
        replicas.append([None] * layout.pp)
    given_up = set(broken) - set(mended)
    return replicas, [row for row in rows if row.replica in given_up]


def _by_stage(rows: list[_Survivor], layout: Layout) -> tuple[list[Replica], list[_Survivor]]:
    """Replicas of groups that never stood together, in rank order."""
    replicas: list[Replica] = [[None] * layout.pp for _ in range(layout.dp)]
    filled = [0] * layout.pp
    spare = []
    for row in rows:
        if filled[row.stage] == layout.dp:
            spare.append(row)
            continue
        replicas[filled[row.stage]][row.stage] = row.group
        filled[row.stage] += 1
    return replicas, spare
