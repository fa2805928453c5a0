"""Hosts: an agent, which is the real supervision table, and the workers it has started."""

import asyncio
from typing import Protocol

from unicron.controlplane.testing.client import Client
from unicron.controlplane.testing.disk import Disk
from unicron.controlplane.testing.network import ALL, Link
from unicron.controlplane.testing.server import Server
from unicron.controlplane.testing.trainee import Trainee
from unicron.controlplane.testing.trainee import World as TraineeWorld
from unicron.controlplane.testing.training import TORCH
from unicron.events import (
    AgentStarted,
    AgentStopped,
    Beat,
    ClusterId,
    Envelope,
    Incarnation,
    NodeId,
    NodeLost,
    Recorded,
    StoreBound,
    WorkerExited,
    WorkerId,
    WorkerStartOrdered,
    WorkerStopOrdered,
)
from unicron.worker_shim import supervision
from unicron.worker_shim.identity import Identity, agent_identity, worker_identity

_BEAT_S = 0.2
_STORE_RESTART_S = 0.3
_LOOK_S = 0.02


class World(TraineeWorld, Protocol):
    """What a host needs of the simulation."""

    server: Server

    def link(self) -> Link: ...

    def free_port(self) -> int: ...

    def two_on_a_device(self, worker: WorkerId) -> None:
        """A process is to begin while another has its device."""


