"""The fork server's socket and the connections on it."""

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable

from unicron.events.errors import ConfigError
from unicron.worker_shim import forkprotocol
from unicron.worker_shim.forkprotocol import Message

_OUT_LIMIT_BYTES = 1 << 20


class Client:
    """One connection. Never waited for: what it doesn't read is kept, up to a limit."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.incoming = b""
        self.outgoing = b""


class Clients:
    """All connections. `alone_since`: monotonic seconds since when there has been none."""

    def __init__(
        self, selector: selectors.BaseSelector, on_request: Callable[[Client, bytes], None]
    ) -> None:
        self._selector = selector
        self._on_request = on_request
        self._by_fd: dict[int, Client] = {}
        self.alone_since = time.monotonic()

    @property
    def connected(self) -> bool:
        """There is at least one client."""
        return bool(self._by_fd)

    def accept(self, listener: socket.socket) -> Client:
        """Take the next connection, which the selector has announced."""
        connection, _ = listener.accept()
        connection.setblocking(False)
        client = Client(connection)
        self._by_fd[connection.fileno()] = client
        self._selector.register(connection, selectors.EVENT_READ, self._serve)
        return client

    def say(self, client: Client, message: Message) -> None:
        """Send, or keep for later. A client that has gone, or reads nothing, is dropped."""
        client.outgoing += forkprotocol.line(message)
        self._flush(client)

    def say_to_all(self, message: Message) -> None:
        for client in list(self._by_fd.values()):
            self.say(client, message)

    def close(self) -> None:
        for client in list(self._by_fd.values()):
            self._drop(client)

    def close_descriptors(self) -> None:
        """In a forked child: the connections are the server's."""
        for client in self._by_fd.values():
            client.connection.close()

    def _serve(self, fd: int, events: int) -> None:
        client = self._by_fd.get(fd)
        if client is None:
            return  # dropped by an event before this one
        if events & selectors.EVENT_WRITE:
            self._flush(client)
        if not events & selectors.EVENT_READ:
            return
        try:
            data = client.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        *lines, client.incoming = (client.incoming + data).split(b"\n")
        for request in lines:
            self._on_request(client, request)

    def _flush(self, client: Client) -> None:
        if self._by_fd.get(client.connection.fileno()) is not client:
            return
        try:
            sent = client.connection.send(client.outgoing)
            client.outgoing = client.outgoing[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        if len(client.outgoing) > _OUT_LIMIT_BYTES:
            self._drop(client)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outgoing else 0)
        self._selector.modify(client.connection, events, self._serve)

    def _drop(self, client: Client) -> None:
        if self._by_fd.pop(client.connection.fileno(), None) is None:
            return
        self._selector.unregister(client.connection)
        client.connection.close()
        if not self._by_fd:
            self.alone_since = time.monotonic()


def listen(path: str) -> socket.socket:
    """A listening socket at `path` that only this user can reach. Raises ConfigError."""
    size = len(os.fsencode(path))
    if size > forkprotocol.SOCKET_PATH_LIMIT:
        raise ConfigError(
            f"the socket's path has {size} bytes: {path}",
            why=f"Linux allows {forkprotocol.SOCKET_PATH_LIMIT}",
            fix="choose a shorter --run-dir or --socket",
            code="E-FORK-SOCKET",
        )
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.stat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"others may enter {folder}",
            why="whoever reaches the fork server's socket can run code as this user",
            fix=f"chmod 700 {folder}",
            code="E-FORK-SOCKET",
        )
    _remove_stale(path)
    with contextlib.ExitStack() as on_error:
        listener = on_error.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(64)
        listener.setblocking(False)
        on_error.pop_all()
    return listener


def _remove_stale(path: str) -> None:
    """Remove what a killed fork server left. Raises ConfigError if a living one has the path."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise ConfigError(
        f"another fork server listens on {path}",
        fix="end it first, or choose another --socket",
        code="E-FORK-SOCKET",
    )
