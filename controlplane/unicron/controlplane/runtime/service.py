"""The control plane as a process of its own.

    UNICRON_NATS=nats://… python -m unicron.controlplane.runtime.service --cluster C

The log's address comes by the environment because it may hold a password.
"""

import argparse
import contextlib
import importlib.metadata
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import msgspec
import setproctitle

from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.runtime import looplag
from unicron.controlplane.runtime.configfile import read_configuration
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.jetstream import connect
from unicron.controlplane.runtime.leadership import Role
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.controlplane.runtime.observer import Observer
from unicron.controlplane.runtime.opening import open_log
from unicron.controlplane.runtime.solver import ChildSolver
from unicron.controlplane.runtime.taskfile import read_tasks
from unicron.controlplane.runtime.writer import NotLeading
from unicron.events import ConfigError, Planning, TaskSpec, Term, UnicronError
from unicron.worker_shim.process import die_with_parent

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class WhoLeads(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads the cluster, and what this instance does."""

    role: Role
    instance: str
    leader: str
    term: Term

    def text(self, cluster: str) -> str:
        """For people."""
        if self.role is Role.LEADER:
            return f"control plane {self.leader} leads cluster {cluster}"
        return f"following; control/{self.leader} leads since #{self.term}"


def version() -> str:
    """Version of the installed distribution."""
    return importlib.metadata.version("unicron-controlplane")


async def serve(
    url: str,
    cluster: str,
    *,
    instance: str = "a",
    tasks: tuple[TaskSpec, ...] = (),
    when_nodes: int = 1,
    replicas: int = 1,
    planning: Planning | None = None,
    snapshots: Path | None = None,
    tell: Callable[[str], object] = log.info,
    changed: Callable[["WhoLeads"], object] = lambda _: None,
) -> None:
    """Follow the cluster's log, and lead when it is this instance's turn, until SIGTERM or SIGINT;
    `tell` hears of the signal, of the snapshot it begins from, of a server that is away and of
    every change of leadership, `changed` of the latter alone.
    Whoever leads submits the tasks that the log doesn't know yet, once `when_nodes` nodes are
    healthy. `replicas`: on how many servers a log that is made is kept. `planning`: is in force as
    soon as this instance leads; None leaves it as it is. `snapshots`: a folder for them, besides
    the server's object store. Raises UnicronError, and a
    group only for what is none; leaves nothing behind either way."""
    if not _NAME.fullmatch(instance):
        raise ConfigError(
            f"{instance!r} can't be the name of a control plane",
            fix="use 1 to 64 letters, digits, - and _",
            code="E-CONFIG-INSTANCE",
        )
    connection = await connect(url, name=f"control/{instance}")
    unlisten = connection.listen(*_reach(connection.address, tell))
    solver = ChildSolver()
    observer: Observer | None = None
    try:
        event_log, keeper = await open_log(
            connection, cluster, snapshots=snapshots, replicas=replicas, tell=tell
        )
        bus = NatsBus(connection, cluster)
        observer = Observer.configured(
            cluster=cluster,
            birth=await event_log.birth(),
            instance=instance,
            version=version(),
        )
        engine = Engine(
            event_log,
            bus,
            instance=instance,
            solver=solver,
            version=version(),
            on_event=observer.see if observer else None,
            planning=planning,
            snapshots=keeper,
        )
        with _ungrouped():
            async with anyio.create_task_group() as group:
                group.start_soon(_until_signal, group.cancel_scope, tell)
                group.start_soon(_say_who_leads, engine, instance, tell, changed)
                group.start_soon(engine.run)
                group.start_soon(event_log.keep_texts)
                group.start_soon(_submit, engine, tasks, when_nodes)
                if observer is not None:
                    group.start_soon(observer.run, engine, event_log)
                else:
                    group.start_soon(looplag.watch)
        await event_log.close()
    finally:
        with anyio.CancelScope(shield=True):
            if observer is not None:
                await observer.aclose()
            await solver.aclose()
            unlisten()
            await connection.close()


@contextlib.contextmanager
def _ungrouped() -> Iterator[None]:
    """What a person can mend is raised alone, without the groups of tasks that it went through; a
    bug beside it keeps the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        leaves = _leaves(group)
        if not all(isinstance(leaf, UnicronError) for leaf in leaves):
            raise
        raise leaves[0] from None


def _reach(
    address: str, tell: Callable[[str], object]
) -> tuple[Callable[[], None], Callable[[], None]]:
    """What to call when the connection breaks and when it is there again; told once each."""
    away = False

    def lost() -> None:
        nonlocal away
        if not away:
            away = True
            tell(
                f"the NATS server at {address} is out of reach; nothing is decided until it is back"
            )

    def back() -> None:
        nonlocal away
        if away:
            away = False
            tell(f"the NATS server at {address} is back")

    return lost, back


async def _until_signal(scope: anyio.CancelScope, tell: Callable[[str], object]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            tell(f"ending on {signal.Signals(number).name}")
            scope.cancel()
            return


async def _say_who_leads(
    engine: Engine,
    instance: str,
    tell: Callable[[str], object],
    changed: Callable[[WhoLeads], object],
) -> None:
    said = None
    while True:
        state = engine.state
        if state.term and (engine.leading or engine.follows):
            role = Role.LEADER if engine.leading else Role.FOLLOWER
            now = WhoLeads(role=role, instance=instance, leader=state.leader, term=state.term)
            if now != said:
                said = now
                tell(now.text(state.cluster))
                changed(now)
        await engine.moved()


async def _submit(engine: Engine, tasks: tuple[TaskSpec, ...], when_nodes: int) -> None:
    left = {spec.task: spec for spec in tasks}
    while left:
        left = {name: spec for name, spec in left.items() if name not in engine.state.tasks}
        if engine.leading and _healthy(engine.state) >= when_nodes and left:
            spec = next(iter(left.values()))
            with contextlib.suppress(NotLeading, ValueError):  # whoever leads now has it too
                await engine.submit(spec, by="operator")
                continue
        await engine.moved()


def _healthy(state: ClusterState) -> int:
    return sum(n.status == "healthy" for n in state.nodes.values())


def main(arguments: list[str] | None = None) -> int:
    """Entry of the process; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m unicron.controlplane.runtime.service")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--instance", default="a", help="one name for each of several")
    parser.add_argument("--replicas", type=int, default=1, help="servers that keep a new log")
    parser.add_argument("--task", action="append", default=[], help="task file (TOML or JSON)")
    parser.add_argument("--config", default="", help="what plans rest on (TOML or JSON)")
    parser.add_argument("--snapshots", type=Path, metavar="DIR", help="keep some there as well")
    parser.add_argument("--when-nodes", type=int, default=1, help="submit when so many are healthy")
    parser.add_argument("--die-with-parent", type=int, default=0, metavar="PID")
    given = parser.parse_args(arguments)
    if given.die_with_parent:
        die_with_parent(given.die_with_parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    setproctitle.setproctitle(f"unicron: control plane {given.cluster}")
    url = os.environ.get("UNICRON_NATS", "")
    try:
        if not url:
            raise ConfigError("UNICRON_NATS isn't set", fix="set it to the address of the log")
        tasks = read_tasks(given.task)
        planning = read_configuration(given.config).planning if given.config else None

        async def run() -> None:
            await serve(
                url,
                given.cluster,
                instance=given.instance,
                tasks=tasks,
                when_nodes=given.when_nodes,
                replicas=given.replicas,
                planning=planning,
                snapshots=given.snapshots,
            )

        anyio.run(run)
    except UnicronError as error:
        print(f"control plane: {error}", file=sys.stderr)
        return 2
    return 0


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


if __name__ == "__main__":
    sys.exit(main())
