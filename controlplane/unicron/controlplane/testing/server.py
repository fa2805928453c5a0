"""The log's server: one stream, republished decisions, connection advisories, beats and questions.

Its semantics are JetStream's: an id is known again within the duplicate window only, the fence is
checked first, an answer may be lost after the work was done, orders are said at most once.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from unicron.controlplane.runtime.memory import MemoryStream
from unicron.controlplane.runtime.outcomes import Outcome
from unicron.controlplane.testing.network import ALL, SOME, Link
from unicron.controlplane.testing.virtual import EPOCH_NS
from unicron.events import Beat, Recorded, subjects


class Subscriber(Protocol):
    """A process that hears orders."""

    link: Link

    def hears(self, subject: str) -> bool:
        """Is the order subject one of those it subscribed to?"""
        ...

    def hear(self, order: Recorded) -> None:
        """An order arrives."""
        ...


class Listener(Protocol):
    """A control-plane instance."""

    link: Link

    def stored(self, seq: int) -> None:
        """The log has grown up to there."""
        ...

    def beat(self, beat: Beat) -> None:
        """A heartbeat arrives."""
        ...

    def ask(self, name: str) -> None:
        """Somebody asks for the orders of a task or node."""
        ...


def advisory(kind: str, client: str, number: int, *, after: int) -> bytes:
    """The server's own report that a client's connection came ("connect") or went ("disconnect"),
    as it writes it. `after`: how many entries stand in the log before it."""
    report = {
        "type": f"io.nats.server.advisory.v1.client_{kind}",
        "timestamp": f"2026-01-01T00:00:00.{after:09}Z",
        "server": {"id": "s"},
        "client": {"id": number, "name": client},
        "reason": "Client Closed" if kind == "disconnect" else "",
    }
    return msgspec.json.encode(report)


class Server:
    """`on_stored` sees every entry at the moment it is stored."""

    def __init__(
        self, cluster: str, on_stored: Callable[[Recorded], None], *, window_ms: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.cluster = cluster
        self.stream = MemoryStream(cluster, clock_ns=self.clock_ns, window_ns=window_ms * 1_000_000)
        self.subscribers: dict[str, Subscriber] = {}
        self.listeners: list[Listener] = []
        self._on_stored = on_stored
        self._connections: dict[int, str] = {}
        self._clients = 0

    def clock_ns(self) -> int:
        return EPOCH_NS + 1000 * round(self._loop.time() * 1e6)

    # --- The stream ---------------------------------------------------------------------------

    def store(self, subject: str, data: bytes, event_id: str, fence: int | None) -> Outcome:
        before = len(self.stream.entries)
        outcome = self.stream.store(subject, data, event_id, fence)
        self._after(before)
        return outcome

    def write_raw(self, subject: str, data: bytes) -> None:
        """Bytes as they are: an advisory, a repetition that was stored, an unknown event."""
        before = len(self.stream.entries)
        self.stream.write_raw(subject, data)
        self._after(before)

    def _after(self, before: int) -> None:
        for entry in self.stream.entries[before:]:
            self._on_stored(entry)
            for listener in self.listeners:
                listener.link.back(partial(listener.stored, entry.seq), loss=SOME)
            if subjects.tree_of(entry.subject) == "control":
                self.republish(entry)

    def republish(self, order: Recorded) -> None:
        """Say a durable decision to whoever listens; at most once."""
        subject = subjects.order_of(order.subject)
        for subscriber in list(self.subscribers.values()):
            if subscriber.hears(subject):
                subscriber.link.back(partial(subscriber.hear, order), loss=ALL)

    # --- Beside the stream --------------------------------------------------------------------

    def beat(self, beat: Beat) -> None:
        for listener in self.listeners:  # already late enough: no second delay
            if not listener.link.loses(ALL):
                listener.beat(beat)

    def ask(self, name: str) -> None:
        for listener in self.listeners:
            listener.link.back(partial(listener.ask, name), loss=ALL)

    def connected(self, client: str) -> int:
        """A client has connected; the number of its connection."""
        self._clients += 1
        self._connections[self._clients] = client
        self._advise("connect", client, self._clients)
        return self._clients

    def disconnected(self, number: int) -> None:
        """A connection is closed, or nobody has answered on it for too long."""
        client = self._connections.pop(number, "")
        if client:
            self._advise("disconnect", client, number)

    def _advise(self, kind: str, client: str, number: int) -> None:
        data = advisory(kind, client, number, after=len(self.stream.entries))
        self.write_raw(subjects.advisory(self.cluster, kind), data)
