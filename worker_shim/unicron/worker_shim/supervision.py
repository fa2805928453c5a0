"""Which orders an agent acts on, and what it says about its workers: pure, no process in sight.

Each function takes the table and what happened, and gives the table afterwards with the actions
to carry out, in order. Repeating anything changes nothing: orders are said again until they are
confirmed, and an end is seen by two paths (the fork server's report and the process descriptor).
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from unicron.events.ids import Incarnation, NodeId, Sequence, Term, WorkerId, worker_id
from unicron.events.union import AnyFact
from unicron.events.worker import (
    WorkerExited,
    WorkerStarted,
    WorkerStartFailed,
    WorkerStartOrdered,
    WorkerStopOrdered,
)


class Life(StrEnum):
    """FORKING: asked of the fork server, pid unknown. RUNNING: the process exists."""

    FORKING = "forking"
    RUNNING = "running"
    GONE = "gone"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A start order and where it stands in the log."""

    order: WorkerStartOrdered
    at: Sequence


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The newest incarnation of a worker that was begun. `grace_ms`: its end was ordered, with
    this grace. `successor`: the newer incarnation that waits until this one is gone."""

    start: Start
    life: Life
    pid: int = 0
    grace_ms: int | None = None
    successor: Start | None = None

    @property
    def incarnation(self) -> Incarnation:
        return self.start.order.incarnation


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """All an agent knows of its workers. `agent`: the life that it is in. `term`: the highest seen.
    `stopped`: incarnations whose end was ordered before their start was heard of. `closing`:
    nothing is started any more."""

    node: NodeId
    devices: int
    agent: Incarnation
    term: Term = Term(0)
    slots: dict[WorkerId, Slot] = {}
    stopped: dict[WorkerId, Incarnation] = {}
    closing: bool = False


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the fork server for this worker; then `forked` or `fork_failed`."""

    start: Start


class End(msgspec.Struct, frozen=True, kw_only=True):
    """SIGTERM, and SIGKILL after `grace_ms`; 0 is SIGKILL at once. Repeating it is harmless."""

    worker: WorkerId
    incarnation: Incarnation
    pid: int
    grace_ms: int


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Say it to the log. A WorkerExited still lacks what the progress page said last."""

    fact: AnyFact
    cause: tuple[Sequence, ...]


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """The order isn't followed; for the agent's own log."""

    reason: str


Action: TypeAlias = Fork | End | Publish | Refuse
Outcome: TypeAlias = tuple[Table, tuple[Action, ...]]


def start_ordered(table: Table, at: Sequence, term: Term, order: WorkerStartOrdered) -> Outcome:
    """A start order was heard, perhaps not for the first time."""
    table, refusal = _admit(table, term, order)
    if refusal is None and order.agent not in (0, table.agent):
        why = f"start of {order.worker}/{order.incarnation}: it is for agent {order.agent}, not us"
        refusal = Refuse(reason=why)
    if refusal is not None:
        return table, (refusal,)
    worker, start = order.worker, Start(order=order, at=at)
    slot = table.slots.get(worker)
    newest = _newest(slot)
    if order.incarnation == newest:
        return table, ()
    if order.incarnation < newest:
        why = f"start of {worker}/{order.incarnation}: incarnation {newest} was ordered already"
        return table, (Refuse(reason=why),)
    impossible = _impossible(table, order)
    if impossible:
        return table, (_start_failed(start, impossible),)
    if slot is None or slot.life is Life.GONE:
        return _begin(table, start)
    # An older incarnation has the device: it goes first, at once.
    failed = (
        () if slot.successor is None else (_start_failed(slot.successor, "a newer start came"),)
    )
    slot = msgspec.structs.replace(slot, successor=start, grace_ms=0)
    return _with_slot(table, slot), (*failed, *_end(slot))


def stop_ordered(table: Table, term: Term, order: WorkerStopOrdered) -> Outcome:
    """A stop order was heard, perhaps before the start it is about."""
    table, refusal = _admit(table, term, order)
    if refusal is not None:
        return table, (refusal,)
    worker, slot = order.worker, table.slots.get(order.worker)
    if slot is not None and slot.successor is not None:
        successor = slot.successor
        if successor.order.incarnation == order.incarnation:
            slot = msgspec.structs.replace(slot, successor=None)
            table = _with_stopped(_with_slot(table, slot), worker, order.incarnation)
            return table, (_start_failed(successor, "its stop was ordered before it began"),)
    if order.incarnation > _newest(slot):
        return _with_stopped(table, worker, order.incarnation), ()
    if slot is None or slot.incarnation != order.incarnation or slot.life is Life.GONE:
        return table, ()
    grace_ms = order.grace_ms if slot.grace_ms is None else min(order.grace_ms, slot.grace_ms)
    slot = msgspec.structs.replace(slot, grace_ms=grace_ms)
    return _with_slot(table, slot), _end(slot)


def forked(table: Table, worker: WorkerId, incarnation: Incarnation, pid: int) -> Outcome:
    """The fork server answered: the process exists."""
    slot = table.slots.get(worker)
    if slot is None or slot.incarnation != incarnation or slot.life is not Life.FORKING:
        return table, ()
    slot = msgspec.structs.replace(slot, life=Life.RUNNING, pid=pid)
    return _with_slot(table, slot), (_started(slot), *_end(slot))


def fork_failed(table: Table, worker: WorkerId, incarnation: Incarnation, error: str) -> Outcome:
    """There is no process."""
    slot = table.slots.get(worker)
    if slot is None or slot.incarnation != incarnation or slot.life is not Life.FORKING:
        return table, ()
    table, actions = _gone(table, slot)
    return table, (_start_failed(slot.start, error), *actions)


def exited(
    table: Table,
    worker: WorkerId,
    incarnation: Incarnation,
    pid: int,
    *,
    code: int | None,
    signal: int | None,
) -> Outcome:
    """A worker's process is gone, as one of the two paths says; the first one counts."""
    slot = table.slots.get(worker)
    if slot is None or slot.incarnation != incarnation or slot.life is Life.GONE:
        return table, ()
    first: tuple[Action, ...] = ()
    if slot.life is Life.FORKING:  # its end overtook the fork server's answer
        slot = msgspec.structs.replace(slot, pid=pid)
        first = (_started(slot),)
    order = slot.start.order
    fact = WorkerExited(
        task=order.task,
        worker=worker,
        incarnation=incarnation,
        exit_code=code,
        signal=signal,
        ordered=slot.grace_ms is not None,
    )
    table, actions = _gone(table, slot)
    return table, (*first, Publish(fact=fact, cause=(slot.start.at,)), *actions)


