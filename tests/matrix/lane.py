"""One fleet in which faults are tried one after the other: a server, two control planes, the agents
of two nodes, and a task on both whose members are pretended. Each process has a tap of its own."""

import asyncio
import collections
import contextlib
import os
import re
import signal
import sys

import msgspec

from tests.matrix.tap import Tap
from tests.real.fleet import CLUSTER, TASK, Fleet
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.tables import ENDED
from unicron.controlplane.replay import Replayer
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import (
    GenerationClosed,
    NodeAdmitted,
    PlanSolved,
    TransitionOrdered,
    WorkerExited,
    WorkerStarted,
    WorkerStartOrdered,
)

CONTROL = ("a", "b")
NODES = ("n1", "n2")
#: The node whose worker is killed, and whose agent is the publisher.
NODE = NODES[0]
WORKER = f"{NODE}/0"
_TASK = msgspec.structs.replace(TASK, iterations=1_000_000, max_devices=2)
_FOLLOWS = re.compile(r"leads since #(\d+)")


class Lane(Fleet):
    """Use as ``async with``. `nodes`: agents by the name of their node."""

    def __init__(self, folder):
        self.server = NatsServer(folder / "nats", CLUSTER)
        self.taps = {}
        self.nodes = {}
        self._said_at = collections.Counter()
        super().__init__("", folder)

    def address(self, name):
        return self.taps[name].url

    async def __aenter__(self):
        async with contextlib.AsyncExitStack() as ends:
            await ends.enter_async_context(self.server)
            self.url = self.server.url
            for name in (*CONTROL, *NODES):
                url = self.server.node_url if name in NODES else self.url
                self.taps[name] = await ends.enter_async_context(Tap(url))
            await super().__aenter__()
            ends.push_async_exit(super().__aexit__)
            ends.push_async_callback(self._end_nodes)
            (self.folder / "task.json").write_bytes(msgspec.json.encode(_TASK))
            for name in NODES:
                self.begin(name)
            for name in CONTROL:
                await self.begin_control(name)
                await self.until(lambda: self.state.term)
            await self.rests()
            self._ends = ends.pop_all()
        return self

    async def __aexit__(self, *error):
        await self._ends.aclose()

    # --- Processes --------------------------------------------------------------------------------

    async def begin_control(self, name):
        path = self.folder / f"{name}.err"
        self._said_at[name] = path.stat().st_size if path.exists() else 0
        await self.start(name, "--task", str(self.folder / "task.json"), "--when-nodes", "2")

    def begin(self, node):
        """An agent begins."""
        command = [sys.executable, "-m", "unicron.worker_shim.agent", "--cluster", CLUSTER]
        command += ["--node", node, "--devices", "1", "--run-dir", str(self.folder / "run")]
        command += ["--die-with-parent", str(os.getpid()), "--preload", "none", "--grace-s", "5"]
        command += ["--entry", "tests.matrix.shim:run"]
        command += ["--store-entry", "tests.worker_shim.stubs:host_store"]
        self.nodes[node] = asyncio.ensure_future(self._spawn(node, command))

    async def _spawn(self, node, command):
        with (self.folder / f"{node}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                env=os.environ | {"UNICRON_NATS": self.address(node)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def process(self, name):
        """Of a control plane or an agent."""
        return await self.nodes[name] if name in self.nodes else self.processes[name]

    async def _end_nodes(self):
        for node in self.nodes:
            process = await self.process(node)
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            await process.wait()

    def pid(self, worker):
        """Of the worker's newest life."""
        started = [b for b in self.bodies(WorkerStarted) if b.worker == worker]
        return started[-1].pid

    # --- What is waited for -----------------------------------------------------------------------

    async def rests(self):
        """Everybody lives, the task trains on both nodes, and nothing is left to decide."""
        try:
            await self.until(lambda: self.unrest() == "")
        except TimeoutError:
            raise AssertionError(f"no rest: {self.unrest()}") from None

    def unrest(self):
        """What isn't as it should be, "" if all is."""
        state = self.state
        task = state.tasks.get(_TASK.task)
        if task is None or task.phase in ENDED:
            return f"no task that runs: {task}"
        if task.phase != "running" or task.target or len(task.committed) < len(NODES):
            return f"{task.phase}, {len(task.committed)} of {len(NODES)} have committed"
        away = [n for n in NODES if state.nodes[n].status != "healthy"]
        opened = [i.what for i in state.incidents.values() if not i.resolved]
        follower = self.other(state.leader)
        if not away and not opened and not self.hears(follower, state.term):
            return f"{follower} doesn't follow"
        return f"{away} {opened} {state.causes}" if away or opened or state.causes else ""

    def other(self, name):
        return CONTROL[1] if name == CONTROL[0] else CONTROL[0]

    def hears(self, name, term):
        """The instance has said in this life that it follows whoever leads in this term."""
        said = self.said(name)[self._said_at[name] :]
        return str(term) in _FOLLOWS.findall(said)

    async def seen(self):
        """All that is in the log now is folded here."""
        last = await self.log.last_seq()
        await self.until(lambda: self.state.seq >= last)

    # --- What has to hold in the end --------------------------------------------------------------

    async def check(self):
        """Facts once, one decision a cause, equal digests: of whoever led and of a replay."""
        leader = self.state.leader
        await self.works("x1")  # each decides something on the whole history, and says its digest
        await self.end(leader)
        await self.leads(self.other(leader))
        await self.works("x2")
        # Taken down before the log is read: who still has something to say goes on meanwhile.
        acknowledged = set().union(*(tap.acknowledged for tap in self.taps.values()))
        await self.seen()
        Replayer(tuple(self.entries)).verify().require()
        self.check_facts(acknowledged)
        self.check_decisions()

    def check_facts(self, acknowledged):
        """Whatever was acknowledged is in the log once, and was folded once."""
        stored = collections.Counter(r.id for r in self.entries)
        assert [name for name, count in stored.items() if count > 1] == []
        assert acknowledged
        assert acknowledged - set(stored) == set()
        assert (self.state.gaps, self.state.duplicates) == (0, 0)

    def check_decisions(self):
        """Nothing was decided, and no order carried out, a second time."""
        made = collections.Counter()
        for recorded in self.in_force():
            body, term = recorded.envelope.body, recorded.envelope.term
            match body:
                case GenerationClosed() | TransitionOrdered():
                    made[type(body), body.task, body.generation] += 1
                case WorkerStartOrdered():  # a new leader gives what nobody confirmed again
                    made[type(body), body.worker, body.incarnation, term] += 1
                case WorkerStarted() | WorkerExited():
                    made[type(body), body.worker, body.incarnation] += 1
                case NodeAdmitted():
                    made[type(body), body.node, self.life(body.node, recorded.seq)] += 1
                case PlanSolved():
                    made[type(body), body.request] += 1
        assert [key for key, count in made.items() if count > 1] == []
        exits = [
            r.seq
            for r in self.entries
            if isinstance(getattr(r.envelope, "body", None), WorkerExited)
            and not r.envelope.body.ordered
        ]
        evidence = collections.Counter(
            seq for incident in self.state.incidents.values() for seq in incident.evidence
        )
        assert {seq: evidence[seq] for seq in exits if evidence[seq] > 1} == {}

    def in_force(self):
        """Events but decisions that facts had overtaken, which are made anew."""
        state = ClusterState()
        for recorded in self.entries:
            before, state = state, fold(state, recorded)
            if recorded.envelope is not None and state.void == before.void:
                yield recorded

    def life(self, node, seq):
        """Which life of its agent the node was in."""
        started = [
            r
            for r in self.entries[: seq - 1]
            if r.envelope is not None and r.envelope.source.who == f"agent/{node}"
        ]
        return started[-1].envelope.source.incarnation if started else 0
