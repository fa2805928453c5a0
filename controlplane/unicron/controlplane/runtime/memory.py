"""The log and the bus in memory: first class, for tests, for the simulator, for embedding a trial.

Several logs share one MemoryStream as several instances share a server. They keep the same
promises as the ones on JetStream; the contract suite runs over both.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Self

from unicron.controlplane.runtime.outcomes import Accepted, Conflict, Outcome, Unknown
from unicron.controlplane.runtime.ports import Hold
from unicron.events import Beat, LogBroken, Recorded, Sequence, record, subjects

_births = count(1)


class AckLoss(Enum):
    """What an append whose answer gets lost has done before."""

    STORED = "the event was stored"
    NOT_STORED = "the event never arrived"
    STORED_LATER = "it arrives when MemoryStream.deliver_late() is called"


class MemoryStream:
    """One cluster's entries, and its lease. `clock_ns`: the server's wall clock. `window_ns`: how
    long it knows an id again; None: for ever. `lease_ms`: how long a leader may be silent."""

    def __init__(
        self,
        cluster: str,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        window_ns: int | None = None,
        lease_ms: int = 2000,
    ) -> None:
        subjects.check_cluster(cluster)
        self.cluster = cluster
        self.birth = f"memory-{next(_births)}"
        self.hold = Hold()
        self.lease_ms = lease_ms
        self.entries: list[Recorded] = []
        self._ids: dict[str, int] = {}
        self._seq_ids: list[str] = []
        self._last_control = 0
        self._clock_ns = clock_ns
        self._window_ns = window_ns
        self._losses: deque[AckLoss] = deque()
        self._late: deque[tuple[str, bytes, str, int | None]] = deque()
        self._watchers: dict[asyncio.Event, None] = {}  # in the order in which they came

    # --- Hooks for tests -------------------------------------------------------------------------

    def lose_ack(self, loss: AckLoss, *, times: int = 1) -> None:
        """The next `times` appends end Unknown."""
        self._losses.extend([loss] * times)

    def deliver_late(self) -> list[Outcome]:
        """What was on its way arrives now, in order; what became of each."""
        outcomes = [self.store(*arguments) for arguments in self._late]
        self._late.clear()
        return outcomes

    def write_raw(self, subject: str, data: bytes) -> Recorded:
        """Store bytes as they are, without id or fence: advisories, foreign and broken events."""
        return self._put(subject, data, "")

    # --- The server's part -----------------------------------------------------------------------

    def append(self, subject: str, data: bytes, event_id: str, fence: int | None) -> Outcome:
        """One append, with the loss that was ordered for it."""
        if not self._losses:
            return self.store(subject, data, event_id, fence)
        loss = self._losses.popleft()
        if loss is AckLoss.STORED:
            self.store(subject, data, event_id, fence)
        elif loss is AckLoss.STORED_LATER:
            self._late.append((subject, data, event_id, fence))
        return Unknown(reason="the answer was lost")

    def store(self, subject: str, data: bytes, event_id: str, fence: int | None) -> Outcome:
        """Check fence and id, then store."""
        if fence is not None and fence != self._last_control:
            outcome = self.first_decision(event_id, fence)
            if isinstance(outcome, Unknown):  # the fence is beyond the log's end
                return Conflict(last_seq=Sequence(self._last_control))
            return outcome
        known = self._ids.get(event_id)
        if known is not None and self._remembers(known):
            return Accepted(seq=Sequence(known), duplicate=True)
        return Accepted(seq=self._put(subject, data, event_id).seq)

    def _remembers(self, seq: int) -> bool:
        """The entry lies within the duplicate window, which repetitions don't prolong."""
        age_ns = self._clock_ns() - self.entries[seq - 1].at_ns
        return self._window_ns is None or age_ns <= self._window_ns

    def _put(self, subject: str, data: bytes, event_id: str) -> Recorded:
        seq = len(self.entries) + 1
        entry = record(seq, subject, data, self._clock_ns())
        self.entries.append(entry)
        self._seq_ids.append(event_id)
        if event_id:
            self._ids[event_id] = seq
        if subjects.tree_of(subject) == "control":
            self._last_control = seq
        for watcher in self._watchers:
            watcher.set()
        return entry

    def first_decision(self, event_id: str, after: int) -> Outcome:
        """What the first event of the control tree after `after` says about an append."""
        for entry in self.entries[after:]:
            if subjects.tree_of(entry.subject) == "control":
                if self.id_at(entry.seq) == event_id:
                    return Accepted(seq=entry.seq, duplicate=True)
                return Conflict(last_seq=Sequence(self._last_control))
        return Unknown(reason=f"nothing stands after {after} so far")

    def id_at(self, seq: int) -> str:
        """Message id of the entry at `seq`."""
        return self._seq_ids[seq - 1]

    @property
    def last_control_seq(self) -> int:
        """Sequence of the last entry of the control tree."""
        return self._last_control

    def put_lease(self, holder: str, after: Hold) -> Hold | None:
        """The lease changes hands, unless it did already."""
        if self.hold.revision != after.revision:
            return None
        self.hold = Hold(holder, after.revision + 1)
        return self.hold

    def watch(self, event: asyncio.Event) -> Callable[[], None]:
        """Set `event` on every entry. Returns what ends that."""
        self._watchers[event] = None
        return lambda: self._watchers.pop(event, None)


