"""How fast each task trained, as far as the log tells: piecewise constant, from one pass of a fold.

A task has the throughput that the planner's cost model gives to the generation it trains in. It
trains from the first iteration that is committed in a generation until something breaks it; in a
planned transition the old generation trains on until the new one has committed. A break counts
from the first sign of it (a closed connection, silence), a hang from when progress ended.
"""

from collections.abc import Sequence as SequenceOf

import msgspec

from unicron import events as ev
from unicron.controlplane.core import tables
from unicron.controlplane.core.problem import options_of
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.replay.tracing import foreboding
from unicron.events import Generation, Recorded, Sequence
from unicron.planner.errors import BadProblem

_MS = 1_000_000


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
    """Paces of all tasks, by task, oldest first. Give it every entry, in order."""

    def __init__(self, log: SequenceOf[Recorded]) -> None:
        self.paces: dict[str, list[Pace]] = {}
        self._log = log
        self._rates: dict[tuple[str, str], dict[int, int]] = {}
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
        return max(not_before, began(self._log, recorded.seq, self._now_ns))

    def gflops(self, state: ClusterState, task: TaskState, devices: int) -> int:
        """Of the task on so many devices of the kind it has, by the cost model; 0 if it can't."""
        if not devices:
            return 0
        kind = _kind(state, task)
        rates = self._rates.setdefault((task.spec.task, kind), {})
        if not rates:
            try:
                options = options_of(msgspec.structs.replace(task.spec, min_devices=1), kind)
            except BadProblem:
                options = ()
            rates.update((o.layout.devices, o.throughput_gflops) for o in options)
        return rates.get(devices, 0)


def began(log: SequenceOf[Recorded], seq: Sequence, at_ns: int) -> int:
    """Since when, as the evidence `seq` tells it, which was stored at `at_ns`."""
    envelope = log[seq - 1].envelope
    if envelope is not None and isinstance(envelope.body, ev.TaskStalled):
        return at_ns - max(envelope.body.stalled_ms, 0) * _MS
    return min([at_ns, *(log[s - 1].at_ns for s in foreboding(log, seq))])


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