def unkillable(table: Table, worker: WorkerId, incarnation: Incarnation) -> Outcome:
    """SIGKILL had no effect within the limit: who waits for the device waits no longer."""
    slot = table.slots.get(worker)
    if slot is None or slot.incarnation != incarnation or slot.successor is None:
        return table, ()
    error = f"the device is held by {worker}/{incarnation} (pid {slot.pid}), which SIGKILL spares"
    failed = _start_failed(slot.successor, error)
    return _with_slot(table, msgspec.structs.replace(slot, successor=None)), (failed,)


def close(table: Table, grace_ms: int) -> Outcome:
    """The agent ends: so do all its workers, and nothing is started any more."""
    table = msgspec.structs.replace(table, closing=True)
    actions: list[Action] = []
    for slot in list(table.slots.values()):
        if slot.life is Life.GONE:
            continue
        own = grace_ms if slot.grace_ms is None else min(grace_ms, slot.grace_ms)
        ending = msgspec.structs.replace(slot, grace_ms=own, successor=None)
        table = _with_slot(table, ending)
        actions += _end(ending)
    return table, tuple(actions)


def living(table: Table) -> tuple[Slot, ...]:
    """Workers whose process exists or may come into being."""
    return tuple(slot for slot in table.slots.values() if slot.life is not Life.GONE)


# --- Parts -------------------------------------------------------------------------------------


def _admit(
    table: Table, term: Term, order: WorkerStartOrdered | WorkerStopOrdered
) -> tuple[Table, Refuse | None]:
    """May the order be looked at? Notes its term if so."""
    name = f"{type(order).__name__} of {order.worker}/{order.incarnation}"
    if order.node != table.node:
        return table, Refuse(reason=f"{name}: it is for node {order.node}")
    if term < table.term:
        return table, Refuse(reason=f"{name}: its term {term} is older than {table.term}")
    return msgspec.structs.replace(table, term=term), None


def _newest(slot: Slot | None) -> int:
    if slot is None:
        return -1
    return slot.successor.order.incarnation if slot.successor is not None else slot.incarnation


def _impossible(table: Table, order: WorkerStartOrdered) -> str:
    """Why the worker can't be started here, or ""."""
    if table.closing:
        return "the agent is ending"
    if not 0 <= order.device < table.devices:
        return f"{table.node} offers {table.devices} devices; there is no device {order.device}"
    if order.worker != worker_id(order.node, order.device):
        return f"{order.worker} isn't the worker of device {order.device}"
    if table.stopped.get(order.worker, -1) >= order.incarnation:
        return "its stop was ordered before it began"
    return ""


def _begin(table: Table, start: Start) -> Outcome:
    return _with_slot(table, Slot(start=start, life=Life.FORKING)), (Fork(start=start),)


def _gone(table: Table, slot: Slot) -> Outcome:
    """The slot's process is gone; the one who waited for it begins."""
    successor = slot.successor
    if successor is not None and not table.closing:
        return _begin(table, successor)
    gone = msgspec.structs.replace(slot, life=Life.GONE, successor=None)
    return _with_slot(table, gone), ()


def _end(slot: Slot) -> tuple[Action, ...]:
    """End the process if that was ordered and there is one to end."""
    if slot.grace_ms is None or slot.life is not Life.RUNNING:
        return ()
    order = slot.start.order
    return (
        End(
            worker=order.worker,
            incarnation=order.incarnation,
            pid=slot.pid,
            grace_ms=slot.grace_ms,
        ),
    )


def _started(slot: Slot) -> Publish:
    order = slot.start.order
    fact = WorkerStarted(
        task=order.task, worker=order.worker, incarnation=order.incarnation, pid=slot.pid
    )
    return Publish(fact=fact, cause=(slot.start.at,))


def _start_failed(start: Start, error: str) -> Publish:
    order = start.order
    fact = WorkerStartFailed(
        task=order.task, worker=order.worker, incarnation=order.incarnation, error=error
    )
    return Publish(fact=fact, cause=(start.at,))


def _with_slot(table: Table, slot: Slot) -> Table:
    return msgspec.structs.replace(table, slots=table.slots | {slot.start.order.worker: slot})


def _with_stopped(table: Table, worker: WorkerId, incarnation: Incarnation) -> Table:
    return msgspec.structs.replace(table, stopped=table.stopped | {worker: incarnation})