class MemoryLease:
    """Lease on a MemoryStream, for all instances on it."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream

    @property
    def limit_ms(self) -> int:
        return self._stream.lease_ms

    async def look(self) -> Hold:
        await asyncio.sleep(0)
        return self._stream.hold

    async def put(self, holder: str, after: Hold) -> Hold | None:
        await asyncio.sleep(0)
        return self._stream.put_lease(holder, after)


class MemoryTail:
    """Tail over a MemoryStream."""

    def __init__(
        self, stream: MemoryStream, from_seq: int, forget: Callable[["MemoryTail"], None]
    ) -> None:
        self._stream = stream
        self._next = max(from_seq, 1)
        self._forget = forget
        self._wake = asyncio.Event()
        self._unwatch = stream.watch(self._wake)
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Recorded:
        while not self._closed:
            entries = self._stream.entries
            if self._next <= len(entries):
                self._next += 1
                return entries[self._next - 2]
            if self._next > len(entries) + 1:
                raise LogBroken(
                    f"the log of {self._stream.cluster} ends at {len(entries)}, "
                    f"before {self._next}",
                    first_wrong=len(entries) + 1,
                    why="it isn't the log that the reader knows",
                    fix="start from this log's beginning",
                    code="E-LOG-SHORT",
                )
            self._wake.clear()
            await self._wake.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._closed = True
        self._unwatch()
        self._forget(self)
        self._wake.set()


class MemoryLog:
    """EventLog on a MemoryStream."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self._tails: set[MemoryTail] = set()

    @property
    def cluster(self) -> str:
        return self.stream.cluster

    async def append(
        self, subject: str, data: bytes, event_id: str, *, fence: int | None
    ) -> Outcome:
        is_control = subjects.tree_of(subject) == "control"
        assert is_control == (fence is not None), "control needs a fence, and nothing else has one"
        await asyncio.sleep(0)  # as with any server, others may come in between
        return self.stream.append(subject, data, event_id, fence)

    async def resolve(self, event_id: str, subject: str, *, after: int) -> Outcome:
        await asyncio.sleep(0)
        if subjects.tree_of(subject) == "control":
            return self.stream.first_decision(event_id, after)
        for entry in self.stream.entries[after:]:
            if entry.subject == subject and self.stream.id_at(entry.seq) == event_id:
                return Accepted(seq=entry.seq, duplicate=True)
        return Unknown(reason=f"not among the entries after {after} so far")

    def read(self, from_seq: int) -> MemoryTail:
        tail = MemoryTail(self.stream, from_seq, self._tails.discard)
        self._tails.add(tail)
        return tail

    async def get(self, seq: int) -> Recorded | None:
        entries = self.stream.entries
        return entries[seq - 1] if 0 < seq <= len(entries) else None

    async def last_seq(self) -> Sequence:
        return Sequence(len(self.stream.entries))

    async def last_control_seq(self) -> Sequence:
        return Sequence(self.stream.last_control_seq)

    async def first_missing(self, upto: int) -> Sequence:
        return Sequence(0)  # nobody removes any

    async def birth(self) -> str:
        return self.stream.birth

    def lease(self) -> MemoryLease:
        return MemoryLease(self.stream)

    async def close(self) -> None:
        for tail in list(self._tails):
            await tail.aclose()


class MemorySnapshots:
    """Snapshots in memory, which all instances of a cluster may share; the newest `keep` of them.
    `kept`: their bytes."""

    name = where = "memory"

    def __init__(self, keep: int = 2) -> None:
        self.kept: dict[Sequence, bytes] = {}
        self._keep = keep

    async def known(self) -> list[Sequence]:
        return list(self.kept)

    async def load(self, seq: Sequence) -> bytes | None:
        return self.kept.get(seq)

    async def save(self, seq: Sequence, data: bytes) -> None:
        self.kept[seq] = data
        for old in sorted(self.kept)[: -self._keep]:
            del self.kept[old]


class MemoryBus:
    """Bus in memory: beat(), ask(), lose() and come_back() play the other side; `orders` holds
    what was said again."""

    def __init__(self) -> None:
        self.orders: list[Recorded] = []
        self._beats: list[Callable[[Beat], None]] = []
        self._asks: list[Callable[[str], None]] = []
        self._connection: list[tuple[Callable[[], None], Callable[[], None]]] = []

    async def on_beats(self, handler: Callable[[Beat], None]) -> None:
        self._beats.append(handler)

    async def on_asks(self, handler: Callable[[str], None]) -> None:
        self._asks.append(handler)

    def on_connection(self, lost: Callable[[], None], back: Callable[[], None]) -> None:
        self._connection.append((lost, back))

    async def resend(self, decision: Recorded) -> bool:
        self.orders.append(decision)
        return True

    def beat(self, beat: Beat) -> None:
        """A heartbeat arrives."""
        for handler in self._beats:
            handler(beat)

    def ask(self, name: str) -> None:
        """Someone asks for the orders of a task or node."""
        for handler in self._asks:
            handler(name)

    def lose(self) -> None:
        """The connection breaks."""
        for lost, _ in self._connection:
            lost()

    def come_back(self) -> None:
        """The connection is up again."""
        for _, back in self._connection:
            back()
