"""Snapshots of a running instance: begin from the newest good one, write new ones aside.

Every instance may write, leader or not: its state is the same. Nothing waits for a snapshot, and
none that fails costs more than a warning.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from unicron.controlplane.core.snapshot import (
    LogFacts,
    Snapshot,
    SnapshotUnusable,
    encode_snapshot,
    judge,
)
from unicron.controlplane.runtime.ports import EventLog, Snapshots
from unicron.events import ConfigError, LogError, Sequence, UnicronError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Events from one snapshot to the next: some seconds of folding.
SNAPSHOT_EVERY: Final = 10_000
#: How long an instance that ends waits for its last one.
_LAST_LIMIT_S: Final = 5.0


async def facts_of(event_log: EventLog, last: Sequence, seq: Sequence) -> LogFacts:
    """What a snapshot of the entry `seq` is held against; `last`: where the log ends. Raises
    LogUnreachable."""
    return LogFacts(
        cluster=event_log.cluster,
        birth=await event_log.birth(),
        last_seq=last,
        seq=seq,
        entry=await event_log.get(seq) if seq <= last else None,
        missing=await event_log.first_missing(min(seq, last)),
    )


class SnapshotKeeper:
    """Of one instance. `stores`: where snapshots are kept; of those that are as new, the one in the
    first store is taken. `tell` hears from which one the instance begins."""

    def __init__(
        self,
        stores: Iterable[Snapshots],
        *,
        every: int = SNAPSHOT_EVERY,
        tell: Callable[[str], object] = log.info,
    ) -> None:
        self._stores = tuple(stores)
        self._every = every
        self._tell = tell
        #: Of the log; "" until newest() has asked for it.
        self.birth = ""
        self._last = Sequence(0)
        self._wanted: Snapshot | None = None
        self._wake = anyio.Event()
        self._failing: dict[str, None] = {}

    # --- Beginning --------------------------------------------------------------------------------

    async def places(self) -> list[str]:
        """Where there are snapshots, for people."""
        found = [store.where for _, store in await self._known()]
        return list(dict.fromkeys(found))

    async def newest(self, event_log: EventLog) -> Snapshot | None:
        """The newest snapshot that may stand for the beginning of this log; None if there is none.

        Raises:
            LogMismatch, LogBroken: a snapshot shows that this isn't the log any more that it was.
            LogUnreachable: the log gives no answer.
        """
        self.birth = await event_log.birth()
        last = await event_log.last_seq()
        for seq, store in await self._known():
            snapshot = await self._good(event_log, last, seq, store)
            if snapshot is not None:
                self._last = seq
                count = f"{last - seq:,} event{'' if last - seq == 1 else 's'}"
                self._tell(f"from the snapshot of #{seq:,} ({store.name}), {count} after it")
                return snapshot
        return None

    async def _known(self) -> list[tuple[Sequence, Snapshots]]:
        """What there is, newest first."""
        found = []
        for store in self._stores:
            found += [(seq, store) for seq in await self._tried(store, store.known()) or ()]
        return sorted(found, key=lambda one: -one[0])

    async def _good(
        self, event_log: EventLog, last: Sequence, seq: Sequence, store: Snapshots
    ) -> Snapshot | None:
        try:
            data = await self._tried(store, store.load(seq))
            if data is None:
                return None
            facts = await facts_of(event_log, last, seq)
            return await self._aside(partial(judge, data, facts, store.where))
        except SnapshotUnusable as why:
            log.warning("the snapshot of #%s (%s) is left aside: %s", f"{seq:,}", store.name, why)
            return None

    # --- Writing ----------------------------------------------------------------------------------

    def due(self, seq: Sequence) -> bool:
        """It is time for another one."""
        return seq - self._last >= self._every

    def take(self, snapshot: Snapshot) -> None:
        """Write this one when there is time for it, unless a newer one comes before that."""
        self._last = snapshot.seq
        self._wanted = snapshot
        self._wake.set()

    async def run(self) -> None:
        """Write what is taken until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            snapshot, self._wanted = self._wanted, None
            if snapshot is not None:
                await self._write(snapshot)

    async def finish(self, snapshot: Snapshot) -> None:
        """The instance ends here, in order; the next one begins with this, if it is written within
        a few seconds."""
        if snapshot.seq <= self._last and self._wanted is None:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_LIMIT_S) as limit:
            await self._write(snapshot)
        if limit.cancelled_caught:
            log.warning("no snapshot was written at the end: it took too long")

    async def _write(self, snapshot: Snapshot) -> None:
        data = await self._aside(partial(encode_snapshot, snapshot))
        for store in self._stores:
            await self._tried(store, store.save(snapshot.seq, data))

    async def _tried(self, store: Snapshots, work: Awaitable[T]) -> T | None:
        """What comes of it. What a store can't do is told once, until it works again."""
        try:
            found = await work
        except (OSError, LogError, ConfigError) as error:
            if store.name not in self._failing:
                self._failing[store.name] = None
                log.warning("snapshots in %s can't be used: %s", store.where, _reason(error))
            return None
        self._failing.pop(store.name, None)
        return found

    async def _aside(self, work: Callable[[], T]) -> T:
        """Do it without holding up the event loop."""
        return await anyio.to_thread.run_sync(work)


def _reason(error: OSError | UnicronError) -> str:
    if isinstance(error, UnicronError):
        return f"{error.what}: {error.why}" if error.why else error.what
    return error.strerror or str(error)
