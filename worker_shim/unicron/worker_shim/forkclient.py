"""The client of a fork server, for programs with an asyncio loop, and how to start a server."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Self

import msgspec

from unicron.events.errors import UnicronError
from unicron.worker_shim import forkprotocol
from unicron.worker_shim.forkprotocol import Exited, Hello, Reply
from unicron.worker_shim.launch import WorkerLaunch

#: Importing torch and Megatron cold, on a busy host.
READY_LIMIT_S = 180.0
_REQUEST_LIMIT_S = 30.0
_HELLO_LIMIT_S = 10.0
_MESSAGE_LIMIT_BYTES = 1 << 20


class ForkServerError(UnicronError):
    """The fork server refused, or there is none any more."""

    default_code = "E-FORK"


class ForkClient:
    """One connection. Methods raise ForkServerError if the server refuses or has gone."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hello: Hello,
        on_exit: Callable[[Exited], None],
    ) -> None:
        self.hello = hello
        self._reader = reader
        self._writer = writer
        self._on_exit = on_exit
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._reading = asyncio.create_task(self._read(), name="fork server's messages")

    @classmethod
    async def connect(
        cls,
        path: str,
        on_exit: Callable[[Exited], None],
        *,
        limit_s: float = 10.0,
        server: "subprocess.Popen[bytes] | None" = None,
    ) -> Self:
        """Connect to the server at `path`, waiting up to `limit_s` for it to listen (0: one try).

        `hello` has its living children and the exits nobody was told of; `on_exit` is called for
        each exit from now on. `server`: the process to give up on at once when it ends. Raises
        ForkServerError.
        """
        reader, writer = await _open(path, limit_s, server)
        try:
            async with asyncio.timeout(_HELLO_LIMIT_S):
                hello = forkprotocol.decode_message(await reader.readline())
        except (OSError, TimeoutError, ValueError, msgspec.DecodeError) as error:
            writer.close()
            raise ForkServerError(f"what listens on {path} is no fork server") from error
        if not isinstance(hello, Hello):
            writer.close()
            raise ForkServerError(f"what listens on {path} is no fork server")
        return cls(reader, writer, hello, on_exit)

    async def start_worker(self, launch: WorkerLaunch) -> int:
        """Pid of the worker; the same one if it lives already."""
        request = forkprotocol.StartWorker(id=next(self._numbers), launch=launch)
        return (await self._ask(request)).pid

    async def start_store(self, node: str, address: str, title: str) -> tuple[int, int]:
        """(pid, port) of a new store host."""
        reply = await self._ask(
            forkprotocol.StartStore(
                id=next(self._numbers), node=node, address=address, title=title
            ),
            READY_LIMIT_S,
        )
        return reply.pid, reply.port

    async def start_fork_server(
        self, socket: str, title: str, grace_s: float = forkprotocol.DEFAULT_GRACE_S
    ) -> int:
        """Pid of another fork server, which listens on `socket` by then."""
        reply = await self._ask(
            forkprotocol.StartForkServer(
                id=next(self._numbers), socket=socket, title=title, grace_s=grace_s
            )
        )
        return reply.pid

    async def call(self, function: str, title: str, log_path: str, **arguments: Any) -> int:
        """Pid of a process that calls ``module:function`` with the keyword arguments."""
        reply = await self._ask(
            forkprotocol.CallFunction(
                id=next(self._numbers),
                function=function,
                arguments=arguments,
                title=title,
                log_path=log_path,
            )
        )
        return reply.pid

    async def kill(self, pid: int, number: int) -> None:
        """Send a signal to a child; nothing happens if it has ended."""
        await self._ask(forkprotocol.Kill(id=next(self._numbers), pid=pid, signal=number))

    async def shutdown(self) -> None:
        """End the server and its children; returns once the connection is closed by it."""
        with contextlib.suppress(ForkServerError):
            await self._ask(forkprotocol.Shutdown(id=next(self._numbers)))
            await asyncio.wait({self._reading}, timeout=_REQUEST_LIMIT_S)
        await self.close()

    @property
    def is_closed(self) -> bool:
        """The connection has ended."""
        return self._reading.done()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, which means the server has."""
        await asyncio.wait({self._reading})

    async def close(self) -> None:
        """End the connection; the server's grace period starts if nobody else is connected."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, request: forkprotocol.Request, limit_s: float = _REQUEST_LIMIT_S) -> Reply:
        if self._reading.done():
            raise ForkServerError("the fork server has gone")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = answer
        try:
            self._writer.write(forkprotocol.line(request))
            async with asyncio.timeout(limit_s):
                reply = await answer
        except TimeoutError:
            raise ForkServerError(f"the fork server gave no answer in {limit_s} s") from None
        finally:
            self._waiting.pop(request.id, None)
        if reply.error:
            raise ForkServerError(reply.error)
        return reply

    async def _read(self) -> None:
        try:
            while data := await self._reader.readline():
                match forkprotocol.decode_message(data):
                    case Reply() as reply:
                        answer = self._waiting.get(reply.id)
                        if answer is not None and not answer.done():
                            answer.set_result(reply)
                    case Exited() as exited:
                        self._on_exit(exited)
                    case Hello():
                        pass
        except (OSError, ValueError):  # torn by its death
            pass
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ForkServerError("the fork server has gone"))


async def _open(
    path: str, limit_s: float, server: "subprocess.Popen[bytes] | None"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    until = time.monotonic() + limit_s
    while True:
        try:
            return await asyncio.open_unix_connection(path, limit=_MESSAGE_LIMIT_BYTES)
        except (FileNotFoundError, ConnectionRefusedError):
            if server is not None and server.poll() is not None:
                raise ForkServerError(
                    f"the fork server ended with code {server.returncode} before it listened",
                    fix="its last lines say why",
                ) from None
            if time.monotonic() > until:
                raise ForkServerError(f"no fork server on {path} in {limit_s} s") from None
            await asyncio.sleep(0.01)


def start_server(
    socket: str,
    title: str,
    *,
    preload: str = "megatron",
    grace_s: float = forkprotocol.DEFAULT_GRACE_S,
    entry: str = "",
    store_entry: str = "",
    die_with_parent: bool = False,
    log_path: str | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a fork server in a session of its own; connect to it with ForkClient.connect.

    `die_with_parent`: it ends when the calling *thread* does. `log_path`: where its stdout and
    stderr go, and its children's until they have a log of their own; None: ours.
    """
    command = [sys.executable, "-m", "unicron.worker_shim.forkserver"]
    command += ["--socket", socket, "--title", title, "--preload", preload]
    command += ["--grace-s", str(grace_s)]
    if entry:
        command += ["--entry", entry]
    if store_entry:
        command += ["--store-entry", store_entry]
    if die_with_parent:
        command += ["--die-with-parent", str(os.getpid())]
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(open(log_path, "ab")) if log_path is not None else None
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
