"""Where the state comes from that a plan's workers need and don't hold.

A slot needs state if the task ran before and what the worker there holds isn't the shard it is to
have: the slot is new, or tensor or pipeline sizes have changed. It gets every shard of the old
layout that makes up its new one from a worker that holds it. All workers on devices of the problem
count as holders, on draining nodes and on those that the task has to leave too: they stand until
the others have what they need. (Which worker of a `hit` task failed isn't in the problem; if it
held the only copy, the transfer fails and storage remains.)

For one shard every holder serves the same number of receivers, give or take one. Within that the
nearest ones are paired: first all on the same node, then in the same rack, then in the same
segment. Where there is a choice, holders on different nodes come first, since those on one node
share its network, and those that stay before those that go.

Where no copy of a shard is left, nothing in memory is of use, since what storage holds is older:
then every slot of the task loads from storage, those that it keeps too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence

import msgspec

from unicron.planner.plan import Assignment, Plan, Transfer
from unicron.planner.problem import NodeSupply, PlanProblem, Slot, TaskDemand
from unicron.planner.ranks import Shard, overlapping, shard_of

Near = Callable[[Slot], str]


class Movement(msgspec.Struct, frozen=True, kw_only=True):
    """What one task's transfers amount to.

    `receivers` slots get `received_bytes` together, `stored` of them from storage. `longest_ms` is
    how long the busiest worker sends or receives at `link_bytes_per_s`, 0 if that isn't known;
    loading from storage isn't in it.
    """

    task: str
    receivers: int
    stored: int
    received_bytes: int
    longest_ms: int


def transfers(problem: PlanProblem, assignments: Iterable[Assignment]) -> tuple[Transfer, ...]:
    """All transfers of these assignments, in their order and within each in rank order.

    A slot whose new shard is made up of several old ones has a transfer for each. Assignments that
    no plan may have (of unknown tasks, with more or fewer slots than the layout takes) have none.
    """
    tasks = {task.task: task for task in problem.tasks}
    nodes = {node.node: node for node in problem.nodes}
    return tuple(
        transfer
        for assignment in assignments
        if assignment.task in tasks
        for transfer in _of_task(nodes, tasks[assignment.task], assignment)
    )


def movements(problem: PlanProblem, plan: Plan) -> tuple[Movement, ...]:
    """What the plan's transfers amount to, for each task that has any, in the plan's order."""
    tasks = {task.task: task for task in problem.tasks}
    rows: dict[str, list[Transfer]] = {}
    for transfer in plan.transfers:
        rows.setdefault(transfer.task, []).append(transfer)
    return tuple(_amount(problem, tasks[name], row) for name, row in rows.items())


def _amount(problem: PlanProblem, task: TaskDemand, row: Sequence[Transfer]) -> Movement:
    parts = Counter(transfer.to for transfer in row)
    sent: Counter[Slot] = Counter()
    for transfer in row:
        if transfer.origin is not None:
            sent[transfer.origin] += -(-task.state_bytes // parts[transfer.to])
    busiest = max((task.state_bytes, *sent.values())) if sent else 0
    link = problem.link_bytes_per_s
    return Movement(
        task=task.task,
        receivers=len(parts),
        stored=len({transfer.to for transfer in row if transfer.origin is None}),
        received_bytes=len(parts) * task.state_bytes,
        longest_ms=-(-busiest * 1000 // link) if link else 0,
    )


def _of_task(
    nodes: dict[str, NodeSupply], task: TaskDemand, assignment: Assignment
) -> Iterator[Transfer]:
    old, new = task.current, assignment.layout
    if old is None or new is None:
        return
    if new == old and assignment.slots == task.placement:
        return
    if min(new.tp, new.pp, new.dp) < 1 or len(assignment.slots) != new.devices:
        return
    held = _holding(nodes, task)
    holders: dict[Shard, list[Slot]] = {}
    for slot, shard in held.items():
        holders.setdefault(shard, []).append(slot)
    if len(holders) < old.tp * old.pp:
        for slot in assignment.slots:
            yield Transfer(task=task.task, to=slot)
        return
    needed = {
        (tensor, stage): overlapping(new, (tensor, stage), old)
        for tensor in range(new.tp)
        for stage in range(new.pp)
    }
    missing = [
        [shard for shard in needed[shard_of(new, rank)] if held.get(slot) != shard]
        for rank, slot in enumerate(assignment.slots)
    ]
    receivers: dict[Shard, list[Slot]] = {}
    for slot, shards in zip(assignment.slots, missing, strict=True):
        for shard in shards:
            receivers.setdefault(shard, []).append(slot)
    staying = set(assignment.slots) if receivers else set()
    origin: dict[tuple[Slot, Shard], Slot] = {}
    for shard, takers in receivers.items():
        for taker, giver in nearest(nodes, takers, holders[shard], staying).items():
            origin[taker, shard] = giver
    for slot, shards in zip(assignment.slots, missing, strict=True):
        for shard in shards:
            yield Transfer(task=task.task, to=slot, origin=origin[slot, shard])


def _holding(nodes: dict[str, NodeSupply], task: TaskDemand) -> dict[Slot, Shard]:
    """The shard that the worker on each living slot of the task holds."""
    assert task.current is not None
    return {
        slot: shard_of(task.current, rank)
        for rank, slot in enumerate(task.placement)
        if slot.node in nodes and slot.device in nodes[slot.node].devices
    }


def nearest(
    nodes: Mapping[str, NodeSupply],
    takers: Sequence[Slot],
    holders: Sequence[Slot],
    staying: Collection[Slot],
) -> dict[Slot, Slot]:
    """By taker the holder of the same shard that sends it, as the module's text says; at least one
    holder. `staying`: those that go on training. `nodes` need not have all of them."""
    return dict(_pair(nodes, list(takers), _in_turn(holders, staying)))


def _in_turn(slots: Sequence[Slot], staying: Collection[Slot]) -> list[Slot]:
    """Those that stay first; then one of each node, a second one of each node, and so on."""
    seen: Counter[str] = Counter()
    keyed = []
    for slot in slots:
        keyed.append((slot not in staying, seen[slot.node], slot))
        seen[slot.node] += 1
    return [slot for _, _, slot in sorted(keyed, key=lambda entry: entry[:2])]


def _pair(
    nodes: Mapping[str, NodeSupply], takers: list[Slot], givers: list[Slot]
) -> Iterator[tuple[Slot, Slot]]:
    """Each taker with one giver, as the module's text says."""
    racks = {slot.node: nodes[slot.node].rack for slot in (*takers, *givers) if slot.node in nodes}
    segments = {name: nodes[name].segment for name in racks}
    levels: tuple[Near, ...] = (
        lambda slot: slot.node,
        lambda slot: racks.get(slot.node, ""),
        lambda slot: segments.get(slot.node, ""),
        lambda slot: "everywhere",
    )
    each = len(takers) // len(givers)
    for share in (each, 1):  # all give equally often; what is left over is given once by some
        left = dict.fromkeys(givers, share) if share else {}
        for near in levels:
            takers = yield from _pair_near(takers, left, near)


def _pair_near(
    takers: list[Slot], left: dict[Slot, int], near: Near
) -> Generator[tuple[Slot, Slot], None, list[Slot]]:
    """Pair who has the same place, while givers have something `left`; the others are returned."""
    shelf: defaultdict[str, list[Slot]] = defaultdict(list)
    for giver in reversed(left):
        shelf[near(giver)].append(giver)
    waiting = []
    for taker in takers:
        place = near(taker)
        row = shelf[place] if place else []
        if not row:
            waiting.append(taker)
            continue
        yield taker, row[-1]
        left[row[-1]] -= 1
        if not left[row[-1]]:
            del left[row.pop()]
    return waiting
