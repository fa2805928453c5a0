"""The transport in a thread of its own, for a program whose main thread has other work."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError

from unicron.events.ids import IncidentId, Sequence
from unicron.events.union import AnyFact
from unicron.worker_shim.identity import Identity
from unicron.worker_shim.spool import Spool
from unicron.worker_shim.transport import OnOrder, Transport

log = logging.getLogger(__name__)


class ThreadTransport:
    """A Transport in a daemon thread, for the worker, whose main thread trains.

    `on_order` is called in that thread and must not block it. All methods are thread-safe and
    none raises because of the network or the disk. Make it after the fork, never before.
    """

    def __init__(
        self, identity: Identity, url: str, on_order: OnOrder, spool: Spool | None = None
    ) -> None:
        self._transport = Transport(identity, url, on_order, wake=self._wake, spool=spool)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="unicron-transport", daemon=True
        )
        self._thread.start()
        ready.wait()

    def publish(
        self,
        fact: AnyFact,
        cause: tuple[Sequence, ...] = (),
        incident: IncidentId | None = None,
    ) -> bool:
        """Take the fact for delivery and return at once. False: it is lost."""
        return self._transport.publish(fact, cause, incident)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all facts taken so far are in the log. False: not within the limit. Not to
        be called from `on_order`."""
        if self._loop is None or not self._thread.is_alive():
            return self._transport.facts.waiting == 0
        flushed = asyncio.run_coroutine_threadsafe(self._transport.flush(timeout_s), self._loop)
        try:
            return flushed.result(timeout_s + 1.0)
        except (FutureTimeoutError, asyncio.CancelledError):
            return False

    def ask(self) -> None:
        """Ask the leader to say our current orders again; returns at once."""
        if self._loop is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._transport.ask(), self._loop)

    def server_address(self) -> tuple[str, int] | None:
        """(IP, port) of the server connected to now or last: never shut that socket."""
        return self._transport.server_address()

    @property
    def refused(self) -> int:
        """Facts that were lost because the spool was full or they couldn't be encoded."""
        return self._transport.facts.refused

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread. What wasn't flushed stays in the spool, or is lost without one."""
        self._call(self._stop.set)
        self._thread.join(timeout_s)
        self._transport.facts.close()

    def _wake(self) -> None:
        self._call(self._transport.facts.there_is_work)

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(function)

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._main(ready))
        except BaseException:
            log.exception("the transport's thread ended; facts of this process are lost")

    async def _main(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        ready.set()
        running = asyncio.ensure_future(self._transport.run())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if running.done():
            running.result()  # it runs for ever: this raises what ended it
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
