"""Facts to the log and orders from it, over NATS: the only module here that knows nats-py.

The client's own reconnection is not used: a connection that breaks is thrown away with all that
is buffered in it and a new one is made, for ever. Nothing here raises into the caller; what goes
wrong is logged, once for each outage.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import MaxPayloadError

from unicron.events import codec, subjects
from unicron.events.envelope import Envelope
from unicron.events.ids import Sequence, TaskId
from unicron.worker_shim.identity import Identity
from unicron.worker_shim.publisher import RETRY_FIRST_S, RETRY_LAST_S, FactPublisher, TooLarge
from unicron.worker_shim.spool import Spool

log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_LIMIT_S = 5.0
_ACK_LIMIT_S = 2.0
_SEND_LIMIT_S = 0.5
_PING_INTERVAL_S = 2
_LOOK_S = 0.5
_CLOSE_LIMIT_S = 1.0
_CANCEL_S = 0.5
#: A server that takes facts and acknowledges none for so long may be cut off from the others of its
#: cluster: another one is tried, if there is one. They need about 5 s to agree on a new leader.
MOVE_AFTER_S = 8.0
#: Who had nothing to store for so long asks whether it could, where there are several servers; and
#: so often while it could not.
PROBE_S, PROBE_AGAIN_S = 4.0, 0.5

# Error codes of JetStream's API.
_MESSAGE_TOO_LARGE = 10054
_WRONG_LAST_SEQUENCE = 10071
#: Only who leads the stream refuses this, and nothing is stored.
_PROBE = {"Nats-Expected-Last-Sequence": str((1 << 63) - 1)}
# JetStream has one code for all that its store refuses; the text tells what it was.
_PER_SUBJECT = "maximum messages per subject exceeded"

#: Called with the order's sequence in the log and the order, in the transport's thread.
OnOrder = Callable[[Sequence, Envelope], None]


class _Ack(msgspec.Struct):
    """The log's answer to a publication."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


_ack_decoder = msgspec.json.Decoder(_Ack)


