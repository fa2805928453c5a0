"""Devices that the plan gives to one task while a worker of another still stands on them.

A device passes on in this order: its holder's task goes on without that worker, the worker stops,
its process is gone, the next task's worker starts. No event of its own says that a device is free:
the exit of its worker does, or the loss of its node. Whoever is to get it waits for that, with a
limit (`limits.RELEASE_MS`, then `limits.STOP_MS`).
"""

from typing import NamedTuple

from unicron.controlplane.core import tables
from unicron.controlplane.core.state import ClusterState, TaskState, WorkerState
from unicron.controlplane.core.supply import wants
from unicron.controlplane.core.unsettled import owners_of, unsettled_workers, workers_of
from unicron.events import TaskId


class Lease(NamedTuple):
    """`holder` stands on a device that the plan gives to the task `to`."""

    holder: WorkerState
    to: TaskId


def leases(state: ClusterState) -> tuple[Lease, ...]:
    """All devices that a task waits for another one to release, in the order of their workers."""
    if len(state.tasks) < 2:
        return ()
    workers = unsettled_workers(state)
    given = owners_of(state, ((w.node, w.device) for w in workers))
    found = []
    for worker in workers:
        to = given.get((worker.node, worker.device))
        if to is not None and to != worker.task and worker.status in tables.ALIVE:
            found.append(Lease(worker, to))
    return tuple(sorted(found, key=lambda lease: lease.holder.worker))


def is_awaited(lease: Lease) -> bool:
    """Has nothing been done yet to end the holder? Once its stop was ordered, the limit of that
    runs; and one that could not leave in time waits for another plan."""
    worker = lease.holder
    return worker.status in ("ordered", "started", "prepared", "member") and not worker.overdue


def can_go(state: ClusterState, task: TaskState, worker: WorkerState) -> bool:
    """Would its task be left with somebody who holds its training state?"""
    if not worker.joined:
        return True
    return any(
        other.worker != worker.worker
        and other.joined
        and other.status in ("prepared", "member")
        and wants(task, other)
        for other in workers_of(state, worker.task)
    )
