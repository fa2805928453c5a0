"""A node's worker processes: carries out what supervision.py decides about them."""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from unicron.events.beat import WorkerBeat
from unicron.events.envelope import Envelope
from unicron.events.errors import UnicronError
from unicron.events.ids import ClusterId, Incarnation, NodeId, Sequence, WorkerId
from unicron.events.union import AnyFact
from unicron.events.worker import WorkerExited, WorkerStartOrdered, WorkerStopOrdered
from unicron.worker_shim import supervision
from unicron.worker_shim.evidence import cut
from unicron.worker_shim.forkclient import ForkClient
from unicron.worker_shim.forkprotocol import Exited, Kind
from unicron.worker_shim.keeper import Keeper
from unicron.worker_shim.launch import WorkerLaunch, worker_files
from unicron.worker_shim.leftovers import Leftovers
from unicron.worker_shim.page import PageReader, beat_of
from unicron.worker_shim.spool import SpoolDepth
from unicron.worker_shim.supervision import End, Fork, Life, Publish, Refuse, Start
from unicron.worker_shim.watch import Watch

log = logging.getLogger(__name__)

#: The fork server's report of an end may come this much later than the descriptor's.
_REPORT_LIMIT_S = 1.0
#: From SIGKILL to the end of the process; one that hangs in the kernel takes longer.
_KILL_LIMIT_S = 10.0
#: A fork waits this long for a fork server that is being replaced.
_SERVER_LIMIT_S = 20.0
#: Of what is said about a start that failed.
_TEXT_MAX = 2000


@dataclass(frozen=True, kw_only=True)
class WorkersOptions:
    """What all workers of the node have in common. `folder`: where they write their files."""

    cluster: ClusterId
    node: NodeId
    devices: int
    nats_url: str
    folder: str
    fault_injection: bool


class Process:
    """What the agent holds of one running worker."""

    def __init__(self, incarnation: Incarnation, page: PageReader, spool: str) -> None:
        self.incarnation = incarnation
        self.page = page
        self.spool = SpoolDepth(spool)
        self.spool_path = spool
        self.watch: Watch | None = None
        self.killer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
        if self.killer is not None:
            self.killer.cancel()
        self.page.close()


