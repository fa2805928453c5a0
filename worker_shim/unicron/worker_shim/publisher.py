"""Facts of one source, numbered and delivered in order; apart from the network they go over.

A fact gets its number and lies in the spool before `publish` returns. Facts are delivered strictly
one after the other: the next one is sent only when the log has acknowledged the one before, which
is repeated under the same message id until then. So the stream holds them in the order of their
counters without a hole, whatever happens to the connection, the server or an acknowledgement.
(Pipelining can't promise that: a message refused for a moment would be overtaken by the next one.
And with one in flight each, thousands of sources leave room in the server's queue for the rest.)
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from unicron.events import codec
from unicron.events.envelope import Envelope, Source, event_id
from unicron.events.ids import IncidentId, Sequence
from unicron.events.union import AnyFact
from unicron.worker_shim import dropped, evidence
from unicron.worker_shim.identity import Identity
from unicron.worker_shim.spool import NoSpool, Spool, SpooledFact, read_fact

log = logging.getLogger(__name__)

#: Facts of the source, and their bytes, that wait while the log is away, in memory and in the
#: spool. The oldest are the evidence: what comes when it is full is dropped, before it gets a
#: number, until there is room again. Then a fact says how many of which kinds those were.
SPOOL_LIMIT = 10_000
SPOOL_LIMIT_BYTES = 8 * 1024 * 1024
#: A spool that was full takes facts again when it is full to this part.
_ROOM_AGAIN = 0.9

#: Texts in a fact larger than this are cut; one that is too large still is dropped.
FACT_LIMIT_BYTES = 512 * 1024

#: Pause before the next attempt, growing from the first to the last.
RETRY_FIRST_S, RETRY_LAST_S = 0.02, 1.0
#: If more facts than BURST wait and an acknowledgement takes longer than this, the log's server is
#: busy: pause for twice as long before the next one. It stays as busy, but what others have to say,
#: such as the news of a lost node, comes through a queue a third as long.
SLOW_ACK_S = 0.05
BURST = 16
#: After so many failed attempts each, a spool that could not be written is tried again.
_HEAL_EVERY = 30


class TooLarge(str):
    """Why the log can never take this message: to try again is of no use."""

    __slots__ = ()


#: One attempt to store (message id, bytes); waits for a connection first. The sequence at which the
#: log has it, or why that isn't known. Never raises.
Attempt = Callable[[str, bytes], Awaitable[Sequence | str]]


class _Message:
    """A fact on its way. `stored`: called once the log has it; None for our own."""

    __slots__ = ("data", "done", "id", "is_own", "stored")

    def __init__(
        self, message_id: str, data: bytes, stored: Callable[[], None] | None = None
    ) -> None:
        self.id = message_id
        self.data = data
        self.is_own = stored is None
        self.stored = stored
        self.done = asyncio.Event()


class FactPublisher:
    """Numbers the facts of one source from 1 and delivers them, for as long as it lives."""

    def __init__(
        self,
        identity: Identity,
        attempt: Attempt,
        wake: Callable[[], None] | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
        spool: Spool | None = None,
    ) -> None:
        """`wake`: for a publisher that is used from other threads, how to have `there_is_work`
        called in its loop. `clock_ns`: wall time, for people. `spool`: without one, what waits is
        lost with the process."""
        self._identity = identity
        self._attempt = attempt
        self._clock_ns = clock_ns
        self._spool = spool or NoSpool()
        self._lock = threading.Lock()  # numbers, queue and spool go together
        self._queue: deque[_Message] = deque()
        self._own, self._own_bytes = 0, 0
        self._work = asyncio.Event()
        self._wake = wake or self._work.set
        self._counter = 0
        self._gap: dropped.Gap | None = None
        self.refused = 0

    def publish(
        self,
        fact: AnyFact,
        cause: tuple[Sequence, ...] = (),
        incident: IncidentId | None = None,
    ) -> bool:
        """Take the fact for delivery; waits for nothing but the spool. False: the fact is lost,
        because the spool is full or because it can't be sent. The log will be told that."""
        with self._lock:
            taken = self._take(fact, cause, incident)
        self._wake()
        return taken

    def adopt(self, fact: SpooledFact, stored: Callable[[], None]) -> None:
        """Deliver a fact of a source that can't do it any more, after what waits already and before
        what comes. `stored` is called in the loop once the log has it; until then it stays where
        the caller has it."""
        with self._lock:
            self._queue.append(_Message(event_id(fact.source), fact.data, stored))
        self._wake()

    def there_is_work(self) -> None:
        """To be called in the loop's thread after `publish`."""
        self._work.set()

    @property
    def waiting(self) -> int:
        """Facts not acknowledged yet, adopted ones too."""
        return len(self._queue)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all facts taken so far are in the log. False: not within the limit."""
        try:
            last = self._queue[-1]
        except IndexError:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await last.done.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Deliver until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._work.wait()
            self._work.clear()
            while self._queue:
                message = self._queue[0]
                start = loop.time()
                await self._deliver(message)
                took_s = loop.time() - start
                with self._lock:
                    self._delivered()
                message.done.set()
                if message.stored is not None:
                    message.stored()
                if took_s > SLOW_ACK_S and len(self._queue) > BURST:
                    await asyncio.sleep(min(2 * took_s, RETRY_LAST_S))

    def close(self) -> None:
        """The process ends in order: what waits is left to others, in the spool."""
        with self._lock:
            self._spool.close()

    # --- Taking, under the lock -------------------------------------------------------------------

    def _take(
        self, fact: AnyFact, cause: tuple[Sequence, ...], incident: IncidentId | None
    ) -> bool:
        if not self._has_room():
            self._drop(fact, f"the log was away and {self._own} facts waited already")
            return False
        self._tell_of_gap()
        source = self._next()
        at_ns = self._clock_ns()
        envelope = Envelope(
            id=event_id(source),
            source=source,
            written_at_ns=at_ns,
            body=fact,
            cause=cause,
            incident=incident,
        )
        data = _encoded(envelope, fact)
        if isinstance(data, str):
            self._drop(fact, data)
            self._tell_of_gap()
            return False
        self._append(data)
        return True

    def _has_room(self) -> bool:
        part = 1.0 if self._gap is None else _ROOM_AGAIN
        return self._own < SPOOL_LIMIT * part and self._own_bytes < SPOOL_LIMIT_BYTES * part

    def _next(self) -> Source:
        return Source(
            who=self._identity.who,
            incarnation=self._identity.incarnation,
            counter=self._counter + 1,
        )

    def _append(self, data: bytes) -> None:
        source = self._next()
        self._counter = source.counter
        self._own += 1
        self._own_bytes += len(data)
        self._spool.append(data)
        self._queue.append(_Message(event_id(source), data))

    def _drop(self, fact: AnyFact, why: str) -> None:
        self.refused += 1
        if self.refused == 1 or self.refused % 1000 == 0:
            log.error("%s is lost (%d so far): %s", type(fact).__name__, self.refused, why)
        if self._gap is None:
            self._gap = dropped.Gap(self._counter)
        self._gap.add(fact, why, self._clock_ns())
        if self._gap.count.bit_count() == 1:  # for who reads the spool if we get no further
            self._spool.append(self._gap_told())

    def _tell_of_gap(self) -> None:
        if self._gap is not None:
            data, self._gap = self._gap_told(), None
            self._append(data)

    def _gap_told(self) -> bytes:
        assert self._gap is not None
        source = self._next()
        return codec.encode(
            Envelope(
                id=event_id(source),
                source=source,
                written_at_ns=self._clock_ns(),
                body=self._gap.fact(source),
            )
        )

    def _delivered(self) -> None:
        message = self._queue.popleft()
        if not message.is_own:
            return
        self._own -= 1
        self._own_bytes -= len(message.data)
        if self._gap is not None and self._has_room():
            self._tell_of_gap()
        if not self._own:
            self._spool.keep(())
        elif self._spool.size > 2 * SPOOL_LIMIT_BYTES:
            self._spool.keep(m.data for m in self._queue if m.is_own)

    # --- Delivery ---------------------------------------------------------------------------------

    async def _deliver(self, message: _Message) -> None:
        delay, attempts = RETRY_FIRST_S, 0
        data = message.data
        while isinstance(outcome := await self._attempt(message.id, data), str):
            attempts += 1
            if attempts in (1, 10, 100):
                log.warning("%s isn't in the log yet, trying on: %s", message.id, outcome)
            if isinstance(outcome, TooLarge) and data is message.data:
                data = _in_place_of(message, outcome)
                continue
            if attempts % _HEAL_EVERY == 0 and self._spool.behind:
                with self._lock:
                    self._spool.keep(m.data for m in self._queue if m.is_own)
            await asyncio.sleep(delay)
            delay = min(2 * delay, RETRY_LAST_S)


def _encoded(envelope: Envelope, fact: AnyFact) -> bytes | str:
    """Its bytes, with long texts cut if they are too many; or why it can't be sent."""
    try:
        data = codec.encode(envelope)
        if len(data) > FACT_LIMIT_BYTES:
            log.warning("%s has %d bytes: its texts are cut", envelope.id, len(data))
            envelope = msgspec.structs.replace(envelope, body=evidence.shortened(fact))
            data = codec.encode(envelope)
    except Exception as error:
        return f"it can't be encoded: {error}"
    if len(data) > FACT_LIMIT_BYTES:
        return f"it has {len(data)} bytes, the limit is {FACT_LIMIT_BYTES}"
    return data


def _in_place_of(message: _Message, why: str) -> bytes:
    """What is sent under its number instead, so that the facts behind it can follow."""
    log.error("%s is lost: %s", message.id, why)
    fact = read_fact(message.data)
    assert fact is not None, "it was encoded here, or read as a fact"
    return dropped.in_place_of(fact, why).data
