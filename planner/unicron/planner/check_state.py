"""Does everybody get the state that it needs, from somebody who has it? For `check.py`.

Thought of per layer and tensor slice: model state is cut into tp x pp *cells* for each of the old
and the new layout, which cover each other in part. A worker has what its old cell covers, if its
device is alive. It needs what its new cell covers, and each transfer brings what the sender's old
cell covers. Exactly what is missing must come, in as few transfers as that takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple, TypeAlias

from unicron.planner.plan import Assignment, Transfer
from unicron.planner.problem import Layout, Slot, TaskDemand

Cell: TypeAlias = tuple[int, int]  # tensor rank, stage


class Fault(NamedTuple):
    """One thing that is wrong with the transfers."""

    kind: str
    task: str
    detail: str


def wrong_transfers(
    known: Sequence[tuple[TaskDemand, Assignment]],
    transfers: Sequence[Transfer],
    alive: dict[str, list[bool]],
) -> Iterator[Fault]:
    """Transfers that are missing, superfluous, repeated, or from where there is nothing to get.

    `alive`: which of the slots that a task holds are healthy; tasks that keep exactly what they
    have, and have no transfers, may be left out.
    """
    by_task: dict[str, list[Transfer]] = {}
    for transfer in transfers:
        by_task.setdefault(transfer.task, []).append(transfer)
    for demand, given in known:
        yield from _of_task(demand, given, by_task.pop(demand.task, []), alive.get(demand.task, []))
    for task, row in by_task.items():
        yield Fault("transfer-needless", task, f"{len(row)} for a task without an assignment")


def _of_task(
    demand: TaskDemand, given: Assignment, row: list[Transfer], alive: list[bool]
) -> Iterator[Fault]:
    old, new = demand.current, given.layout
    if not row and new == old and given.slots == demand.placement:
        return
    fits = new is not None and min(new.tp, new.pp, new.dp) > 0
    if old is None or new is None or not fits or len(given.slots) != new.tp * new.pp * new.dp:
        # Another rule says what is wrong with an assignment whose slots don't fit its layout.
        for transfer in row:
            yield Fault("transfer-needless", demand.task, f"{_say(transfer)}: nothing to send")
        return
    has = _cells(old, demand.placement)
    held = {slot: has[slot] for slot in compress(demand.placement, alive)}
    stored = len(set(held.values())) < old.tp * old.pp
    due: Counter[tuple[Slot, Cell | None]] = Counter()
    if stored:
        due.update((slot, None) for slot in given.slots)
    else:
        wanted = _cells(new, given.slots)
        parts = {cell: _parts(old, new, cell) for cell in set(wanted.values())}
        for slot, cell in wanted.items():
            mine = held.get(slot)
            if parts[cell] != [mine]:
                due.update((slot, part) for part in parts[cell] if part != mine)
    if new == old and given.slots == demand.placement:
        due.clear()
    yield from _compare(demand.task, row, due, has, held)


def _compare(
    task: str,
    row: list[Transfer],
    due: Counter[tuple[Slot, Cell | None]],
    has: dict[Slot, Cell],
    held: dict[Slot, Cell],
) -> Iterator[Fault]:
    """`due`: who must get which old cell (None: everything, from storage); `has`: the old cell of
    each slot; `held`: the same for those that are alive."""
    for transfer in row:
        origin = transfer.origin
        if origin is not None and origin not in has:
            yield Fault("transfer-origin", task, f"{_say(transfer)}: holds nothing of the task")
            continue
        if origin is not None and origin not in held:
            yield Fault("transfer-origin", task, f"{_say(transfer)}: that device isn't healthy")
            continue
        key = (transfer.to, None if origin is None else has[origin])
        if due[key] > 0:
            due[key] -= 1
        else:
            yield Fault("transfer-needless", task, f"{_say(transfer)}: not needed, or twice")
    for (slot, cell), count in due.items():
        if count > 0:
            what = "everything" if cell is None else f"tensor rank {cell[0]}, stage {cell[1]}"
            yield Fault("transfer-missing", task, f"{slot.node}/{slot.device} lacks {what}")


def _cells(layout: Layout, slots: Sequence[Slot]) -> dict[Slot, Cell]:
    """The cell of each slot, in Megatron's rank order: tensor fastest, then data, then pipeline."""
    cells = [
        (tensor, stage)
        for stage in range(layout.pp)
        for _ in range(layout.dp)
        for tensor in range(layout.tp)
    ]
    return dict(zip(slots, cells, strict=True))


def _parts(old: Layout, new: Layout, cell: Cell) -> list[Cell]:
    """The old cells that meet this one of the new layout."""
    tensor, stage = cell
    return [
        (t, p)
        for t in range(old.tp)
        for p in range(old.pp)
        if _meet(t, old.tp, tensor, new.tp) and _meet(p, old.pp, stage, new.pp)
    ]


def _meet(i: int, of: int, j: int, others: int) -> bool:
    """Whether [i/of, (i+1)/of) and [j/others, (j+1)/others) have something in common."""
    return i * others < (j + 1) * of and j * of < (i + 1) * others


def _say(transfer: Transfer) -> str:
    origin = transfer.origin
    source = "storage" if origin is None else f"{origin.node}/{origin.device}"
    return f"{transfer.to.node}/{transfer.to.device} from {source}"
