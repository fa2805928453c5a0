"""Keeps an agent's fork server and its rendezvous store alive, whatever dies.

A store outlives its fork server's death on purpose: running tasks may be meeting there.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from unicron.events.errors import UnicronError
from unicron.events.ids import NodeId
from unicron.worker_shim.forkclient import READY_LIMIT_S, ForkClient, ForkServerError, start_server
from unicron.worker_shim.forkprotocol import DEFAULT_GRACE_S, Exited, Kind
from unicron.worker_shim.watch import Watch

log = logging.getLogger(__name__)

_RETRY_FIRST_S, _RETRY_LAST_S = 0.1, 5.0
_TEMPLATE_LIMIT_S = 5.0
_END_LIMIT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class KeeperOptions:
    """`folder`: the node's directory, mode 0700, for socket and status files. `template`: socket
    of a fork server to be forked from, or "" to start a process. The rest: forkserver.Options."""

    node: NodeId
    address: str
    folder: str
    template: str = ""
    preload: str = "megatron"
    grace_s: float = DEFAULT_GRACE_S
    entry: str = ""
    store_entry: str = ""


class Keeper:
    """`on_exit`: for every child's end the fork server tells of. `on_change`: the fork server or
    the store is another one now; not called by `start`."""

    def __init__(
        self,
        options: KeeperOptions,
        on_exit: Callable[[Exited], None],
        on_change: Callable[[], None],
    ) -> None:
        self._options = options
        self._on_exit = on_exit
        self._on_change = on_change
        self._socket = os.path.join(options.folder, "fork.sock")
        self._process: subprocess.Popen[bytes] | None = None
        self._client: ForkClient | None = None
        self._up = asyncio.Event()
        self._store: Watch | None = None
        self._store_gone = asyncio.Event()
        self.store_port = 0

    @property
    def server_pid(self) -> int:
        """Pid of the fork server; 0 while there is none."""
        return self._client.hello.pid if self._client is not None else 0

    @property
    def store_pid(self) -> int:
        """Pid of the store's host; 0 while there is none."""
        return self._store.pid if self._store is not None else 0

    async def start(self) -> None:
        """Bring both up. Workers that an earlier agent left are killed: the log holds them for
        gone as soon as another agent of the node has started. Raises UnicronError."""
        client = await self._open_server()
        for child in client.hello.children:
            if child.kind is Kind.STORE and child.port and self._store is None:
                self._adopt_store(child.pid, child.port)
            elif child.kind is Kind.WORKER:
                log.warning("killing %s/%d of an earlier agent", child.name, child.incarnation)
                await client.kill(child.pid, signal.SIGKILL)
        if self._store is None:
            await self._open_store()

    async def run(self) -> None:
        """Restart what dies, until cancelled."""
        delay = _RETRY_FIRST_S
        while True:
            if self._client is not None:
                await _first_of(self._client.wait_closed(), self._store_gone.wait())
            try:
                if not self.is_alive:
                    log.error("the fork server died; starting another one")
                    self._lost()
                    await self._open_server()
                if self._store_gone.is_set():
                    log.error("the store's host died; starting another one")
                    await self._open_store()
                self._on_change()
                delay = _RETRY_FIRST_S
            except (UnicronError, OSError) as error:
                log.error("it could not be replaced, trying again: %s", error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _RETRY_LAST_S)

    async def client(self) -> ForkClient:
        """The living fork server's client; waits for one."""
        while self._client is None:
            await self._up.wait()
        return self._client

    @property
    def is_alive(self) -> bool:
        """There is a fork server, which will report the ends of its children."""
        return self._client is not None and not self._client.is_closed

    async def close(self) -> None:
        """End fork server and store, and remove the socket and status files."""
        store = self._store
        client = self._client or await self._connect_left_over()  # begun but not known to us yet
        if client is not None:
            await client.shutdown()
            self._lost()
        elif self._process is not None:
            self._process.terminate()  # still importing
        if store is not None:
            store.send(signal.SIGKILL)  # an orphan of an earlier fork server
            store.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _END_LIMIT_S)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        with contextlib.suppress(OSError):  # somebody has removed the folder
            for name in os.listdir(self._options.folder):
                if name == "fork.sock" or name.endswith(".status"):
                    os.unlink(os.path.join(self._options.folder, name))

    # --- Fork server -----------------------------------------------------------------------------

    async def _open_server(self) -> ForkClient:
        """Connect to what an earlier agent left, or fork one from the template, or start one."""
        if self._client is not None and not self._client.is_closed:
            return self._client
        client = await self._connect_left_over()
        if client is None and self._options.template:
            client = await self._fork_from_template()
        if client is None:
            client = await self._start_process()
        self._client = client
        self._up.set()
        return client

    async def _connect_left_over(self) -> ForkClient | None:
        if not os.path.exists(self._socket):
            return None
        try:
            return await ForkClient.connect(self._socket, self._on_exit, limit_s=0.0)
        except ForkServerError:
            return None

    async def _fork_from_template(self) -> ForkClient | None:
        options = self._options
        try:
            template = await ForkClient.connect(
                options.template, lambda _: None, limit_s=_TEMPLATE_LIMIT_S
            )
        except ForkServerError as error:
            log.error("no template, so starting a fork server takes longer: %s", error)
            return None
        try:
            await template.start_fork_server(
                self._socket, f"unicron: fork server {options.node}", options.grace_s
            )
        finally:
            await template.close()
        return await ForkClient.connect(self._socket, self._on_exit)

    async def _start_process(self) -> ForkClient:
        options = self._options
        if self._process is not None:
            self._process.wait()  # it has ended, or it would have been connected to
        self._process = start_server(
            self._socket,
            f"unicron: fork server {options.node}",
            preload=options.preload,
            grace_s=options.grace_s,
            entry=options.entry,
            store_entry=options.store_entry,
        )
        return await ForkClient.connect(
            self._socket, self._on_exit, limit_s=READY_LIMIT_S, server=self._process
        )

    def _lost(self) -> None:
        self._client = None
        self._up.clear()

    # --- Store -----------------------------------------------------------------------------------

    async def _open_store(self) -> None:
        client = await self.client()
        title = f"unicron: store {self._options.node}"
        pid, port = await client.start_store(self._options.node, self._options.address, title)
        self._adopt_store(pid, port)

    def _adopt_store(self, pid: int, port: int) -> None:
        self._store_gone.clear()
        self._store = Watch(pid, self._store_gone.set)
        self.store_port = port


async def _first_of(*waits: Coroutine[None, None, object]) -> None:
    """Return when one of the waits is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
