"""An incident in short, and what it cost: one row of the list, the first lines of a story."""

from collections.abc import Sequence as SequenceOf

import msgspec

from unicron.events import IncidentId, NodeId, Sequence, TaskId, WorkerId

#: Until when a cost was counted: the task had its throughput of before again; the task ended; the
#: log ends, and it is still short of it.
WHOLE, TASK_ENDED, LOG_END = "whole", "task_ended", "log_end"


class TaskCost(msgspec.Struct, frozen=True, kw_only=True):
    """What an incident cost one task, from `from_ns` to `to_ns` (stream time).

    `lost_flop`: floating-point operations that the task's throughput of before would have done in
    that time, less what its throughput of the time did, by the planner's cost model; not weighted.
    `lost_device_ms`: devices of before times time, less those that trained. `stall_ms`: how much of
    that time it did not train at all; up to the first iteration that is committed again, so what
    is computed of that iteration meanwhile counts as lost. `until`: ``whole``, ``task_ended`` or
    ``log_end``. Where a later incident made the same task smaller still, each bears its own part.
    """

    task: TaskId
    from_ns: int
    to_ns: int
    until: str
    gflops_before: int
    devices_before: int
    stall_ms: int
    lost_flop: int
    lost_device_ms: int


class IncidentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One incident in short. `severity` is its highest (1 is worst); times are the stream's.

    `tasks`: all that it hit, its own (`task`) first: those whose devices its plans changed as well.
    `first_evidence_seq`: the first entry of the log that belongs to it; `last_seq`: the last one.
    `began_at_ns`: since when, as its evidence tells it: a hang is noticed after the time without
    progress that it names, a node after so long a silence; otherwise that is when the first
    evidence was stored. Nobody can say from the log how long before its first entry a fault was.

    `detect_ms`: from there until the incident was opened. `stall_ms`, `lost_flop`,
    `lost_device_ms`: summed over `costs`; stall: its own task's. None if no task was hit.
    `cost_until`: as in TaskCost, see counted_longest(); "" without a task.
    `duration_ms`: from there to its resolution; None while it is open.
    """

    id: IncidentId
    severity: int
    is_open: bool
    what: str
    outcome: str
    task: TaskId | None
    tasks: tuple[TaskId, ...]
    node: NodeId | None
    worker: WorkerId | None
    first_evidence_seq: Sequence
    first_evidence_at_ns: int
    began_at_ns: int
    opened_seq: Sequence
    resolved_seq: Sequence | None
    last_seq: Sequence
    last_at_ns: int
    detect_ms: int
    stall_ms: int | None
    duration_ms: int | None
    lost_flop: int | None
    lost_device_ms: int | None
    cost_until: str
    costs: tuple[TaskCost, ...]


def counted_longest(costs: SequenceOf[TaskCost]) -> TaskCost | None:
    """That of the task that lost something for longest; what isn't mended yet counts as the
    longest. None if `costs` is empty."""
    lost = [c for c in costs if c.lost_device_ms or c.lost_flop]
    return max(lost or costs, key=lambda c: (c.until == LOG_END, c.to_ns), default=None)
