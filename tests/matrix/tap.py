"""A cable between NATS clients and their server that reads what goes over it, and holds a chosen
message for as long as a test wants: so a process can be hit at exactly one step."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

_LINE_MAX = 1 << 20
_ID = re.compile(rb"Nats-Msg-Id: *([^\r\n]+)", re.IGNORECASE)


class Frame(NamedTuple):
    """One protocol message. `up`: from a client to the server."""

    up: bool
    raw: bytes
    subject: str = ""
    reply: str = ""
    payload: bytes = b""

    @property
    def id(self):
        """The message id that a publication asks for."""
        found = _ID.search(self.raw)
        return found.group(1).strip().decode() if found else ""

    def holds(self, kind):
        """It carries an event of this kind."""
        return b'"type":"%s.v1"' % kind.encode() in self.payload


async def read_frame(reader, *, up):
    """The next message; None at the end, or where the connection broke."""
    try:
        line = await reader.readuntil(b"\n")
        verb, *words = line.decode().split()
        if verb not in ("PUB", "HPUB", "MSG", "HMSG"):
            return Frame(up, line)
        body = await reader.readexactly(int(words[-1]) + 2)
    except (asyncio.IncompleteReadError, OSError):
        return None
    # <subject> [sid] [reply] [header's length] <length>
    names = words[: -2 if verb.startswith("H") else -1]
    subject = names.pop(0)
    if not up:
        names.pop(0)
    head = int(words[-2]) if verb.startswith("H") else 0
    return Frame(up, line + body, subject, "".join(names), body[head:-2])


async def _forward(writer, frame):
    """Whoever died hears nothing more."""
    if not writer.is_closing():
        with contextlib.suppress(OSError):
            writer.write(frame.raw)
            await writer.drain()


@dataclass(eq=False)
class Catch:
    """The first message that `fits` is held, with whatever follows it on its connection, until
    `release()`; or lost, with `lose()`."""

    fits: Callable[[Frame], bool]
    frame: Frame | None = None
    lost: bool = False
    caught: asyncio.Event = field(default_factory=asyncio.Event)
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, frame):
        if self.frame is None and self.fits(frame):
            self.frame = frame
            self.caught.set()
            return True
        return False

    def release(self):
        self._open.set()

    def lose(self):
        self.lost = True
        self._open.set()

    async def wait(self):
        await self._open.wait()


class Tap:
    """Use as ``async with``; `url` is the server's address through it. `acknowledged`: ids of the
    events whose acknowledgement has gone through to whoever published them; `refused`: of those
    that the log would not have."""

    def __init__(self, url):
        parts = urlsplit(url)
        self._there = parts.hostname, parts.port
        self._given = url
        self._catches = []
        self._connections = set()
        self._asked = {}
        self.acknowledged = set()
        self.refused = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=_LINE_MAX, backlog=1000
        )
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._given.replace(f":{self._there[1]}", f":{port}")
        return self

    async def __aexit__(self, *_):
        self._server.close()
        while self._connections:
            for connection in self._connections:
                connection.cancel()
            await asyncio.wait(self._connections)

    def catch(self, fits):
        made = Catch(fits)
        self._catches.append(made)
        return made

    def catch_answer(self, fits):
        """Of the answer to the request that fits."""
        reply = None

        def asked_or_answer(frame):
            nonlocal reply
            if frame.up and reply is None and fits(frame):
                reply = frame.reply
            return not frame.up and reply is not None and frame.subject == reply

        return self.catch(asked_or_answer)

    async def _connected(self, reader, writer):
        connection = asyncio.current_task()
        self._connections.add(connection)
        try:
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await self._join(reader, writer)
        finally:
            writer.close()
            self._connections.discard(connection)

    async def _join(self, reader, writer):
        there = await asyncio.open_connection(*self._there, limit=_LINE_MAX)
        held = asyncio.Event()
        up = asyncio.create_task(self._pump(reader, there[1], held, up=True))
        down = asyncio.create_task(self._pump(there[0], writer, held, up=False, pong=there[1]))
        try:
            # A client that died leaves what it had sent; a server that died takes nothing more.
            await down
        finally:
            for pump in (up, down):
                pump.cancel()
            await asyncio.wait({up, down})
            there[1].close()

    async def _pump(self, reader, writer, held, *, up, pong=None):
        while (frame := await read_frame(reader, up=up)) is not None:
            if pong is not None and frame.raw == b"PING\r\n" and held.is_set():
                pong.write(b"PONG\r\n")  # the server is not to give up whoever is held
                continue
            for catch in [c for c in self._catches if c.takes(frame)]:
                self._catches.remove(catch)
                if up:
                    held.set()
                await catch.wait()
                held.clear()
                if catch.lost:
                    break
            else:
                self._answered(frame)
                await _forward(writer, frame)
        if up:
            writer.close()

    def _answered(self, frame):
        if frame.up and frame.reply and frame.subject.startswith("unicron."):
            self._asked[frame.reply] = frame.id
        elif not frame.up and frame.subject in self._asked:
            answers = self.refused if b'"error"' in frame.payload else self.acknowledged
            answers.add(self._asked.pop(frame.subject))