class Transport:
    """For a program with an event loop of its own, the agent. Made and used in one loop.

    `url`: address of the server, or of several of one cluster with commas between. `run` until
    cancelled; `flush` before that for a clean end.
    """

    def __init__(
        self,
        identity: Identity,
        url: str,
        on_order: OnOrder,
        wake: Callable[[], None] | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.identity = identity
        self.facts = FactPublisher(identity, self._store, wake, spool=spool)
        self.publish = self.facts.publish
        self.flush = self.facts.flush
        self._servers = url.split(",")
        random.shuffle(self._servers)  # or all would sit on the first one
        self._on_order = on_order
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._closed = asyncio.Event()
        self._refused_since: float | None = None
        self._asked_at = 0.0  # when the log was asked for something last, on the loop's clock
        self._outage_logged = False
        self._address: tuple[str, int] | None = None

    async def run(self) -> None:
        """Stay connected and deliver facts until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stay_connected(), name="connection")
            group.create_task(self.facts.run(), name="facts")

    async def ask(self) -> None:
        """Ask the leader to say our current orders again; lost if there is no connection."""
        for _, name in self.identity.orders:
            subject = subjects.ask(self.identity.cluster, TaskId(name))
            await self.send(subject, self.identity.client.encode())

    async def send(self, subject: str, data: bytes) -> None:
        """Send over core NATS at most once; does nothing without a connection."""
        client = self._client
        if client is None:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_SEND_LIMIT_S):
                await client.publish(subject, data)

    async def put(self, subject: str, data: bytes) -> str:
        """Store one message beside the log, where a subject takes no second one. "" once it is
        there, or why not."""
        client = self._client
        if client is None:
            return "there is no connection"
        try:
            reply = await _uncut(client.request(subject, data, timeout=_ACK_LIMIT_S))
            error = _ack_decoder.decode(reply.data).error
        except Exception as failed:
            return f"{type(failed).__name__} {failed}".rstrip()
        is_there = error is None or error.get("description") == _PER_SUBJECT
        return "" if is_there else f"refused: {error}"

    @property
    def is_connected(self) -> bool:
        return self._client is not None

    def server_address(self) -> tuple[str, int] | None:
        """(IP, port) of the server we are connected to, or were last; None before the first."""
        return self._address

    # --- Connection ------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        delay = RETRY_FIRST_S
        while True:
            client, closed = Client(), asyncio.Event()
            try:
                async with asyncio.timeout(_CONNECT_LIMIT_S):
                    await _uncut(self._connect(client, closed))
                delay = RETRY_FIRST_S
                self._client, self._closed, self._outage_logged = client, closed, False
                self._refused_since = None
                self._up.set()
                log.info("%s: connected to the log", self.identity.client)
                await self.ask()
                await self._until_closed(client, closed)
                self._log_outage("the connection to the log broke")
            except Exception as error:
                self._log_outage(f"no connection to the log: {type(error).__name__} {error}")
            finally:
                self._up.clear()
                self._client = None
                closed.set()
                self._servers.sort(key=_is_at(client))  # last comes the one that we had
                await _close_quietly(client)
            await asyncio.sleep(delay)
            delay = min(2 * delay, RETRY_LAST_S)

    async def _until_closed(self, client: Client, closed: asyncio.Event) -> None:
        """nats-py doesn't call closed_cb if the socket breaks while it closes with data unsent, as
        after this process was stopped for long: so look at the client now and then, too. And at
        whether the log can be reached from there, by asking what it refuses."""
        clock = asyncio.get_running_loop().time
        self._asked_at = clock() - random.uniform(0, PROBE_S)  # not all at once
        while not (closed.is_set() or client.is_closed):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await closed.wait()
            pause = PROBE_S if self._refused_since is None else PROBE_AGAIN_S
            if len(self._servers) > 1 and clock() - self._asked_at >= pause:
                ack = await self._answer(client, closed, b"", _PROBE)
                if isinstance(ack, _Ack):
                    self._judge(ack, closed)

    async def _connect(self, client: Client, closed: asyncio.Event) -> None:
        async def on_closed() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            if self._client is client:  # a refused subject, a slow consumer: nothing else shows it
                log.warning("%s: NATS: %s", self.identity.client, error)

        await client.connect(
            list(self._servers),
            name=self.identity.client,
            dont_randomize=True,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            ping_interval=_PING_INTERVAL_S,
            closed_cb=on_closed,
            error_cb=on_error,
        )
        self._address = _peer(client)
        for kind, name in self.identity.orders:
            await client.subscribe(
                subjects.order(self.identity.cluster, kind, name), cb=self._on_message
            )
        await client.flush(2)  # the server knows the subscriptions before we ask for orders

    def _log_outage(self, what: str) -> None:
        if not self._outage_logged:
            self._outage_logged = True
            log.warning("%s: %s; trying again until it works", self.identity.client, what)

    # --- Orders and facts ------------------------------------------------------------------------

    async def _on_message(self, message: Msg) -> None:
        """One order, as the server or the leader repeats it."""
        try:
            sequence = int((message.headers or {})["Nats-Sequence"])
        except (KeyError, ValueError):
            log.warning("ignored a message without a sequence on %s", message.subject)
            return
        entry = codec.decode(message.subject, message.data)
        if not isinstance(entry, Envelope):
            log.warning("ignored what can't be read at sequence %d: %s", sequence, entry)
            return
        try:
            self._on_order(Sequence(sequence), entry)
        except Exception:
            log.exception("%s: an order's handler failed", self.identity.client)

    async def _store(self, message_id: str, data: bytes) -> Sequence | str:
        """One publication to the stream, as the publisher wants it."""
        while self._client is None:
            await self._up.wait()
        client, closed = self._client, self._closed
        ack = await self._answer(client, closed, data, {"Nats-Msg-Id": message_id})
        if isinstance(ack, str):
            return ack
        # "Duplicate" is as good: the log has it, from an attempt whose answer was lost.
        if ack.error is None:
            self._refused_since = None
            return Sequence(ack.seq)
        refused = f"refused by the log: {ack.error}"
        if ack.error.get("err_code") == _MESSAGE_TOO_LARGE:
            return TooLarge(refused)
        self._judge(ack, closed)
        return refused

    async def _answer(
        self, client: Client, closed: asyncio.Event, data: bytes, headers: dict[str, str]
    ) -> _Ack | str:
        """What the log says to one publication, or why it says nothing."""
        self._asked_at = asyncio.get_running_loop().time()
        subject = subjects.fact(self.identity.cluster, self.identity.node)
        request = asyncio.ensure_future(
            client.request(subject, data, timeout=_ACK_LIMIT_S, headers=headers)
        )
        broken = asyncio.ensure_future(closed.wait())
        try:
            await asyncio.wait({request, broken}, return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                return "the connection broke before the answer"
            return _ack_decoder.decode(request.result().data)
        except MaxPayloadError:
            return TooLarge(f"{len(data)} bytes, the server takes {client.max_payload}")
        except Exception as error:
            self._not_stored(closed)
            return f"{type(error).__name__} {error}".rstrip()
        finally:
            request.cancel()
            broken.cancel()

    def _judge(self, refused: _Ack, closed: asyncio.Event) -> None:
        """Does who refused this lead the stream, or is the server cut off from the others?"""
        if (refused.error or {}).get("err_code") == _WRONG_LAST_SEQUENCE:
            self._refused_since = None
        else:
            self._not_stored(closed)

    def _not_stored(self, closed: asyncio.Event) -> None:
        """The server that we are connected to couldn't have it stored; if that goes on, leave it.
        Nothing else tells that it is cut off from the others: it answers our pings."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > MOVE_AFTER_S and len(self._servers) > 1:
            self._refused_since = None
            closed.set()


async def _uncut(work: Coroutine[Any, Any, T]) -> T:
    """Await it in a task of its own. nats-py waits with asyncio.wait_for; in Python 3.11 that loses
    a cancellation that comes together with the result, and whoever cancelled waits for ever."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task})
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_S)


def _is_at(client: Client) -> Callable[[str], bool]:
    """Says of an address whether it is that of the server that the client had, or tried, last."""
    server = client._current_server  # `connected_url` is empty once it is closed
    there = (server.uri.hostname, server.uri.port) if server is not None else None

    def is_there(address: str) -> bool:
        one = urlsplit(address)
        return (one.hostname, one.port or 4222) == there

    return is_there


def _peer(client: Client) -> tuple[str, int] | None:
    """Address of the connected socket; nats-py has no public door to it."""
    writer = getattr(client._transport, "_io_writer", None)
    peer = writer.get_extra_info("peername") if writer is not None else None
    if peer:
        return str(peer[0]), int(peer[1])
    url = client.connected_url
    return (url.hostname or "", url.port or 0) if url is not None else None


async def _close_quietly(client: Client) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await client.close()
    # What can't be sent any more keeps the socket open until the kernel gives up, in a quarter of
    # an hour; nobody waits for it.
    writer = getattr(client._transport, "_io_writer", None)
    if writer is not None:
        writer.transport.abort()
