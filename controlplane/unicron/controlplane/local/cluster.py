"""One cluster of real processes below this one: nats-server, control plane, nodes' agents.

Every process is a descendant of ours and none outlives `stop`. A reader of the log keeps a
folded state here, so that a test or the demo can wait for what the log says, never for a time.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local import processes
from unicron.controlplane.local.silence import Silence, Watched
from unicron.controlplane.runtime.configfile import Configuration
from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import ConfigError, NodeId, Planning, Recorded, TaskSpec, UnicronError
from unicron.worker_shim.forkclient import ForkClient, start_server

#: Nobody waits longer than this for anything the log is to say, unless told otherwise.
WAIT_S = 60.0


class ClusterFailed(UnicronError):
    """A process of the cluster ended, or what was waited for didn't come."""

    default_code = "E-CLUSTER"


class LocalCluster:
    """`root`: an existing folder of our own, with a short path (unix sockets live in it).
    `spec`: the task to train, `beside`: others. `devices`: of each node, unless it is started with
    others. `url`: a running server's address; None starts one, on `port` or any free one.
    `template`: the socket of a fork server that has torch and Megatron imported already; None
    starts one.
    `on_restart`: nats-server, control plane and template are started again if somebody kills them,
    and this is told, as is when one of the first two stands still; None: they are left dead."""

    def __init__(
        self,
        root: Path,
        cluster: str,
        spec: TaskSpec,
        *,
        beside: tuple[TaskSpec, ...] = (),
        devices: int = 2,
        url: str | None = None,
        port: int | None = None,
        template: str | None = None,
        fault_injection: bool = True,
        on_restart: Callable[[str], None] | None = None,
    ) -> None:
        self.root = root
        self.name = cluster
        self.spec = spec
        self.specs = (spec, *beside)
        self.devices = devices
        self.state = ClusterState()
        self.events: list[Recorded] = []
        self.template = template
        self._url = url
        self._port = port
        self._fault_injection = fault_injection
        self._on_restart = on_restart
        self._keeping: asyncio.Task[None] | None = None
        self._when_nodes = 1
        self._gives_up: float | None = None
        self._server: NatsServer | None = None
        self._log: JetStreamLog | None = None
        self._client: ForkClient | None = None
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._reader: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._birth = ""

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Server, log and template. Raises ConfigError, ClusterFailed."""
        if self._url is None:
            self._server = NatsServer(self.root / "nats", self.name, port=self._port)
            await self._server.start()
        self._log = await JetStreamLog.connect(self.url, self.name, name="reader/local")
        if self._url is not None and await self._log.last_seq():
            raise ConfigError(
                f"the log of cluster {self.name} at the given server is not empty",
                why="the demo starts a cluster of its own and would mix with that one",
                fix="give another --cluster, or a fresh server",
                code="E-LOG-NOT-EMPTY",
            )
        self._birth = await self._log.birth()
        self._reader = asyncio.create_task(self._read(), name="reader")
        if self._on_restart is not None:
            self._keeping = asyncio.create_task(self._keep(self._on_restart), name="keep")
        if self.template is None:
            self.template = str(self.root / "template.sock")
            self._client = await self._start_template(self.template)

    async def _start_template(self, socket: str) -> ForkClient:
        process = start_server(
            socket,
            "unicron: fork server template",
            log_path=str(self.root / "template.log"),
            die_with_parent=True,
        )
        return await ForkClient.connect(socket, lambda _: None, limit_s=180.0, server=process)

    async def living_template(self) -> str:
        """Socket of the template; one of ours that was killed is started again (see `on_restart`),
        which takes seconds. Raises ForkServerError."""
        assert self.template is not None, "not started"
        if self._client is not None and self._client.is_closed and self._on_restart is not None:
            self._on_restart("the fork server template was killed: starting another one")
            await self._client.close()
            self._client = await self._start_template(self.template)
        return self.template

    async def start_control(self, when_nodes: int) -> None:
        """The control plane; it submits the tasks once so many nodes are healthy."""
        self._when_nodes = when_nodes
        tasks: list[str] = []
        for spec in self.specs:
            path = self.root / f"{spec.task}.task.json"
            path.write_bytes(msgspec.json.encode(spec))
            tasks += ["--task", str(path)]
        # The devices share cores, so the times of iterations tell little of a layout.
        config = self.root / "configuration.json"
        planning = Planning(measured_step_times=False)
        config.write_bytes(msgspec.json.encode(Configuration(planning=planning)))
        await self._spawn(
            "control",
            "unicron.controlplane.runtime.service",
            [
                *("--cluster", self.name, *tasks, "--when-nodes", str(when_nodes)),
                *("--config", str(config)),
                *("--die-with-parent", str(os.getpid())),
            ],
            self.url,
        )

    async def _keep(self, tell: Callable[[str], None]) -> None:
        """What a service manager does for the two: start them again when they were killed. One
        that was stopped is the person's own doing, and is named."""
        silence = Silence(tell)
        while True:
            await asyncio.sleep(0.1)
            for watched in self._watched():
                silence.look(watched, time.monotonic(), self._gives_up)
            if self._server is not None and self._server.pid is None:
                tell("nats-server was killed: started again")
                await self._server.start()
            control = self._children.get("control")
            if control is not None and (control.returncode or 0) < 0:
                tell("the control plane was killed: started again")
                await self.start_control(self._when_nodes)

    def _watched(self) -> list[Watched]:
        """The control plane hears ten beats a second; a server may have nothing to do."""
        found = []
        control = self._children.get("control")
        if control is not None and control.returncode is None:
            found.append(Watched(name="the control plane", pid=control.pid, busy=True))
        if self._server is not None and self._server.pid is not None:
            found.append(Watched(name="nats-server", pid=self._server.pid, busy=False))
        return found

    async def kill_control(self) -> None:
        """SIGKILL to the control plane; start_control starts another one."""
        child = self._children.pop("control")
        child.kill()
        await child.wait()

    async def kill_server(self) -> None:
        """SIGKILL to nats-server."""
        await self._running_server.kill()

    async def restart_server(self) -> None:
        """The same server again, on the same port and store."""
        await self._running_server.start()

    async def start_agent(self, node: str, devices: int | None = None) -> None:
        """A node comes up, with so many devices."""
        template = await self.living_template()
        offered = self.devices if devices is None else devices
        arguments = ["--cluster", self.name, "--node", node, "--devices", str(offered)]
        arguments += ["--run-dir", str(self.root), "--template", template]
        arguments += ["--die-with-parent", str(os.getpid())]
        if self._fault_injection:
            arguments.append("--fault-injection")
        url = self._server.node_url if self._server is not None else self.url
        await self._spawn(f"agent {node}", "unicron.worker_shim.agent", arguments, url)

    async def _spawn(self, name: str, module: str, arguments: list[str], url: str) -> None:
        log_path = self.root / f"{name.replace(' ', '-')}.log"
        with log_path.open("ab") as log:
            self._children[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "UNICRON_NATS": url, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        """The log's address with the control plane's rights."""
        return self._url if self._url is not None else self._running_server.url

    @property
    def _running_server(self) -> NatsServer:
        assert self._server is not None
        return self._server

    async def stop(self) -> None:
        """End everything, in good order where it still answers; nothing is left running."""
        if self._keeping is not None:
            self._keeping.cancel()
        order = [n for n in self._children if n.startswith("agent")] + ["control"]
        for name in order:
            child = self._children.get(name)
            if child is not None and child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signal.SIGTERM)
        for name in order:
            child = self._children.get(name)
            if child is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.wait(), 8.0)
        await self.close_log()
        if self._client is not None:
            with contextlib.suppress(UnicronError, TimeoutError):
                await asyncio.wait_for(self._client.shutdown(), 5.0)
            await self._client.close()
        if self._server is not None:
            await self._server.stop()
        for child in self._children.values():
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()

    async def close_log(self) -> None:
        """Stop reading; what was read stays."""
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, UnicronError):
                await self._reader
        if self._log is not None:
            await self._log.close()
            self._log = None

    # --- reading --------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Version of the product that runs."""
        return importlib.metadata.version("unicron-controlplane")

    @property
    def birth(self) -> str:
        """What tells this log from any other."""
        return self._birth

    @property
    def log(self) -> JetStreamLog:
        """The open log."""
        assert self._log is not None, "not started"
        return self._log

    async def _read(self) -> None:
        async for recorded in self.log.read(1):
            self.events.append(recorded)
            self.state = fold(self.state, recorded)
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()

    async def until(
        self, what: str, holds: Callable[[ClusterState], bool], limit_s: float = WAIT_S
    ) -> ClusterState:
        """Wait until the folded state `holds`; that state.

        Raises:
            ClusterFailed: not within the limit, or a process that must live ended meanwhile.
        """
        self._gives_up = time.monotonic() + limit_s
        try:
            async with asyncio.timeout(limit_s):
                while not holds(self.state):
                    self._check()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._moved.wait(), 0.25)
        except TimeoutError:
            raise ClusterFailed(
                f"waited {limit_s:.0f} s in vain: {what}",
                why=self._tell(),
                fix="run it again with --keep DIR and look at the logs there",
            ) from None
        finally:
            self._gives_up = None
        return self.state

    def _check(self) -> None:
        if self._reader is not None and self._reader.done():
            self._reader.result()
        control = self._children.get("control")
        killed = control is not None and (control.returncode or 0) < 0
        if killed and self._on_restart is not None:
            return
        if control is not None and control.returncode is not None:
            tail = (self.root / "control.log").read_text(errors="replace")[-1500:]
            raise ClusterFailed(f"the control plane ended with code {control.returncode}", why=tail)

    def _tell(self) -> str:
        tasks = [
            f"{task.spec.task} {task.phase} generation {task.generation}"
            for task in self.state.tasks.values()
        ]
        nodes = {n.node: n.status for n in self.state.nodes.values()}
        workers = {w.worker: w.status for w in self.state.workers.values()}
        where = ", ".join(tasks) or "no task"
        return f"at #{self.state.seq}: {where}, nodes {nodes}, workers {workers}"

    # --- nodes and workers ----------------------------------------------------------------------

    def node_pids(self, node: str) -> dict[str, int]:
        """Pids of the node's agent, fork server and store host, as the agent wrote them down."""
        state = json.loads((self.root / node / "agent.json").read_text())
        return {name: state[name] for name in ("pid", "fork_server", "store")}

    def worker_pid(self, worker: str) -> int:
        """Pid of the newest incarnation, from its progress page."""
        from unicron.worker_shim.page import PageReader

        reader = PageReader(self.page_path(worker))
        progress = reader.read()
        reader.close()
        if progress is None:
            raise ClusterFailed(f"no progress page of {worker}")
        return progress.pid

    def page_path(self, worker: str, incarnation: int | None = None) -> str:
        """Progress page of an incarnation of the worker, the newest if None."""
        node, _, device = worker.partition("/")
        if incarnation is None:
            incarnation = self.state.workers[worker].incarnation
        return str(self.root / node / f"w{device}.{incarnation}.page")

    def journals(self) -> list[Path]:
        """Journals of all worker incarnations so far."""
        return sorted(self.root.glob("*/w*.journal"))

    def kill_node(self, node: NodeId | str) -> None:
        """Power off: agent, workers, fork server and store die at once."""
        self.signal_node(node, signal.SIGKILL)

    def signal_node(self, node: NodeId | str, number: signal.Signals) -> None:
        """Send a signal to all processes of the node."""
        pids = self.node_pids(node)
        below = processes.descendants(pids["fork_server"]) if pids["fork_server"] else []
        for pid in (pids["pid"], *below, pids["fork_server"], pids["store"]):
            if pid:
                processes.kill(pid, number)
