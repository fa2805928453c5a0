"""From sizes to devices.

Tasks that stay keep exactly what they hold. The others keep what they can of what they hold
(`keeping.py`), in the order that `plan.Assignment` describes; devices left of a broken tensor
parallel group are used again for a group on the same node (`mending.py`). Then the missing groups
are placed, the largest first (`filling.py`).

Group sizes divide one another, so that always succeeds if, for every size and kind, the nodes hold
enough groups of it: a larger group takes away whole groups of each smaller size. Groups that small
tasks keep can stand in the way of a large one; then those give way that cost least
(`making_room.py`). Where tasks avoid nodes, counting doesn't tell what fits, and a task that may go
to few nodes meets groups that could stand elsewhere: those are moved, by a bounded search.

With one group size the fewest devices possible are taken anew; where groups of several sizes give
way to one another nearly always, and one or two more in about one of 1,000 small random cases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from unicron.planner.placement.filling import Filling
from unicron.planner.placement.floor import Floor
from unicron.planner.placement.job import Job
from unicron.planner.placement.keeping import keep, kept_slots, whole_to_keep
from unicron.planner.placement.making_room import Crowd, displace
from unicron.planner.placement.mending import mend
from unicron.planner.problem import Layout, PlanProblem, Slot, TaskDemand

__all__ = ["Pick", "kept_slots", "place"]


class Pick(Protocol):
    """What is to be done with a task: keep exactly what it has (`stays`), or run `layout` on
    devices of `kind` ("": of any kind), or park (None)."""

    @property
    def layout(self) -> Layout | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def stays(self) -> bool: ...


def place(
    problem: PlanProblem, tasks: Sequence[TaskDemand], picks: Sequence[Pick]
) -> list[tuple[Slot, ...]] | None:
    """Slots for each pick, in its order; None if they don't fit.

    Tasks that stay must hold whole groups on devices that they may use. Each of their devices is
    looked at once and nothing else is done about them.
    """
    rows: list[tuple[Slot, ...]] = [() for _ in tasks]
    used: defaultdict[str, list[int]] = defaultdict(list)
    jobs: list[Job] = []
    for i, (task, pick) in enumerate(zip(tasks, picks, strict=True)):
        if pick.stays:
            rows[i] = task.placement
            for slot in task.placement:
                used[slot.node].append(slot.device)
        elif pick.layout is not None:
            jobs.append(Job(i, task, pick.layout, pick.kind))
    if not jobs:
        return rows
    jobs.sort(key=lambda job: (-job.size, not job.kind, -len(job.avoid), job.task.task))
    floor = Floor(problem.nodes, used, sorted({job.size for job in jobs}))
    _keep_all(floor, jobs)
    mend(floor, jobs)
    for job in jobs:
        if job.size != floor.size:
            floor.set_size(job.size)
        if not _complete(floor, jobs, job):
            return None
    for job in jobs:
        rows[job.position] = job.slots()
    return rows


def _keep_all(floor: Floor, jobs: Sequence[Job]) -> None:
    holders: defaultdict[str, set[int]] = defaultdict(set)
    for job in jobs:
        for slot in job.task.placement:
            holders[slot.node].add(job.position)
    idle = {node.name for node in floor.nodes.values() if len(node.free) == node.size}
    choose = whole_to_keep(
        lambda name: floor.nodes[name].shelf.rack,
        lambda name: name in idle and len(holders[name]) == 1,
    )
    for job in jobs:
        if job.task.current is None:
            continue
        job.start(keep(job.task, job.layout, partial(job.may_keep, floor), choose))
        for replica in job.replicas:
            for group in replica:
                if group is not None:
                    floor.take_all(group)


def _complete(floor: Floor, jobs: Sequence[Job], job: Job) -> bool:
    """Place all groups that the job lacks; False if that can't be done."""
    if not job.missing():
        return True
    own = frozenset(
        floor.nodes[slot.node].shelf.kind for slot in job.task.placement if slot.node in floor.nodes
    )
    shared = not job.kind and any(other.kind for other in jobs)
    floor.hide(job.avoid)
    filling = Filling(floor, job, own)
    crowd: Crowd | None = None
    while filling.left:
        limits = _limits(floor, jobs, job) if shared else None
        if filling.place_some(limits):
            continue
        crowd = crowd or Crowd(floor, jobs, job)
        if crowd.evict():
            filling.look_again()
        elif not (limits and filling.place_some(None)):
            floor.show()
            found = displace(floor, jobs, job)
            floor.hide(job.avoid)
            filling.look_again()
            crowd = None  # others may stand elsewhere now
            if not (found and filling.place_some(None)):
                floor.show()
                return False
    floor.show()
    return True


def _limits(floor: Floor, jobs: Sequence[Job], job: Job) -> dict[str, int]:
    """How many groups of the job's size devices of each kind can take, so that those tasks that
    need this kind still find room."""
    limits = {}
    for kind, totals in floor.totals.items():
        lacking = [(other.size, other.missing()) for other in jobs if other.kind == kind]
        spare = min(
            totals[size] - sum(of * count for of, count in lacking if of >= size)
            for size in floor.sizes
            if size <= job.size
        )
        limits[kind] = max(0, spare // job.size)
    return limits
