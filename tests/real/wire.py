"""A network cable between a client and a server, which a test cuts and mends."""

import asyncio
import contextlib
from urllib.parse import urlsplit


class Wire:
    """Use as ``async with``; `url` is the server's address through it."""

    def __init__(self, url):
        parts = urlsplit(url)
        self._there = parts.hostname, parts.port
        self._url = url
        self._open = asyncio.Event()
        self._open.set()
        self._pipes = set()
        self._connections = set()

    async def __aenter__(self):
        await self._listen(0)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = self._url.replace(f":{self._there[1]}", f":{self._port}")
        return self

    async def _listen(self, port):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)

    async def __aexit__(self, *_):
        self._server.close()
        for pipe in list(self._pipes):
            pipe.cancel()
        while self._connections:
            await asyncio.wait(self._connections)

    def cut(self, *, silently):
        """Silently: bytes stay where they are, as when a cable is pulled. Else connections are
        closed, and new ones refused."""
        self._open.clear()
        if not silently:
            self._server.close()
            for pipe in list(self._pipes):
                pipe.cancel()

    @property
    def is_cut(self):
        return not self._open.is_set()

    async def mend(self):
        """What had been held back arrives now."""
        self._open.set()
        if not self._server.is_serving():
            await self._listen(self._port)

    async def _connected(self, reader, writer):
        connection = asyncio.current_task()
        self._connections.add(connection)
        try:
            await self._join(reader, writer)
        finally:
            self._connections.discard(connection)

    async def _join(self, reader, writer):
        there_reader, there_writer = await asyncio.open_connection(*self._there)
        pipes = [
            asyncio.create_task(self._pump(reader, there_writer)),
            asyncio.create_task(self._pump(there_reader, writer)),
        ]
        self._pipes.update(pipes)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        for pipe in pipes:
            pipe.cancel()
            self._pipes.discard(pipe)
        for end in (writer, there_writer):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def _pump(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
