"""What goes over NATS beside the log: heartbeats, questions, orders said again. Nothing of it is
stored, and all of it may be lost."""

import contextlib
from collections.abc import Callable

from nats import errors as nats_errors
from nats.aio.msg import Msg

from unicron.controlplane.runtime.jetstream import Connection
from unicron.controlplane.runtime.jetstream.connection import cancellation_kept
from unicron.events import (
    Beat,
    DecodeError,
    NodeId,
    Recorded,
    TaskId,
    decode_beat,
    encode_beat,
    subjects,
)


class NatsBus:
    """Bus on a NATS connection, which stays the caller's to close."""

    def __init__(self, connection: Connection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster
        self.unreadable_beats = 0

    async def on_beats(self, handler: Callable[[Beat], None]) -> None:
        async def arrived(message: Msg) -> None:
            try:
                beat = decode_beat(message.data)
            except DecodeError:
                self.unreadable_beats += 1
            else:
                handler(beat)

        await self._subscribe(subjects.beat(self._cluster, NodeId(">")), arrived)

    async def on_asks(self, handler: Callable[[str], None]) -> None:
        everyone = subjects.ask(self._cluster, TaskId(">"))
        prefix = len(everyone) - 1

        async def arrived(message: Msg) -> None:
            handler(message.subject[prefix:])

        await self._subscribe(everyone, arrived)

    async def _subscribe(self, subject: str, arrived: Callable[[Msg], object]) -> None:
        client = self._connection.client
        await client.subscribe(subject, cb=arrived)  # type: ignore[arg-type]
        with cancellation_kept():
            await client.flush()  # in force from here on

    def on_connection(self, lost: Callable[[], None], back: Callable[[], None]) -> None:
        self._connection.listen(lost, back)

    async def send_beat(self, beat: Beat) -> None:
        """Say a heartbeat of a node that lives in this process. It may get lost."""
        subject = subjects.beat(self._cluster, beat.node)
        with contextlib.suppress(nats_errors.Error, OSError):
            await self._connection.client.publish(subject, encode_beat(beat))

    async def resend(self, decision: Recorded) -> bool:
        """Say a durable decision again as the server does: the raw bytes, with these headers."""
        headers = {
            "Nats-Msg-Id": decision.id,
            "Nats-Stream": subjects.stream_name(self._cluster),
            "Nats-Subject": decision.subject,
            "Nats-Sequence": str(decision.seq),
        }
        try:
            await self._connection.client.publish(
                subjects.order_of(decision.subject), decision.data, headers=headers
            )
        except (nats_errors.Error, OSError):
            return False
        return True
