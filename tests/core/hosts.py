"""The hosts of a World: agents, which are the real supervision table, their processes, and their
connections as the log's server reports them."""

import random
from collections import deque

from tests.core.invariants import Watch
from tests.core.story import Story
from tests.core.trainee import Trainee
from unicron import events as ev
from unicron.controlplane.testing.collective import Group
from unicron.controlplane.testing.server import advisory
from unicron.events import subjects
from unicron.worker_shim import supervision


class Node:
    """A host: its agent, and the processes that the agent has started."""

    def __init__(self, name: str, devices: int) -> None:
        self.name, self.devices = name, devices
        self.incarnation = self.store_port = 0
        self.up = self.cut = False
        self.workers: dict[str, Trainee] = {}
        self.unkillable: set[str] = set()
        self.dead_devices: set[int] = set()

    def start(self) -> None:
        """A new life of the agent; it kills what an earlier one left."""
        self.incarnation += 1
        self.up = True
        self.table = supervision.Table(node=self.name, devices=self.devices, agent=self.incarnation)
        self.inbox: deque[tuple[int, int, ev.Decision]] = deque()
        self.outbox: deque[ev.Fact] = deque()
        self.forking: list[supervision.Start] = []


class Hosts(Story):
    """Nothing happens here by itself: the World calls."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.watch = Watch(self)
        self.nodes: dict[str, Node] = {}
        self.groups: dict[tuple[str, int], Group] = {}
        self.advisories: deque[tuple[str, str, int]] = deque()
        self.clients: dict[str, int] = {}
        self.ports = 0
        self.fresh = 0  # decisions since the last event that isn't one
        super().__init__()

    def living(self) -> list[Trainee]:
        return [t for n in self.nodes.values() for t in n.workers.values() if t.alive]

    def start_node(self, name: str, devices: int = 2) -> None:
        """A host comes up, for the first time or again, with another store than before."""
        node = self.nodes.setdefault(name, Node(name, devices))
        for worker in list(node.workers):
            self.kill(node, worker)
        node.start()
        node.cut = False
        node.store_port = self.free_port()
        self.connect("agent", name, node.incarnation)
        node.outbox.append(
            ev.AgentStarted(
                node=name,
                address="127.0.0.1",
                store_port=node.store_port,
                devices=node.devices,
                device_kind="cpu",
            )
        )

    def free_port(self) -> int:
        self.ports += 1
        return self.ports

    def store_stands(self, port: int) -> bool:
        return any(node.store_port == port for node in self.nodes.values())

    # --- Agents -------------------------------------------------------------------------------

    def obey(self, node: Node) -> None:
        seq, term, body = node.inbox.popleft()
        if isinstance(body, ev.WorkerStartOrdered):
            outcome = supervision.start_ordered(node.table, seq, term, body)
        else:
            outcome = supervision.stop_ordered(node.table, term, body)
        self.act(node, outcome)

    def act(self, node: Node, outcome: supervision.Outcome) -> None:
        node.table, actions = outcome
        for action in actions:
            match action:
                case supervision.Fork(start=start):
                    node.forking.append(start)
                case supervision.End():
                    if action.worker not in node.unkillable:
                        self.kill(node, action.worker)
                case supervision.Publish(fact=ev.WorkerExited() as fact):
                    trainee = node.workers[fact.worker]
                    node.outbox.append(trainee.last_seen(fact))
                case supervision.Publish(fact=fact):
                    node.outbox.append(fact)
                case _:
                    pass

    def fork(self, node: Node) -> None:
        start = node.forking.pop(0)
        name, incarnation = start.order.worker, start.order.incarnation
        if start.order.device in node.dead_devices:
            self.act(node, supervision.fork_failed(node.table, name, incarnation, "no fork"))
            return
        old = node.workers.get(name)
        assert old is None or not old.alive, f"{name}: two processes on one device"
        node.workers[name] = Trainee(self, start.order)
        self.connect("worker", name, incarnation)
        self.act(node, supervision.forked(node.table, name, incarnation, 1))

    def kill(self, node: Node, name: str, signal: int | None = 9) -> None:
        """The process is gone; what it hadn't sent is lost, or on its way already."""
        trainee = node.workers[name]
        if not trainee.alive:
            return
        trainee.die()
        for _ in range(self.rng.randint(0, len(trainee.outbox))):
            trainee.outbox.pop()
        self.disconnect("worker", name, trainee.life[1])
        code = None if signal else 1
        if node.up:
            self.act(
                node,
                supervision.exited(node.table, name, trainee.life[1], 1, code=code, signal=signal),
            )

    # --- Connections, as the server reports them ----------------------------------------------

    def connect(self, kind: str, name: str, incarnation: int) -> None:
        client = f"{kind}/{name}/{incarnation}"
        self.clients[client] = self.clients.get(client, 0) + 1
        self.advisories.append(("connect", client, self.clients[client]))

    def disconnect(self, kind: str, name: str, incarnation: int) -> None:
        client = f"{kind}/{name}/{incarnation}"
        self.advisories.append(("disconnect", client, self.clients[client]))

    def advise(self) -> None:
        """The server's own report, as it writes it."""
        if not self.advisories:
            return
        kind, client, number = self.advisories.popleft()
        self.fresh = 0
        data = advisory(kind, client, number, after=len(self.log))
        self.append_raw(subjects.advisory("c", kind), data)
