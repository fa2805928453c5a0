"""nats-py's client where it would stand still: on a broken connection, on what others wrote."""

from nats.aio.client import Client
from nats.aio.msg import Msg


class SteadyClient(Client):
    """Leaves a broken connection at once. nats-py would wait until all that was to be sent on it is
    sent, or until the kernel gives up, in a quarter of an hour. And it bears whatever others write:
    nats-py would leave the connection, and meet the same message again on the next one."""

    async def _attempt_reconnect(self) -> None:
        self.abort()
        await super()._attempt_reconnect()

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):  # no text, or not even a line
            return None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        made: Msg = super()._build_message(sid, as_told(subject), reply, data, headers)
        return made

    def abort(self) -> None:
        """Close the socket with what is unsent."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


def as_told(subject: bytes) -> bytes:
    """A subject as the server's API tells it: each byte that is no UTF-8 is a U+FFFD."""
    try:
        subject.decode()
    except UnicodeDecodeError:
        text = subject.decode(errors="surrogateescape")
        return "".join("\ufffd" if "\udc80" <= c <= "\udcff" else c for c in text).encode()
    return subject