class Host:
    """One machine. `kind`: of its devices; `skew_ns`: how much its wall clock is ahead."""

    def __init__(
        self, world: World, name: NodeId, devices: int, *, kind: str = "cpu", skew_ns: int = 0
    ) -> None:
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._pids = 100
        self._beats = 0
        self._announced = False
        self.name, self.devices, self.kind, self.skew_ns = name, devices, kind, skew_ns
        self.store_port = 0
        self._disk = Disk()
        self.mended_s = 0.0
        self.incarnation = Incarnation(0)
        self.up = self.is_cut = False
        #: Its beats get lost, and nothing else.
        self.mute = False
        self.client: Client | None = None
        self.table = supervision.Table(node=name, devices=devices, agent=self.incarnation)
        self.workers: dict[WorkerId, Trainee] = {}
        #: Workers that SIGKILL spares; devices on which nothing starts.
        self.unkillable: set[WorkerId] = set()
        self.dead_devices: set[int] = set()
        #: The version that what starts here computes with.
        self.torch = TORCH

    # --- The agent ----------------------------------------------------------------------------

    def start(self) -> None:
        """The agent begins a new life; it ends what an earlier one left, and then says so."""
        if self.up:
            self.kill_agent()
        self.up, self._announced, self._beats = True, False, 0
        self.incarnation = Incarnation(self.incarnation + 1)
        self.table = supervision.Table(node=self.name, devices=self.devices, agent=self.incarnation)
        self._loop.call_later(self._world.pace.agent_start_s(), self._begin, self.incarnation)

    def _begin(self, incarnation: Incarnation) -> None:
        if not self.up or self.incarnation != incarnation:
            return
        self.unkillable.clear()
        for trainee in list(self.workers.values()):
            self._end_process(trainee)
        self.client = self._connect(agent_identity(self._cluster, self.name, incarnation))
        self._announced = True
        self.store_port = self._world.free_port()
        self.client.open()
        if self.is_cut:
            self.client.disconnect()
        self._disk.forget_undelivered()
        self._disk.hand_over(self.client.facts)  # before it says that it has started
        self.client.publish(
            AgentStarted(
                node=self.name,
                address="127.0.0.1",
                store_port=self.store_port,
                devices=self.devices,
                device_kind=self.kind,
            )
        )
        self._beat(incarnation)

    @property
    def _cluster(self) -> ClusterId:
        return ClusterId(self._world.server.cluster)

    def _connect(self, identity: Identity) -> Client:
        return Client(
            self._world.server,
            identity,
            self._world.link(),
            lambda order, envelope: self._hear(identity, order, envelope),
            skew_ns=self.skew_ns,
            spool=self._disk.spool(identity),
        )

    def _beat(self, incarnation: Incarnation) -> None:
        if not self.up or self.incarnation != incarnation or self.client is None:
            return
        self._beats += 1
        living = [
            self.workers[slot.start.order.worker]
            for slot in self.table.slots.values()
            if slot.life is supervision.Life.RUNNING
        ]
        beat = Beat(
            node=self.name,
            incarnation=incarnation,
            number=self._beats,
            workers=tuple(t.beat() for t in living),
        )
        if not self.mute:
            self.client.link.there(lambda: self._world.server.beat(beat), loss=ALL)
        self._loop.call_later(_BEAT_S, self._beat, incarnation)

    def _hear(self, identity: Identity, order: Recorded, envelope: Envelope) -> None:
        """An order to the agent or to one of its workers arrives."""
        body = envelope.body
        if identity.who.startswith("worker/"):
            trainee = self.workers.get(WorkerId(identity.who.removeprefix("worker/")))
            if trainee is not None and trainee.alive and trainee.life[1] == identity.incarnation:
                trainee.hear(envelope.term, body)
        elif self.up and self.client is not None and identity is self.client.identity:
            if isinstance(body, WorkerStartOrdered):
                self._act(supervision.start_ordered(self.table, order.seq, envelope.term, body))
            elif isinstance(body, WorkerStopOrdered):
                self._act(supervision.stop_ordered(self.table, envelope.term, body))
            elif isinstance(body, NodeLost) and body.incarnation == self.incarnation:
                self.start()  # declared lost, and yet alive: a new life

    def _act(self, outcome: supervision.Outcome) -> None:
        self.table, actions = outcome
        for action in actions:
            match action:
                case supervision.Fork(start=start):
                    self._loop.call_later(
                        self._world.pace.fork_s(), self._fork, start, self.incarnation
                    )
                case supervision.End(worker=worker, incarnation=incarnation):
                    self._end(worker, incarnation)
                case supervision.Publish(fact=fact, cause=cause):
                    assert self.client is not None
                    if isinstance(fact, WorkerExited):
                        fact = self._with_progress(fact)
                        left = (f"worker/{fact.worker}", fact.incarnation)
                        self._disk.hand_over(self.client.facts, left)
                    self.client.publish(fact, cause)
                case supervision.Refuse():
                    pass

    # --- Workers ------------------------------------------------------------------------------

    def _fork(self, start: supervision.Start, incarnation: Incarnation) -> None:
        if not self.up or self.incarnation != incarnation:
            return
        if not self._disk.is_delivered:  # a next life must not be heard before the last one
            self._loop.call_later(_LOOK_S, self._fork, start, incarnation)
            return
        order = start.order
        if order.device in self.dead_devices:
            error = "the fork server: no such device"
            self._act(supervision.fork_failed(self.table, order.worker, order.incarnation, error))
            return
        before = self.workers.get(order.worker)
        if before is not None and before.alive:
            self._world.two_on_a_device(order.worker)
        self._pids += 1
        trainee = Trainee(self._world, order, self._on_exit)
        trainee.torch = self.torch
        self.workers[order.worker] = trainee
        self._loop.call_later(self._world.pace.build_s(), self._prepared, trainee)
        self._act(supervision.forked(self.table, order.worker, order.incarnation, self._pids))

    def _prepared(self, trainee: Trainee) -> None:
        if not trainee.alive or trainee.hung:
            return
        worker, incarnation = trainee.life
        client = self._connect(
            worker_identity(self._cluster, worker, incarnation, trainee.spec.task)
        )
        trainee.prepare(client)
        if self.is_cut:
            client.disconnect()

    def _on_exit(self, trainee: Trainee, code: int) -> None:
        self.kill(trainee, signal=None, code=code)

    def _end(self, worker: WorkerId, incarnation: Incarnation) -> None:
        """SIGKILL, if need be after the grace: a pretended worker has nothing to tidy up."""
        trainee = self.workers.get(worker)
        if trainee is None or trainee.life[1] != incarnation or worker in self.unkillable:
            return
        self._loop.call_later(self._world.pace.glance_s(), self.kill, trainee)

    def kill(self, trainee: Trainee, signal: int | None = 9, code: int | None = None) -> None:
        """The process ends; its agent, if there is one, sees how."""
        if not trainee.alive:
            return
        self._end_process(trainee)
        if self.up and self._announced:
            worker, incarnation = trainee.life
            slot = self.table.slots.get(worker)
            pid = slot.pid if slot is not None else 0
            self._act(
                supervision.exited(self.table, worker, incarnation, pid, code=code, signal=signal)
            )

    def _with_progress(self, fact: WorkerExited) -> WorkerExited:
        """With what the progress page said last."""
        trainee = self.workers.get(fact.worker)
        if trainee is None or trainee.life[1] != fact.incarnation:
            return fact
        return trainee.last_seen(fact)

    def _end_process(self, trainee: Trainee, forget_s: float = 0.0) -> None:
        """`forget_s`: how long others take to notice; above 0 its peers never do."""
        if not trainee.alive:
            return
        trainee.die(silent=forget_s > 0)
        if trainee.client is not None:
            trainee.client.close(forget_s)

    # --- Faults -------------------------------------------------------------------------------

    def kill_agent(self) -> None:
        """The agent alone dies; its workers train on until the next one ends them."""
        self.up = False
        if self.client is not None and self._announced:
            self.client.close()

    def power_off(self, forget_s: float) -> None:
        """Everything on it is gone. `forget_s` 0: its connections are closed, as by a reset; else
        its peers notice by silence only, and the server after that time."""
        if self.client is not None and self.up and self._announced:
            self.client.close(forget_s)
        self.up, self.store_port = False, 0
        for trainee in list(self.workers.values()):
            self._end_process(trainee, forget_s)

    def stop(self, reason: str) -> None:
        """An operator ends the agent: its workers first, then the news."""
        if not self.up or not self._announced or self.client is None:
            return
        self._act(supervision.close(self.table, 0))
        for trainee in list(self.workers.values()):
            self.kill(trainee)
        client = self.client
        client.publish(AgentStopped(node=self.name, reason=reason))
        self.up, self.store_port = False, 0
        self._loop.call_later(2.0, client.close)

    def cut(self, forget_s: float) -> None:
        """It can't reach the log any more, as the server notices after a time; its workers still
        reach each other."""
        self.is_cut = True
        for client in self._clients():
            client.disconnect(forget_s)

    def mend(self) -> None:
        """It reaches the log again."""
        if self.is_cut:
            self.is_cut, self.mended_s = False, self._loop.time()
            for client in self._clients():
                client.connect()

    def reinstall(self) -> None:
        """What starts from now on computes with the same version as everywhere; whoever began
        with another one is ended."""
        self.torch = TORCH
        for trainee in list(self.workers.values()):
            if trainee.torch != TORCH and trainee.life[0] not in self.unkillable:
                self.kill(trainee)

    def lose_store(self) -> None:
        """The process that hosts the rendezvous dies; the agent starts another one."""
        self.store_port = 0
        self._loop.call_later(_STORE_RESTART_S, self._store_bound, self.incarnation)

    def _store_bound(self, incarnation: Incarnation) -> None:
        if not self.up or self.incarnation != incarnation or self.client is None:
            return
        self.store_port = self._world.free_port()
        self.client.publish(
            StoreBound(node=self.name, address="127.0.0.1", store_port=self.store_port)
        )

    def _clients(self) -> list[Client]:
        found = [self.client] if self.client is not None and self.up and self._announced else []
        living = [t.client for t in self.workers.values() if t.alive and t.client is not None]
        return [*found, *living]
