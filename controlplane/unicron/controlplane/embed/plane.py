"""The embedded control plane: everything that ``unicron up`` starts, inside the host's own loop."""

import asyncio
import contextlib
import importlib.metadata
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import msgspec

from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.embed.approval import ApprovingSolver
from unicron.controlplane.embed.arguments import check_arguments
from unicron.controlplane.embed.bus import HostBus, OuterBus
from unicron.controlplane.embed.failure import surfaced
from unicron.controlplane.embed.hosting import Hosting
from unicron.controlplane.embed.scheduler import Scheduler
from unicron.controlplane.embed.stream import EventStream
from unicron.controlplane.runtime import data_folder, looplag
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.controlplane.runtime.observer import Observer
from unicron.controlplane.runtime.ports import EventLog, Solver
from unicron.controlplane.runtime.snapshots import SnapshotKeeper
from unicron.controlplane.runtime.solver import ChildSolver
from unicron.events import (
    LogUnreachable,
    NodeId,
    Planning,
    Recorded,
    Sequence,
    TaskSpec,
    Term,
)


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads the cluster. `term` and `leader` are the newest in the log; `leading`: it is us."""

    leading: bool
    instance: str
    leader: str
    term: Term


class ControlPlane:
    """One control plane in this process; enter and leave it in the same task, once.

        async with ControlPlane("prod", nats="nats://…", scheduler=MyScheduler()) as plane:
            await plane.submit(task)
            async for event in plane.events(): ...

    Inside, the cluster is led from here, or its log is followed while another instance leads, until
    that one ends, dies or hangs: `leadership` says so. What ends that cancels the block and is
    raised by it as it is: InvariantViolated (a bug of ours), LogError and its kinds (the log is
    broken, another one, or away for good), and whatever ``Scheduler.nodes`` raises. Leaving it
    stops the workers of the scheduler's nodes and leaves no task, socket or process.
    """

    def __init__(
        self,
        cluster: str,
        *,
        nats: str | None = None,
        data: Path | None = None,
        log: EventLog | None = None,
        scheduler: Scheduler | None = None,
        spool: Path | None = None,
        solver: Solver | None = None,
        instance: str = "embedded",
        planning: Planning | None = None,
        approval_limit_s: float = 3.0,
        start_limit_s: float = 30.0,
    ) -> None:
        """Where the log is: `nats`, the address of a server (user and password in it); or `log`,
        such as a MemoryLog; or neither: a private server is started for this process, which keeps
        the log in `data`, or in a temporary folder that goes with it.

        `scheduler`: the host's, which is asked for nodes from when this instance first leads;
        without one, nodes run Unicron's agents, at `agents_url`. `spool`: a folder where what its
        nodes have to tell outlives this process. `instance`: another name for each of several on
        one log. `planning`: what plans rest on besides nodes and tasks, in force as soon as this
        instance leads; None leaves it as the log says. `solver`: instead of the planner in a child
        process. `approval_limit_s`: how long Scheduler.approve may take, up to 4 s.
        `start_limit_s`: how long entering may take.

        Raises:
            ConfigError: the arguments contradict each other, or `planning` makes no sense.
        """
        self._planning = check_arguments(
            cluster,
            nats=nats,
            data=data,
            log=log,
            planning=planning,
            approval_limit_s=approval_limit_s,
        )
        self.cluster = cluster
        #: Address of the log for agents and workers; "" if there is none (a log in memory).
        self.agents_url = nats or ""
        self._nats = nats
        self._data = data
        self._given = log
        self._scheduler = scheduler
        self._spool = spool
        self._solver = solver
        self._instance = instance
        self._approval_limit_s = approval_limit_s
        self._start_limit_s = start_limit_s
        self._resources = contextlib.AsyncExitStack()
        self._streams: set[EventStream] = set()
        self._group: anyio.abc.TaskGroup | None = None
        self._server: NatsServer | None = None
        self._log: EventLog | None = None
        self._snapshots: SnapshotKeeper | None = None
        self._engine: Engine | None = None

    # --- Coming and going -------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Leads once this returns, or follows another instance that does.

        Raises:
            ConfigError: there is no server at the address, or none could be started.
            LogError: the log can't be used, or nothing could be written within the limit.
        """
        assert self._engine is None, "a ControlPlane is entered once; make another one"
        try:
            await self._begin()
        except BaseException as error:
            ended = await self._end(error)
            if ended is not None and ended is not error:
                raise ended from None
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = await self._end(raised)
        if ended is not None and ended is not raised:
            raise ended from None

    async def _begin(self) -> None:
        event_log, bus = await self._open_log()
        solver = self._solver
        if solver is None:
            solver = ChildSolver()
            self._resources.push_async_callback(solver.aclose)
        hosting = None
        host_bus = HostBus(bus)
        if self._scheduler is not None:
            hosting = Hosting(event_log, host_bus, self._scheduler, self.agents_url, self._spool)
            solver = ApprovingSolver(
                solver,
                self._scheduler.approve,
                type(self._scheduler).__name__,
                limit_s=self._approval_limit_s,
            )
        version = importlib.metadata.version("unicron-controlplane")
        birth = await event_log.birth()
        observer = Observer.configured(
            cluster=self.cluster, birth=birth, instance=self._instance, version=version
        )
        if observer is not None:
            self._resources.push_async_callback(observer.aclose)
        listeners = [
            *([hosting.hear] if hosting is not None else []),
            *([observer.see] if observer is not None else []),
        ]

        def folded(state: ClusterState, recorded: Recorded) -> None:
            for listener in listeners:
                listener(state, recorded)

        self._log = event_log
        self._engine = engine = Engine(
            event_log,
            host_bus,
            instance=self._instance,
            solver=solver,
            version=version,
            on_event=folded,
            planning=self._planning,
            snapshots=self._snapshots,
        )
        self._group = group = await anyio.create_task_group().__aenter__()
        if self._server is not None:
            from unicron.controlplane.runtime.serverdisk import keep_writable  # brings nats

            group.start_soon(_until_it_ends, self._server)
            group.start_soon(keep_writable, self._server)
        group.start_soon(engine.run)
        await self._ready(engine)
        if observer is not None:
            group.start_soon(observer.run, engine, event_log)
        else:
            group.start_soon(looplag.watch)
        if hosting is not None:
            group.start_soon(host_bus.run)
            if engine.leading:
                group.start_soon(_outcome, self._host(hosting))
            else:
                group.start_soon(self._host_once_leading, hosting, engine)

    async def _open_log(self) -> tuple[EventLog, OuterBus | None]:
        if self._given is not None:
            return self._given, None
        # Only here, so that a log in memory needs no NATS.
        from unicron.controlplane.runtime.jetstream import JetStreamLog, connect
        from unicron.controlplane.runtime.natsbus import NatsBus
        from unicron.controlplane.runtime.opening import open_log

        url = self._nats
        if url is None:
            serving = data_folder.serving(self._folder(), self.cluster)
            self._server = server = await self._resources.enter_async_context(serving)
            url, self.agents_url = server.url, server.node_url
        connection = await connect(url, name=f"control/{self._instance}")
        self._resources.push_async_callback(connection.close)
        if self._nats is None and self._data is None:  # the log ends with this process
            event_log = await JetStreamLog.open(connection, self.cluster)
        else:
            folder = self._data / data_folder.SNAPSHOTS if self._data is not None else None
            event_log, self._snapshots = await open_log(connection, self.cluster, snapshots=folder)
        self._resources.push_async_callback(event_log.close)
        texts = asyncio.create_task(event_log.keep_texts(), name="a place for long texts")
        self._resources.callback(texts.cancel)
        return event_log, NatsBus(connection, self.cluster)

    def _folder(self) -> Path:
        if self._data is not None:
            return self._data
        made = tempfile.TemporaryDirectory(prefix="unicron-", ignore_cleanup_errors=True)
        return Path(self._resources.enter_context(made))

    async def _host_once_leading(self, hosting: Hosting, engine: Engine) -> None:
        """Nodes are offered by one process; when another leads later they stay here."""
        while not engine.leading:
            await engine.moved()
        await _outcome(self._host(hosting))

    def _host(self, hosting: Hosting) -> asyncio.Task[None]:
        """Nodes of the host in a task of their own, which what cancels the block doesn't reach:
        workers are stopped in order, however it ends."""
        task = asyncio.create_task(hosting.run(), name=f"hosting {self.cluster}")

        async def close() -> None:
            await hosting.close("the control plane was left")
            task.cancel()
            await asyncio.wait({task})

        self._resources.push_async_callback(close)
        return task

    async def _ready(self, engine: Engine) -> None:
        with anyio.move_on_after(self._start_limit_s):
            while not (engine.leading or (engine.follows and engine.state.term)):
                await engine.moved()
            return
        limit = f"{self._start_limit_s:g} s"
        raise LogUnreachable(
            f"the control plane of {self.cluster} neither leads nor follows after {limit}",
            why="the log could not be read to its end, or not be written",
            fix="check the log's server, or give a larger start_limit_s",
        )

    async def _end(self, raised: BaseException | None) -> BaseException | None:
        """Everything ends. What is to be raised: `raised` itself if nothing else ended it."""
        group, self._group = self._group, None
        ended = raised
        if group is not None:
            group.cancel_scope.cancel()
            try:
                trace = raised.__traceback__ if raised is not None else None
                await group.__aexit__(type(raised) if raised else None, raised, trace)
            except BaseException as error:
                ended = error
        with anyio.CancelScope(shield=True):
            for stream in list(self._streams):
                await stream.aclose()
            await self._resources.aclose()
        return surfaced(ended, raised)

    # --- What it is used for ----------------------------------------------------------------------

    @property
    def state(self) -> ClusterState:
        """The cluster as the log says it, up to the last event folded. It is immutable: keep it as
        long as you like."""
        return self._running.state

    @property
    def leadership(self) -> Leadership:
        """Who leads. `until` looks again whenever that changes, too."""
        engine = self._running
        return Leadership(
            leading=engine.leading,
            instance=self._instance,
            leader=engine.state.leader,
            term=engine.state.term,
        )

    async def submit(self, task: TaskSpec, *, by: str = "embedder") -> Sequence:
        """Hand in a task; its sequence once it is durable. It is planned once there are nodes.
        There is no way yet to cancel it.

        Raises:
            ValueError: its name is taken, or a value of it has another type than TaskSpec says.
            NotLeading: another instance has to be asked.
        """
        return await self._running.submit(task, by)

    async def give_back(self, node: NodeId | str, *, reason: str, by: str = "embedder") -> Sequence:
        """An isolated node is well again and may be used; the sequence of that.

        Raises:
            ValueError: nothing keeps it apart.
            NotLeading: another instance has to be asked.
        """
        return await self._running.give_back(NodeId(node), by, reason)

    async def configure(self, planning: Planning, *, by: str = "embedder") -> Sequence | None:
        """Plans rest on this from here on, in place of what was configured before, and the cluster
        is planned anew; the sequence of that, None if it is in force already. This instance says
        so again whenever it comes to lead.

        Raises:
            ValueError: it makes no sense; the message names the field.
            NotLeading: another instance has to be asked.
        """
        return await self._running.configure(planning, by)

    def events(self, *, after: int | None = None) -> EventStream:
        """The entries of the log behind the sequence `after`, and then those to come; None: only
        those to come. `state` contains each one by the time it is given out."""
        engine, log = self._running, self._log
        assert log is not None
        start = engine.state.seq if after is None else after
        stream = EventStream(log.read(start + 1), engine, self._streams.discard)
        self._streams.add(stream)
        return stream

    async def history(self) -> tuple[Recorded, ...]:
        """The whole log up to now, as Replayer takes it."""
        last = self.state.seq
        stream = self.events(after=0)
        try:
            found: list[Recorded] = []
            while len(found) < last:
                found.append(await anext(stream))
        finally:
            await stream.aclose()
        return tuple(found)

    async def until(
        self, holds: Callable[[ClusterState], bool], *, limit_s: float = 60.0
    ) -> ClusterState:
        """Wait until `holds(state)`; that state. It is asked after every event.

        Raises:
            TimeoutError: it didn't come to hold within `limit_s`.
        """
        engine = self._running
        with anyio.move_on_after(limit_s):
            while not holds(state := engine.state):
                await engine.moved()
            return state
        raise TimeoutError(f"what was waited for didn't come within {limit_s:g} s")

    @property
    def _running(self) -> Engine:
        if self._engine is None:
            raise RuntimeError(
                "the control plane isn't entered: use `async with ControlPlane(...)`"
            )
        return self._engine


async def _until_it_ends(server: NatsServer) -> None:
    raise LogUnreachable(
        "the private nats-server has ended",
        why=f"its exit code is {await server.wait()}",
        fix=f"see {server.root / 'nats-server.log'}; what it stored is still there",
        code="E-NATS-ENDED",
    )


async def _outcome(task: asyncio.Task[None]) -> None:
    """Raise what ends the task; it goes on if this is cancelled."""
    await asyncio.wait({task})
    task.result()
