"""One node of the host's: the agent's part, played for it.

The table of real agents (unicron.worker_shim.supervision) says what to do about an order; carried
out it is by the host's scheduler. Facts go through the agents' own publisher.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from unicron.controlplane.embed.scheduler import NodeOffered, NodeWithdrawn, Scheduler
from unicron.controlplane.embed.worker import HostedWorker
from unicron.events import (
    AgentStarted,
    AgentStopped,
    AnyFact,
    Beat,
    ClusterId,
    Envelope,
    Incarnation,
    NodeId,
    NodeLost,
    Recorded,
    Sequence,
    TaskId,
    WorkerBeat,
    WorkerExited,
    WorkerId,
    WorkerStartOrdered,
    WorkerStopOrdered,
)
from unicron.worker_shim import supervision
from unicron.worker_shim.identity import Identity, agent_identity, worker_identity
from unicron.worker_shim.leftovers import Leftovers
from unicron.worker_shim.publisher import FactPublisher
from unicron.worker_shim.spool import SUFFIX, SpoolFile

log = logging.getLogger(__name__)

_BEAT_S = 0.2
_FLUSH_LIMIT_S = 3.0
#: Beyond the grace, how long the end of a node waits for the host to report its workers' ends.
_EXITS_LIMIT_S = 5.0

#: Store one fact of this node, as unicron.worker_shim.publisher.Attempt.
Store = Callable[[NodeId, str, bytes], Awaitable[Sequence | str]]


class NodeLife:
    """One life of a node: from its AgentStarted to its end. `run` once."""

    def __init__(
        self,
        cluster: ClusterId,
        offer: NodeOffered,
        incarnation: Incarnation,
        scheduler: Scheduler,
        store: Store,
        beat: Callable[[Beat], None],
        nats: str,
        spool: Path | None,
    ) -> None:
        """`spool`: the node's folder, for what the log doesn't have yet; None: in memory only."""
        self.incarnation = incarnation
        self._cluster = cluster
        self._offer = offer
        self._scheduler = scheduler
        self._beat = beat
        self._nats = nats
        self._store = store
        self._table = supervision.Table(node=offer.node, devices=offer.devices, agent=incarnation)
        self._workers: dict[WorkerId, HostedWorker] = {}
        self._speakers: dict[HostedWorker, FactPublisher] = {}
        self._publishers: list[FactPublisher] = []
        self._ended: set[HostedWorker] = set()
        self._folder = spool
        identity = agent_identity(cluster, offer.node, incarnation)
        self._facts = self._publisher(identity, f"agent.{incarnation}")
        self._group: anyio.abc.TaskGroup | None = None
        self._announced = False
        self._over = anyio.Event()
        self._moved = anyio.Event()
        self._withdrawn: NodeWithdrawn | None = None

    async def run(self) -> bool:
        """Until it is withdrawn (False) or declared lost, so that a new life has to begin (True).
        Its workers have been stopped then, if the host did its part in time."""
        try:
            return await self._live()
        finally:
            for publisher in self._publishers:
                publisher.close()

    async def _live(self) -> bool:
        offer = self._offer
        async with anyio.create_task_group() as group:
            self._group = group
            await self._take_leftovers()
            group.start_soon(self._facts.run)
            self._facts.publish(
                AgentStarted(
                    node=offer.node,
                    address=offer.address,
                    store_port=offer.store_port,
                    devices=offer.devices,
                    device_kind=offer.device_kind,
                    rack=offer.rack,
                )
            )
            group.start_soon(self._beats)
            await self._over.wait()
            with anyio.CancelScope(shield=True):
                await self._end()
            for worker in self._workers.values():
                worker.unwatch()
            group.cancel_scope.cancel()
        return self._withdrawn is None

    def _publisher(self, identity: Identity, name: str) -> FactPublisher:
        spool = None
        if self._folder is not None:
            spool = SpoolFile(str(self._folder / f"{name}{SUFFIX}"), identity.owner)
        made = FactPublisher(identity, self._attempt, spool=spool)
        self._publishers.append(made)
        return made

    async def _take_leftovers(self) -> None:
        """What earlier lives had not got into the log goes before what this one says."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            leftovers = Leftovers(str(self._folder), self._cluster, self._facts)
            await leftovers.of_earlier_lives()
        except OSError as error:
            log.error("%s: what was left there is not delivered: %s", self._folder, error.strerror)

    def withdraw(self, news: NodeWithdrawn) -> None:
        """The host takes it back. Only the first call counts."""
        if not self._over.is_set():
            self._withdrawn = news
            self._over.set()

    @property
    def is_withdrawn(self) -> bool:
        """The host has taken it back; its end may take a while."""
        return self._withdrawn is not None

    async def _end(self) -> None:
        news = self._withdrawn
        if news is not None and news.lost:
            return  # whatever it would still say, it doesn't
        grace_ms = news.grace_ms if news is not None else 0
        self._act(supervision.close(self._table, grace_ms))
        with anyio.move_on_after(grace_ms / 1000 + _EXITS_LIMIT_S):
            while supervision.living(self._table):
                moved = self._moved
                await moved.wait()
        if news is not None:
            self._facts.publish(AgentStopped(node=self._offer.node, reason=news.reason))
            if not await self._facts.flush(_FLUSH_LIMIT_S):
                fate = "lost" if self._folder is None else "kept until it is offered again"
                log.error("the log is away; the last facts of %s are %s", self._offer.node, fate)

    async def _attempt(self, message_id: str, data: bytes) -> Sequence | str:
        return await self._store(self._offer.node, message_id, data)

    async def _beats(self) -> None:
        number = 0
        while True:
            number += 1
            running = [
                worker
                for name, worker in self._workers.items()
                if self._table.slots[name].life is supervision.Life.RUNNING
            ]
            beats = (worker.beat() for worker in running)
            self._beat(
                Beat(
                    node=self._offer.node,
                    incarnation=self.incarnation,
                    number=number,
                    workers=tuple(beat for beat in beats if beat is not None),
                    spool=self._facts.waiting,
                )
            )
            await anyio.sleep(_BEAT_S)

    # --- Orders -----------------------------------------------------------------------------------

    def hear(self, recorded: Recorded, envelope: Envelope) -> None:
        """Something about this node was folded. Orders from before its first fact are of an
        earlier life."""
        body = envelope.body
        if isinstance(body, AgentStarted):
            self._announced = self._announced or envelope.source.incarnation == self.incarnation
        elif not self._announced or self._over.is_set():
            return
        elif isinstance(body, WorkerStartOrdered):
            self._act(supervision.start_ordered(self._table, recorded.seq, envelope.term, body))
        elif isinstance(body, WorkerStopOrdered):
            self._act(supervision.stop_ordered(self._table, envelope.term, body))
        elif isinstance(body, NodeLost) and body.incarnation == self.incarnation:
            log.warning("%s was declared lost (%s): a new life", body.node, body.evidence)
            self._over.set()

    def hear_task(self, task: TaskId, recorded: Recorded, envelope: Envelope) -> None:
        """An order to a task was folded."""
        for worker in self._workers.values():
            if worker.task == task and worker not in self._ended:
                worker.hear(recorded.seq, envelope)

    def _act(self, outcome: supervision.Outcome) -> None:
        assert self._group is not None
        self._table, actions = outcome
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
        for action in actions:
            match action:
                case supervision.Fork(start=start):
                    worker = HostedWorker(start.order, start.at, self._nats, self)
                    self._workers[worker.name] = worker
                    self._group.start_soon(self._launch, worker)
                case supervision.End(worker=name, grace_ms=grace_ms):
                    self._group.start_soon(self._stop, self._workers[name], grace_ms)
                case supervision.Publish(fact=fact, cause=cause):
                    self._facts.publish(fact, cause)
                case supervision.Refuse(reason=reason):
                    log.warning("%s refuses an order: %s", self._offer.node, reason)

    async def _launch(self, worker: HostedWorker) -> None:
        name, incarnation = worker.name, worker.incarnation
        try:
            pid = await self._scheduler.launch(worker)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            log.warning("%r didn't start: %s", worker, what)
            self._ended.add(worker)
            self._act(supervision.fork_failed(self._table, name, incarnation, what))
        else:
            self._act(supervision.forked(self._table, name, incarnation, pid))

    async def _stop(self, worker: HostedWorker, grace_ms: int) -> None:
        try:
            await self._scheduler.stop(worker, grace_ms)
        except Exception:
            log.exception("%r couldn't be stopped", worker)

    # --- News of workers --------------------------------------------------------------------------

    def exited(self, worker: HostedWorker, code: int | None, signal: int | None) -> None:
        """The host says that a worker is gone."""
        if worker not in self._ended and self._group is not None:
            self._ended.add(worker)
            self._group.start_soon(self._exited, worker, code, signal)

    async def _exited(self, worker: HostedWorker, code: int | None, signal: int | None) -> None:
        speaker = self._speakers.pop(worker, None)
        # What it said last comes before its end, as with a real one.
        if speaker is not None and await speaker.flush(_FLUSH_LIMIT_S):
            speaker.close()
            self._publishers.remove(speaker)
        before = worker.beat()
        worker.unwatch()
        outcome = supervision.exited(
            self._table, worker.name, worker.incarnation, 0, code=code, signal=signal
        )
        table, actions = outcome
        if before is not None:
            actions = tuple(_with_place(action, before) for action in actions)
        self._act((table, actions))

    def report(self, worker: HostedWorker, fact: AnyFact) -> None:
        """A worker without a shim of its own has something to say."""
        if worker in self._ended or self._group is None:
            return
        speaker = self._speakers.get(worker)
        if speaker is None:
            identity = worker_identity(self._cluster, worker.name, worker.incarnation, worker.task)
            name = f"w{worker.device}.{worker.incarnation}"
            speaker = self._speakers[worker] = self._publisher(identity, name)
            self._group.start_soon(speaker.run)
        speaker.publish(fact)


def _with_place(action: supervision.Action, seen: WorkerBeat) -> supervision.Action:
    """The news of an end, with where the worker stood last."""
    if not isinstance(action, supervision.Publish) or not isinstance(action.fact, WorkerExited):
        return action
    fact = msgspec.structs.replace(
        action.fact,
        iteration=seen.iteration,
        micro_batches_done=seen.micro_batches_done,
        phase=seen.phase,
    )
    return msgspec.structs.replace(action, fact=fact)