class Workers:
    """`publish`: takes a fact and its cause, as the transport does. `leftovers`: takes over what a
    dead worker hadn't got into the log."""

    def __init__(
        self,
        options: WorkersOptions,
        incarnation: Incarnation,
        keeper: Keeper,
        publish: Callable[[AnyFact, tuple[Sequence, ...]], object],
        leftovers: Leftovers,
    ) -> None:
        self._leftovers = leftovers
        self._options = options
        self._keeper = keeper
        self._publish = publish
        self._table = supervision.Table(
            node=options.node, devices=options.devices, agent=incarnation
        )
        self._processes: dict[WorkerId, Process] = {}
        self._forks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def on_order(self, sequence: Sequence, envelope: Envelope) -> None:
        """An order to the node was heard."""
        match envelope.body:
            case WorkerStartOrdered() as order:
                self._act(supervision.start_ordered(self._table, sequence, envelope.term, order))
            case WorkerStopOrdered() as order:
                self._act(supervision.stop_ordered(self._table, envelope.term, order))
            case _:  # decisions about the node that ask nothing of us
                pass

    def spooled(self) -> int:
        """Facts of running workers that wait for the log."""
        return sum(process.spool.read() for process in self._processes.values())

    async def close(self, grace_ms: int) -> None:
        """End all workers; returns when they are gone, or can't be killed."""
        self._leftovers.close()
        self._act(supervision.close(self._table, grace_ms))
        try:
            async with asyncio.timeout(grace_ms / 1000 + _KILL_LIMIT_S):
                while supervision.living(self._table):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.error("left behind: %s", [s.pid for s in supervision.living(self._table)])
        forks = set(self._forks)
        for fork in forks:
            fork.cancel()
        if forks:
            await asyncio.wait(forks)

    def beats(self) -> tuple[WorkerBeat, ...]:
        """Where each running worker stands, as its page says."""
        beats = []
        for slot in self._table.slots.values():
            process = self._processes.get(slot.start.order.worker)
            if slot.life is not Life.RUNNING or process is None:
                continue
            seen = process.page.read()
            beats.append(beat_of(slot.start.order.worker, slot.incarnation, seen))
        return tuple(beats)

    def _act(self, outcome: supervision.Outcome) -> None:
        self._table, actions = outcome
        for action in actions:
            match action:
                case Fork(start=start):
                    task = asyncio.get_running_loop().create_task(self._fork(start))
                    self._forks.add(task)
                    task.add_done_callback(self._forks.discard)
                case End():
                    self._end(action)
                case Publish(fact=fact, cause=cause):
                    if isinstance(fact, WorkerExited):
                        fact = self._with_progress(fact)
                    self._publish(fact, cause)
                case Refuse(reason=reason):
                    log.info("refused: %s", reason)
        self._changed.set()

    async def _fork(self, start: Start) -> None:
        order = start.order
        files = worker_files(self._options.folder, order.device, order.incarnation)
        launch = WorkerLaunch(
            cluster=self._options.cluster,
            spec=order.spec,
            worker=order.worker,
            incarnation=order.incarnation,
            node=order.node,
            device=order.device,
            nats_url=self._options.nats_url,
            page_path=files.page,
            journal_path=files.journal,
            log_path=files.log,
            spool_path=files.spool,
            fault_injection=self._options.fault_injection,
        )
        process = Process(order.incarnation, PageReader(files.page), files.spool)
        self._processes[order.worker] = process
        try:
            client = await self._ready()
            pid = await client.start_worker(launch)
        except Exception as error:
            self._processes.pop(order.worker).close()
            text = cut(str(error) or "there is no fork server", _TEXT_MAX)
            self._act(supervision.fork_failed(self._table, order.worker, order.incarnation, text))
            return
        slot = self._table.slots[order.worker]
        if slot.incarnation == order.incarnation and slot.life is Life.FORKING:
            process.watch = Watch(pid, lambda: self._on_pid_gone(start, pid))
        self._act(supervision.forked(self._table, order.worker, order.incarnation, pid))

    async def _ready(self) -> ForkClient:
        """The fork server, once the log has what dead workers left: who reads the log must not hear
        a worker's next life before its last one. Raises UnicronError if the agent ends first."""
        if not await self._leftovers.delivered():
            raise UnicronError("the agent ends")
        async with asyncio.timeout(_SERVER_LIMIT_S):
            return await self._keeper.client()

    def _end(self, end: End) -> None:
        process = self._processes.get(end.worker)
        if process is None or process.watch is None or process.incarnation != end.incarnation:
            return
        process.watch.send(signal.SIGTERM if end.grace_ms else signal.SIGKILL)
        if process.killer is not None:
            process.killer.cancel()
        process.killer = asyncio.get_running_loop().call_later(
            end.grace_ms / 1000 if end.grace_ms else _KILL_LIMIT_S,
            self._end_at_last if end.grace_ms else self._on_unkillable,
            end,
        )

    def _end_at_last(self, end: End) -> None:
        log.warning("%s/%d outlived its grace", end.worker, end.incarnation)
        self._end(msgspec.structs.replace(end, grace_ms=0))

    def _on_unkillable(self, end: End) -> None:
        log.error("%s/%d (pid %d) outlives SIGKILL", end.worker, end.incarnation, end.pid)
        self._act(supervision.unkillable(self._table, end.worker, end.incarnation))

    # --- What happens to the workers -------------------------------------------------------------

    def on_child_exit(self, exited: Exited) -> None:
        """The fork server reports an end; the store's is seen by its own descriptor."""
        if exited.kind is Kind.WORKER:
            self._gone(
                WorkerId(exited.name),
                Incarnation(exited.incarnation),
                exited.pid,
                exited.code,
                exited.signal,
            )

    def _on_pid_gone(self, start: Start, pid: int) -> None:
        """The descriptor shows an end. How it ended only the fork server knows, if it lives."""
        loop = asyncio.get_running_loop()
        worker, incarnation = start.order.worker, start.order.incarnation
        delay = _REPORT_LIMIT_S if self._keeper.is_alive else 0.0
        loop.call_later(delay, self._gone, worker, incarnation, pid, None, None)

    def _gone(
        self,
        worker: WorkerId,
        incarnation: Incarnation,
        pid: int,
        code: int | None,
        number: int | None,
    ) -> None:
        outcome = supervision.exited(
            self._table, worker, incarnation, pid, code=code, signal=number
        )
        self._act(outcome)

    def _with_progress(self, fact: WorkerExited) -> WorkerExited:
        """What the progress page said last. What the worker itself said last goes before it; and
        nothing of the worker is held any more."""
        process = self._processes.pop(fact.worker, None)
        if process is None:
            return fact
        seen = process.page.read()
        process.close()
        self._leftovers.of_worker(process.spool_path)
        if seen is None or seen.incarnation != fact.incarnation:
            return fact
        return msgspec.structs.replace(
            fact,
            iteration=seen.iteration,
            micro_batches_done=seen.micro_batches_done,
            phase=seen.phase.label,
        )
