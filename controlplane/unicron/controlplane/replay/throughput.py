"""How fast each task trained, as far as the log tells: piecewise constant, from one pass of a fold.

A task has the throughput that the planner's cost model gives to the generation it trains in. It
trains from the first iteration that is committed in a generation until something breaks it; in a
planned transition the old generation trains on until the new one has committed. A break counts
from the first sign of it (a closed connection, silence), a hang from when progress ended.
"""

import re
from collections.abc import Sequence as SequenceOf
from typing import Final

import msgspec

from unicron import events as ev
from unicron.controlplane.core import tables
from unicron.controlplane.core.offers import options_of
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.replay.tracing import foreboding
from unicron.events import Generation, Recorded, Sequence
from unicron.planner.errors import BadProblem

_MS = 1_000_000
#: How the monitor says it.
SILENT: Final = re.compile(r"silent for (?P<ms>[0-9]{1,9}) ms")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """From `at_ns` on, because of the event `seq`. `gflops` and `devices` are 0 while the task does
    not train; `ended`: it never will again."""

    at_ns: int
    seq: Sequence
    gflops: int
    devices: int
    generation: Generation
    ended: bool = False


class ThroughputBook:
    """Paces of all tasks, by task, oldest first. Give it every entry, in order.

    `trained_on`: losses of nodes whose workers lived on: they stopped no earlier than that.
    """

    def __init__(self, log: SequenceOf[Recorded]) -> None:
        self.paces: dict[str, list[Pace]] = {}
        self.trained_on: set[Sequence] = set()
        self._log = log
        self._rates: dict[tuple[str, str, tuple[ev.DeviceSpeed, ...]], dict[int, int]] = {}
        self._now_ns = 0

    def see(self, before: ClusterState, after: ClusterState, recorded: Recorded) -> None:
        """The entry made the one state the other."""
        self._now_ns = max(self._now_ns, recorded.at_ns)
        if after.tasks is before.tasks:
            return
        for name, task in after.tasks.items():
            old = before.tasks.get(name)
            if old is not task:
                self._change(after, old, task, recorded)

    def _change(
        self, state: ClusterState, old: TaskState | None, task: TaskState, recorded: Recorded
    ) -> None:
        paces = self.paces.setdefault(task.spec.task, [])
        last = paces[-1] if paces else None
        devices, generation = _training(task, last)
        pace = Pace(
            at_ns=self._now_ns,
            seq=recorded.seq,
            gflops=self.gflops(state, task, devices),
            devices=devices,
            generation=generation,
            ended=task.phase in tables.ENDED,
        )
        if task.broken and not (old is not None and old.broken) and last is not None:
            pace = msgspec.structs.replace(pace, at_ns=self._since(recorded, last.at_ns))
        if last is None or _differs(last, pace):
            paces.append(pace)

    def _since(self, recorded: Recorded, not_before: int) -> int:
        if recorded.seq in self.trained_on:
            return self._now_ns
        return max(not_before, began(self._log, recorded.seq, self._now_ns))

    def stood_since(self, task: str, seq: Sequence, at_ns: int) -> None:
        """What the event `seq` stopped had stood still since `at_ns`, as is known by now."""
        paces = self.paces.get(task, [])
        for index, pace in enumerate(paces):
            if pace.seq == seq and not pace.devices and index:
                since = max(paces[index - 1].at_ns, min(pace.at_ns, at_ns))
                paces[index] = msgspec.structs.replace(pace, at_ns=since)

    def gflops(self, state: ClusterState, task: TaskState, devices: int) -> int:
        """Of the task on so many devices of the kind it has, by the cost model; 0 if it can't."""
        if not devices:
            return 0
        kind = _kind(state, task)
        rates = self._rates.setdefault((task.spec.task, kind, state.planning.devices), {})
        if not rates:
            try:
                alone = msgspec.structs.replace(task.spec, min_devices=1)
                options = options_of(alone, kind, state.planning)
            except BadProblem:
                options = ()
            rates.update((o.layout.devices, o.throughput_gflops) for o in options)
        return rates.get(devices, 0)


def began(log: SequenceOf[Recorded], seq: Sequence, at_ns: int, *, silence: bool = False) -> int:
    """Since when, as the evidence `seq` tells it, which was stored at `at_ns`. `silence`: also
    since when a node was silent, which doesn't say that its workers stood still."""
    found = [_since(log[seq - 1], at_ns, silence=silence)]
    for earlier in foreboding(log, seq):
        recorded = log[earlier - 1]
        found.append(_since(recorded, recorded.at_ns, silence=silence))
    return min(found)


def _since(recorded: Recorded, at_ns: int, *, silence: bool) -> int:
    match recorded.envelope.body if recorded.envelope is not None else None:
        case ev.TaskStalled(stalled_ms=stalled_ms):
            return at_ns - max(stalled_ms, 0) * _MS
        case ev.NodeSuspected(evidence=evidence) if silence:
            found = SILENT.search(evidence)
            return at_ns - (int(found["ms"]) * _MS if found else 0)
        case _:
            return at_ns


def _training(task: TaskState, last: Pace | None) -> tuple[int, Generation]:
    """How many devices train, and in which generation."""
    generation = task.generation
    still = last is not None and last.devices > 0
    if task.phase in ("ordered", "running") and not task.broken:
        if task.phase == "running" and (task.committed or still):
            return len(task.members), generation
        if task.committed:
            return len(task.target), generation
        if task.phase == "ordered" and task.planned and still:
            assert last is not None
            return last.devices, last.generation
    return 0, generation


def _differs(last: Pace, pace: Pace) -> bool:
    return (last.gflops, last.devices, last.ended) != (pace.gflops, pace.devices, pace.ended) or (
        pace.devices > 0 and last.generation != pace.generation
    )


def _kind(state: ClusterState, task: TaskState) -> str:
    """What its devices are; tasks aren't spread over kinds."""
    for name in [m.worker for m in task.members] + [m.worker for m in task.target]:
        node = state.nodes.get(ev.node_of(name))
        if node is not None:
            return node.device_kind
    return "cpu"
