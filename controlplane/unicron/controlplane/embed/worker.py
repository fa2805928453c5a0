"""A worker that the host runs: what it has to start, and how it tells what became of it."""

import logging
from collections.abc import Callable
from typing import Protocol

from unicron.events import (
    AnyFact,
    Envelope,
    Incarnation,
    NodeId,
    Sequence,
    TaskId,
    TaskSpec,
    WorkerBeat,
    WorkerId,
    WorkerStartOrdered,
)
from unicron.worker_shim.page import PageReader, beat_of

log = logging.getLogger(__name__)


class WorkerNews(Protocol):
    """Where a hosted worker's news goes."""

    def exited(self, worker: "HostedWorker", code: int | None, signal: int | None) -> None: ...

    def report(self, worker: "HostedWorker", fact: AnyFact) -> None: ...


class HostedWorker:
    """One life of a worker, ordered by the control plane and run by the host.

    A real worker is a process that calls ``unicron.worker_shim.worker.run`` with a WorkerLaunch of
    these values; it then speaks to the log itself, at `nats`, and the host reports nothing but its
    end. One that has no process of its own (a test's, a simulation's) speaks through `report` and
    hears its task's orders through `listen`.
    """

    def __init__(
        self, order: WorkerStartOrdered, at: Sequence, nats: str, news: WorkerNews
    ) -> None:
        self.order = order
        self.at = at
        #: Address of the log for its shim; "" if the log is in memory.
        self.nats = nats
        self._news = news
        self._heard: Callable[[Sequence, Envelope], None] | None = None
        self._read: Callable[[], WorkerBeat] | None = None
        self._page: PageReader | None = None

    @property
    def name(self) -> WorkerId:
        """``<node>/<device>``."""
        return self.order.worker

    @property
    def incarnation(self) -> Incarnation:
        """Which life of it this is."""
        return self.order.incarnation

    @property
    def task(self) -> TaskId:
        return self.order.task

    @property
    def spec(self) -> TaskSpec:
        """What it is to train."""
        return self.order.spec

    @property
    def node(self) -> NodeId:
        return self.order.node

    @property
    def device(self) -> int:
        return self.order.device

    def __repr__(self) -> str:
        return f"<worker {self.name}, life {self.incarnation}, of {self.task}>"

    # --- What the host tells --------------------------------------------------------------------

    def exited(self, *, code: int | None = None, signal: int | None = None) -> None:
        """Its process is gone, with this exit code or by this signal; neither: nobody knows how.
        Only the first call counts."""
        self._news.exited(self, code, signal)

    def watch(self, read: Callable[[], WorkerBeat]) -> None:
        """`read` is called five times a second while it lives, and must return at once with where
        it stands, or it won't be noticed when it hangs."""
        self._read = read

    def watch_page(self, path: str) -> None:
        """The same for a real worker: `path` is its progress page, WorkerLaunch.page_path."""
        reader = self._page = PageReader(path)
        self.watch(lambda: beat_of(self.name, self.incarnation, reader.read()))

    def report(self, fact: AnyFact) -> None:
        """Say something to the log as this worker. Not for workers with a shim of their own."""
        self._news.report(self, fact)

    def listen(self, heard: Callable[[Sequence, Envelope], None]) -> None:
        """`heard` is called with each order to its task, in order, and must return at once."""
        self._heard = heard

    # --- What its node asks of it ---------------------------------------------------------------

    def beat(self) -> WorkerBeat | None:
        """Where it stands; None if the host doesn't say."""
        if self._read is None:
            return None
        try:
            return self._read()
        except Exception:
            log.exception("%s: reading its progress failed", self.name)
            return None

    def unwatch(self) -> None:
        """It is gone, and so is its page."""
        self._read = None
        if self._page is not None:
            self._page.close()

    def hear(self, at: Sequence, order: Envelope) -> None:
        """An order to its task stands in the log."""
        if self._heard is None:
            return
        try:
            self._heard(at, order)
        except Exception:
            log.exception("%s: hearing an order failed", self.name)
