"""Snapshots of simulated instances. They cost no virtual time and nobody's luck, so that a run is
the same with and without them; only that less is folded again."""

from collections.abc import Callable
from typing import Final, TypeVar

from unicron.controlplane.core.snapshot import Snapshot
from unicron.controlplane.runtime.memory import MemoryLog, MemorySnapshots, MemoryStream
from unicron.controlplane.runtime.ports import EventLog
from unicron.controlplane.runtime.snapshots import SnapshotKeeper

T = TypeVar("T")

_EVERY: Final = 300


class SimulatedKeeper(SnapshotKeeper):
    """Of one instance; `kept` outlives it."""

    def __init__(self, stream: MemoryStream, kept: MemorySnapshots) -> None:
        super().__init__((kept,), every=_EVERY)
        self._stream = stream

    async def newest(self, event_log: EventLog) -> Snapshot | None:
        return await super().newest(MemoryLog(self._stream))

    async def finish(self, snapshot: Snapshot) -> None:
        """Instances here are killed."""

    async def _aside(self, work: Callable[[], T]) -> T:
        return work()
