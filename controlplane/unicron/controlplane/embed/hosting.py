"""All nodes of the host: they come and go as its scheduler says."""

import logging
import time
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.abc

from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.embed.bus import HostBus
from unicron.controlplane.embed.node import NodeLife
from unicron.controlplane.embed.scheduler import NodeOffered, NodeWithdrawn, Scheduler
from unicron.controlplane.runtime.outcomes import Accepted
from unicron.controlplane.runtime.ports import EventLog
from unicron.events import (
    AgentStarted,
    ClusterId,
    ConfigError,
    GenerationClosed,
    Incarnation,
    LogError,
    NodeId,
    NodeLost,
    Recorded,
    Sequence,
    TransitionOrdered,
    WorkerStartOrdered,
    WorkerStopOrdered,
    subjects,
)

log = logging.getLogger(__name__)

_ABOUT_NODE: TypeAlias = AgentStarted | WorkerStartOrdered | WorkerStopOrdered | NodeLost
_ABOUT_TASK: TypeAlias = TransitionOrdered | GenerationClosed


class Hosting:
    """`run` until cancelled; `close` before that for a clean end. `nats`: where workers of the
    host find the log. `spool`: a folder for what its nodes have to say while the log is away."""

    def __init__(
        self,
        event_log: EventLog,
        bus: HostBus,
        scheduler: Scheduler,
        nats: str,
        spool: Path | None = None,
    ) -> None:
        self._log = event_log
        self._bus = bus
        self._scheduler = scheduler
        self._nats = nats
        self._spool = spool
        self._lives: dict[NodeId, NodeLife] = {}
        self._newest = 0
        self._gone = anyio.Event()
        self._closing = False
        #: Offered while their last life was still ending.
        self._again: dict[NodeId, NodeOffered] = {}

    async def run(self) -> None:
        """Follow the scheduler's offers. Raises what its nodes() raises, once all workers have been
        stopped."""
        async with anyio.create_task_group() as group:
            try:
                async for change in self._scheduler.nodes():
                    if isinstance(change, NodeOffered):
                        self._offer(group, change)
                    else:
                        self._withdraw(change)
            except Exception:
                await self.close("the host's scheduler failed")
                raise
            await anyio.sleep_forever()

    async def close(self, reason: str) -> None:
        """The control plane ends, and with it the agents' part: all workers are stopped."""
        self._closing = True
        self._again.clear()
        for node, life in self._lives.items():
            life.withdraw(NodeWithdrawn(node=node, reason=reason))
        while self._lives:
            await self._gone.wait()

    def hear(self, state: ClusterState, recorded: Recorded) -> None:
        """An event was folded."""
        envelope = recorded.envelope
        if envelope is None:
            return
        body = envelope.body
        if isinstance(body, _ABOUT_NODE):
            life = self._lives.get(body.node)
            if life is not None:
                life.hear(recorded, envelope)
        elif isinstance(body, _ABOUT_TASK):
            for life in self._lives.values():
                life.hear_task(body.task, recorded, envelope)

    def _offer(self, group: anyio.abc.TaskGroup, offer: NodeOffered) -> None:
        if self._closing:
            return
        life = self._lives.get(offer.node)
        if life is None:
            self._lives[offer.node] = self._life(offer)
            group.start_soon(self._live, group, offer)
        elif life.is_withdrawn and offer.node not in self._again:
            self._again[offer.node] = offer
        else:
            raise ConfigError(
                f"node {offer.node} is offered twice",
                fix="withdraw it before it is offered again",
                code="E-EMBED-NODE",
            )

    def _withdraw(self, news: NodeWithdrawn) -> None:
        if news.node in self._lives:
            self._again.pop(news.node, None)
            self._lives[news.node].withdraw(news)
        else:
            log.warning("%s is withdrawn, but it wasn't offered", news.node)

    async def _live(self, group: anyio.abc.TaskGroup, offer: NodeOffered) -> None:
        """One life after another, until it is withdrawn."""
        try:
            while await self._lives[offer.node].run() and not self._closing:
                self._lives[offer.node] = self._life(offer)
        finally:
            del self._lives[offer.node]
            gone, self._gone = self._gone, anyio.Event()
            gone.set()
        again = self._again.pop(offer.node, None)
        if again is not None:
            self._offer(group, again)

    def _life(self, offer: NodeOffered) -> NodeLife:
        self._newest = max(self._newest + 1, time.time_ns())
        return NodeLife(
            ClusterId(self._log.cluster),
            offer,
            Incarnation(self._newest),
            self._scheduler,
            self._store,
            self._bus.beat,
            self._nats,
            None if self._spool is None else self._spool / offer.node,
        )

    async def _store(self, node: NodeId, event_id: str, data: bytes) -> Sequence | str:
        """One attempt to store a fact: its sequence, or why it isn't known to be stored."""
        subject = subjects.fact(self._log.cluster, node)
        try:
            outcome = await self._log.append(subject, data, event_id, fence=None)
        except LogError as error:
            return str(error)
        return outcome.seq if isinstance(outcome, Accepted) else str(outcome)
