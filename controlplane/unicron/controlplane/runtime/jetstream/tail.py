"""Reading on: a push consumer of our own that never skips an entry.

nats-py's ordered consumer resumes only after 15 to 20 s when the server was restarted and loses
entries when its queue overflows. This one checks every sequence, opens a new consumer at the next
one wanted on any gap, missed heartbeat or reconnect, and answers the server's flow control only
when the entries before it were taken, so that a slow reader slows the server down.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

import msgspec
from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from unicron.controlplane.runtime.jetstream.connection import ApiRefused, Connection, NoAnswer
from unicron.events import LogBroken, Recorded, record, subjects

_HEARTBEAT_S = 1
_PATIENCE_S = 2.5 * _HEARTBEAT_S  # two heartbeats may be missed
_ABANDONED_AFTER_S = 5  # the server removes a consumer that nobody listens to
_LOOK_AFTER = 5  # heartbeats in a row
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_DELETE_LIMIT_S = 0.5
#: How the reply subject of an entry begins; what the server has to say itself has another or none.
_ENTRY = "$JS.ACK."


class _Log(Protocol):
    """What a tail asks of its log."""

    @property
    def cluster(self) -> str: ...

    async def get(self, seq: int) -> Recorded | None: ...

    async def check_reaches(self, from_seq: int) -> None: ...


class _Created(msgspec.Struct, frozen=True):
    name: str


class JetStreamTail:
    """Entries in strict order from one sequence on; one reader at a time."""

    def __init__(
        self,
        connection: Connection,
        log: _Log,
        from_seq: int,
        *,
        forget: Callable[["JetStreamTail"], None],
    ) -> None:
        self._connection = connection
        self._log = log
        self._next = max(from_seq, 1)
        self._last: Recorded | None = None
        self._forget = forget
        self._stream = subjects.stream_name(log.cluster)
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._stale = True  # there is no consumer, or none that can be trusted
        self._closed = False
        self._heartbeats = 0  # since the last entry
        self._consumer = ""
        self._subscription: Subscription | None = None
        self._unlisten = connection.listen(self._wake.set, self._reopen)
        self.reopened = -1  # how often the consumer had to be made again; for tests and metrics

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Recorded:
        while not self._closed:
            if self._stale:
                await self._open()
            elif self._arrived:
                entry = await self._take(self._arrived.popleft())
                if entry is not None:
                    return entry
            else:
                await self._wait()
        raise StopAsyncIteration

    def _reopen(self) -> None:
        self._stale = True
        self._wake.set()

    async def _wait(self) -> None:
        """Until something arrives. Silence beyond the heartbeats means that it is cut off."""
        if self._connection.is_closed:
            raise self._connection.closed_error()
        self._wake.clear()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._wake.wait()
        except TimeoutError:
            self._stale = True

    async def _take(self, message: Msg) -> Recorded | None:
        """The entry in the message if it is the one wanted next."""
        if not message.reply.startswith(_ENTRY):  # whatever its headers are: others write them
            await self._control(message, message.headers or {})
            return None
        # $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.<seq>.<number>.<ns>.<pending>
        tokens = message.reply.split(".")
        shift = 0 if len(tokens) == 9 else 2
        seq, at_ns = int(tokens[5 + shift]), int(tokens[7 + shift])
        if seq == self._next:
            self._next += 1
            self._heartbeats = 0
            self._last = record(seq, message.subject, message.data, at_ns)
            return self._last
        if seq > self._next:
            await self._gap(seq)
        return None

    async def _control(self, message: Msg, headers: dict[str, str]) -> None:
        """A heartbeat or a flow control request stands in line with the entries."""
        if "Nats-Last-Stream" in headers:  # heartbeat: the last sequence that was sent to us
            if int(headers["Nats-Last-Stream"]) >= self._next:
                self._stale = True
            if stalled := headers.get("Nats-Consumer-Stalled"):
                await self._answer(stalled)
            self._heartbeats += 1
            if self._heartbeats % _LOOK_AFTER == 0:
                await self._look()
        elif message.reply:
            await self._answer(message.reply)

    async def _look(self) -> None:
        """Nothing has come for long. A server that was cut off from the others sends heartbeats all
        the same, but answers nothing about the stream: then the connection moves to another one."""
        with contextlib.suppress(NoAnswer, ApiRefused):
            await self._log.check_reaches(self._next)

    async def _answer(self, flow_control: str) -> None:
        with contextlib.suppress(nats_errors.Error, OSError):  # a lost one shows as silence
            await self._connection.client.publish(flow_control)

    async def _gap(self, seq: int) -> None:
        """LogBroken if the entry wanted next isn't in the log; else only its delivery was lost."""
        try:
            missing = await self._log.get(self._next) is None
        except (NoAnswer, ApiRefused):
            missing = False  # can't tell: opening again will
        if missing:
            raise LogBroken(
                f"the log of {self._log.cluster} has no event {self._next}, but it has {seq}",
                first_wrong=self._next,
                why="events were removed from the stream",
                fix="restore the stream from a replica or backup",
                code="E-LOG-GAP",
            )
        self._stale = True

    async def _check_same(self) -> None:
        """LogBroken if what was read last isn't what stands there now: an older copy of the store
        may have grown beyond it meanwhile."""
        last = self._last
        if last is None:
            return
        try:
            now = await self._log.get(last.seq)
        except ApiRefused:
            now = None
        if now is None:  # can't tell; the next look may
            return
        if (now.subject, now.data) != (last.subject, last.data):
            raise LogBroken(
                f"the log of {self._log.cluster} has another event {last.seq} than was read there",
                first_wrong=last.seq,
                why="it lost its end, and went on otherwise",
                fix="restore the stream from a replica or backup; don't go on with this one",
                code="E-LOG-CHANGED",
            )

    async def _open(self) -> None:
        """A new consumer at the entry wanted next; tries until there is one."""
        pause_s = _FIRST_PAUSE_S
        while self._stale and not self._closed:
            if self._connection.is_closed:
                raise self._connection.closed_error()
            self._stale = False  # set again by whatever happens meanwhile
            try:
                await self._drop()
                await self._log.check_reaches(self._next)
                await self._check_same()
                await self._subscribe()
                self.reopened += 1
                return
            except (NoAnswer, nats_errors.Error, OSError):
                self._stale = True
                self._wake.clear()
                with contextlib.suppress(TimeoutError):  # or until the connection is back
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _subscribe(self) -> None:
        client = self._connection.client
        inbox = client.new_inbox()
        arrived, wake = deque[Msg](), self._wake

        async def arrive(message: Msg) -> None:
            arrived.append(message)
            wake.set()

        # A queue of its own for each consumer: what an old one still sends is never mixed in.
        self._arrived = arrived
        self._subscription = await client.subscribe(inbox, cb=arrive)
        self._consumer = f"tail-{secrets.token_hex(6)}"
        second = 1_000_000_000
        request = {
            "stream_name": self._stream,
            "config": {
                "name": self._consumer,
                "deliver_subject": inbox,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": self._next,
                "ack_policy": "none",
                "max_deliver": 1,
                "flow_control": True,
                "idle_heartbeat": _HEARTBEAT_S * second,
                "inactive_threshold": _ABANDONED_AFTER_S * second,
                "mem_storage": True,
                "num_replicas": 1,
            },
        }
        operation = f"CONSUMER.CREATE.{self._stream}.{self._consumer}"
        await self._connection.api(operation, request, _Created)

    async def _drop(self) -> None:
        """Let go of the subscription; the server removes its consumer by itself."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(nats_errors.Error, OSError):
                await subscription.unsubscribe()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        self._unlisten()
        self._forget(self)
        await self._drop()
        if self._consumer and self._connection.client.is_connected:
            operation = f"CONSUMER.DELETE.{self._stream}.{self._consumer}"
            with contextlib.suppress(NoAnswer, ApiRefused):
                await self._connection.api(operation, None, dict, limit_s=_DELETE_LIMIT_S)
