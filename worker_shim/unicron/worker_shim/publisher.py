"""Facts of one source, numbered and delivered in order; apart from the network they go over.

They are delivered strictly one after the other: the next one is sent only when the log has
acknowledged the one before, which is repeated under the same message id until then. So the
stream holds them in the order of their counters without a hole, whatever happens to the
connection, the server or an acknowledgement. (Pipelining can't promise that: a message refused
for a moment would be overtaken by the next one.)
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable

from unicron.events import codec
from unicron.events.envelope import Envelope, Source, event_id
from unicron.events.ids import IncidentId, Sequence
from unicron.events.union import AnyFact
from unicron.worker_shim.identity import Identity

log = logging.getLogger(__name__)

#: Facts waiting in memory while the log is away. One more is refused and logged, before it gets
#: a number: the numbers in the log stay without a hole, and the oldest facts are the evidence.
SPOOL_LIMIT = 10_000

#: A fact larger than this is a mistake of ours; it is refused like one too many.
FACT_LIMIT_BYTES = 512 * 1024

#: Pause before the next attempt, growing from the first to the last.
RETRY_FIRST_S, RETRY_LAST_S = 0.02, 1.0

#: One attempt to store (message id, bytes); waits for a connection first. The sequence at which the
#: log has it, or why that isn't known. Never raises.
Attempt = Callable[[str, bytes], Awaitable[Sequence | str]]


class _Waiting:
    """A fact in the spool. It gets its number and bytes when its turn comes."""

    def __init__(
        self,
        fact: AnyFact,
        cause: tuple[Sequence, ...],
        incident: IncidentId | None,
        written_at_ns: int,
    ) -> None:
        self.fact = fact
        self.cause = cause
        self.incident = incident
        self.written_at_ns = written_at_ns
        self.done = asyncio.Event()


class FactPublisher:
    """Numbers the facts of one source from 1 and delivers them, for as long as it lives."""

    def __init__(
        self,
        identity: Identity,
        attempt: Attempt,
        wake: Callable[[], None] | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`wake`: for a publisher that is used from other threads, how to have `there_is_work`
        called in its loop. `clock_ns`: wall time, for people."""
        self._identity = identity
        self._attempt = attempt
        self._clock_ns = clock_ns
        self._spool: deque[_Waiting] = deque()
        self._work = asyncio.Event()
        self._wake = wake or self._work.set
        self._counter = 0
        self._born_at: Sequence | None = None
        self.refused = 0

    def publish(
        self,
        fact: AnyFact,
        cause: tuple[Sequence, ...] = (),
        incident: IncidentId | None = None,
    ) -> bool:
        """Take the fact for delivery; never blocks. False: the spool is full, the fact is lost."""
        if len(self._spool) >= SPOOL_LIMIT:
            self._refuse(fact, f"{SPOOL_LIMIT} facts wait for the log already")
            return False
        self._spool.append(_Waiting(fact, cause, incident, self._clock_ns()))
        self._wake()
        return True

    def there_is_work(self) -> None:
        """To be called in the loop's thread after `publish`."""
        self._work.set()

    @property
    def waiting(self) -> int:
        """Facts not acknowledged yet."""
        return len(self._spool)

    def concerns(self, order: Sequence) -> bool:
        """Whether an order at this sequence can be meant for this life: its first fact is in the
        log, and before the order. An order to an earlier life that is heard late must not be obeyed
        by one that has no memory of it."""
        return self._born_at is not None and order > self._born_at

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all facts taken so far are in the log. False: not within the limit."""
        if not self._spool:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._spool[-1].done.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._spool:
                waiting = self._spool[0]
                message = self._number(waiting)
                if message is not None:
                    await self._deliver(*message)
                self._spool.popleft()
                waiting.done.set()

    def _number(self, waiting: _Waiting) -> tuple[str, bytes] | None:
        """Message id and bytes; None if the fact can't be sent, which uses up no number."""
        source = Source(
            who=self._identity.who,
            incarnation=self._identity.incarnation,
            counter=self._counter + 1,
        )
        envelope = Envelope(
            id=event_id(source),
            source=source,
            written_at_ns=waiting.written_at_ns,
            body=waiting.fact,
            cause=waiting.cause,
            incident=waiting.incident,
        )
        try:
            data = codec.encode(envelope)
        except Exception as error:
            self._refuse(waiting.fact, f"it can't be encoded: {error}")
            return None
        if len(data) > FACT_LIMIT_BYTES:
            self._refuse(waiting.fact, f"it has {len(data)} bytes, the limit is {FACT_LIMIT_BYTES}")
            return None
        self._counter += 1
        return envelope.id, data

    async def _deliver(self, message_id: str, data: bytes) -> None:
        delay, attempts = RETRY_FIRST_S, 0
        while isinstance(outcome := await self._attempt(message_id, data), str):
            attempts += 1
            if attempts in (1, 10, 100):
                log.warning("%s isn't in the log yet, trying on: %s", message_id, outcome)
            await asyncio.sleep(delay)
            delay = min(2 * delay, RETRY_LAST_S)
        if self._born_at is None:
            self._born_at = outcome

    def _refuse(self, fact: AnyFact, why: str) -> None:
        self.refused += 1
        if self.refused == 1 or self.refused % 1000 == 0:
            log.error("%s is lost (%d so far): %s", type(fact).__name__, self.refused, why)
