"""The agent: starts and supervises a node's workers, beats for them, tells the log what happens.

    export UNICRON_NATS=nats://...
    python -m unicron.worker_shim.agent --cluster C --node n1 --devices 2 --run-dir DIR

The address of the log comes by the environment because it may hold a password. What to do about
an order is decided in supervision.py and carried out in workers.py; here is the rest.
"""

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import logging
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import setproctitle

from unicron.events import codec, subjects
from unicron.events.beat import Beat
from unicron.events.envelope import Envelope
from unicron.events.errors import ConfigError, UnicronError
from unicron.events.ids import ClusterId, Incarnation, NodeId, Sequence
from unicron.events.node import AgentStarted, AgentStopped, NodeLost, StoreBound
from unicron.worker_shim.forkprotocol import DEFAULT_GRACE_S, Exited
from unicron.worker_shim.identity import agent_identity
from unicron.worker_shim.keeper import Keeper, KeeperOptions
from unicron.worker_shim.leftovers import Leftovers
from unicron.worker_shim.longtext import LongTexts
from unicron.worker_shim.nodefolder import STATE_FILE, claim, unusable
from unicron.worker_shim.preload import MODES
from unicron.worker_shim.process import die_with_parent
from unicron.worker_shim.spool import SUFFIX, SpoolFile
from unicron.worker_shim.transport import Transport
from unicron.worker_shim.workers import Workers, WorkersOptions

log = logging.getLogger(__name__)

BEAT_S = 0.2
#: Grace of the workers when the agent itself is ended.
_OWN_GRACE_MS = 1000
_FLUSH_LIMIT_S = 3.0
#: What `Agent.run` returns when its node was declared lost: a new life has to begin.
DECLARED_LOST = -1


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    device_kind: str
    rack: str
    workers: WorkersOptions
    keeper: KeeperOptions


class Agent:
    """One life of the agent; `run` until SIGTERM, SIGINT, or the news that it is over."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._node = options.keeper.node
        self._folder = options.keeper.folder
        self._incarnation = Incarnation(time.time_ns())
        self._keeper = Keeper(options.keeper, self._on_child_exit, self._on_keeper_change)
        identity = agent_identity(options.workers.cluster, self._node, self._incarnation)
        spool = os.path.join(self._folder, f"agent.{self._incarnation}{SUFFIX}")
        self._transport = Transport(
            identity,
            options.workers.nats_url,
            self._on_order,
            spool=SpoolFile(spool, identity.owner),
        )
        self._leftovers = Leftovers(self._folder, identity.cluster, self._transport.facts)
        self._workers = Workers(
            options.workers,
            self._incarnation,
            self._keeper,
            self._transport.publish,
            self._leftovers,
        )
        self._texts = LongTexts(self._folder, self._store_text)
        self._announced_port = 0
        self._stop = asyncio.Event()
        self._declared_lost = False

    async def run(self) -> int:
        """The process's exit code, or DECLARED_LOST. Leaves no process and no socket, however it
        ends."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        code = 0
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._transport.run(), name="transport")]
            try:
                if await self._bring_up():
                    tasks.append(group.create_task(self._keeper.run(), name="keeper"))
                    tasks.append(group.create_task(self._beat(), name="beat"))
                    tasks.append(group.create_task(self._texts.run(), name="texts"))
                    await self._stop.wait()
            except UnicronError as error:
                print(f"agent {self._node}: {error}", file=sys.stderr)
                code = 2
            finally:
                await self._tear_down(tasks)
        return DECLARED_LOST if self._declared_lost else code

    async def _bring_up(self) -> bool:
        """Fork server, store, what earlier lives left unsaid, and the fact that we are here. False:
        told to stop meanwhile."""
        starting = asyncio.ensure_future(self._start())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return False
            starting.result()
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.wait({starting, stopping})
        self._announced_port = self._keeper.store_port
        self._write_state()
        self._transport.publish(
            AgentStarted(
                node=self._node,
                address=self._options.keeper.address,
                store_port=self._keeper.store_port,
                devices=self._options.workers.devices,
                device_kind=self._options.device_kind,
                rack=self._options.rack,
                version=importlib.metadata.version("unicron-controlplane"),
            )
        )
        return True

    async def _start(self) -> None:
        try:
            await self._keeper.start()
            await self._leftovers.of_earlier_lives()
        except OSError as error:
            raise unusable(self._folder, error) from error

    async def _tear_down(self, tasks: list[asyncio.Task[None]]) -> None:
        """Workers first, then the news of it, then what they ran on."""
        await self._workers.close(0 if self._declared_lost else _OWN_GRACE_MS)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks[1:], return_exceptions=True)
        if self._announced_port and not self._declared_lost:
            self._transport.publish(AgentStopped(node=self._node, reason="it was told to stop"))
            if not await self._transport.flush(_FLUSH_LIMIT_S):
                waiting = self._transport.facts.waiting
                log.error("the log is away; %d facts wait for the next agent", waiting)
        await self._keeper.close()
        tasks[0].cancel()
        self._transport.facts.close()
        for path in (self._state_path, f"{self._state_path}.new"):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _on_order(self, sequence: Sequence, envelope: Envelope) -> None:
        if not self._announced_port:  # before that we don't exist; it will be said again
            return
        body = envelope.body
        if isinstance(body, NodeLost):
            if body.node == self._node and body.incarnation == self._incarnation:
                self._end_this_life(body)
            return
        self._workers.on_order(sequence, envelope)

    def _end_this_life(self, verdict: NodeLost) -> None:
        """We were silent or cut off for so long that the cluster goes on without us. What we still
        run takes part in nothing any more: end it, and come back as somebody new."""
        log.warning("declared lost (%s): all workers end, a new life begins", verdict.evidence)
        self._declared_lost = True
        self._stop.set()

    def _on_child_exit(self, exited: Exited) -> None:
        self._workers.on_child_exit(exited)

    def _on_keeper_change(self) -> None:
        self._write_state()
        if self._keeper.store_port != self._announced_port:
            self._announced_port = self._keeper.store_port
            self._transport.publish(
                StoreBound(
                    node=self._node,
                    address=self._options.keeper.address,
                    store_port=self._keeper.store_port,
                )
            )

    async def _store_text(self, sha256: str, part: int, data: bytes) -> str:
        subject = subjects.text(self._options.workers.cluster, self._node, sha256, part)
        return await self._transport.put(subject, data)

    async def _beat(self) -> None:
        subject = subjects.beat(self._options.workers.cluster, self._node)
        loop = asyncio.get_running_loop()
        number, due = 0, loop.time()
        while True:
            number += 1
            beat = Beat(
                node=self._node,
                incarnation=self._incarnation,
                number=number,
                workers=self._workers.beats(),
                spool=self._transport.facts.waiting + self._workers.spooled(),
            )
            await self._transport.send(subject, codec.encode_beat(beat))
            due = max(due + BEAT_S, loop.time())
            await asyncio.sleep(due - loop.time())

    @property
    def _state_path(self) -> str:
        return os.path.join(self._folder, STATE_FILE)

    def _write_state(self) -> None:
        """For people and the fault injector: which processes belong to this node. A full disk
        keeps nobody from training."""
        state = {
            "node": self._node,
            "incarnation": self._incarnation,
            "pid": os.getpid(),
            "fork_server": self._keeper.server_pid,
            "store": self._keeper.store_pid,
            "store_port": self._keeper.store_port,
        }
        try:
            with open(f"{self._state_path}.new", "w", encoding="utf-8") as file:
                json.dump(state, file)
            os.rename(f"{self._state_path}.new", self._state_path)
        except OSError as error:
            log.error("%s can't be written: %s", self._state_path, error.strerror)


# --- The command line ---------------------------------------------------------------------------


def parse(arguments: list[str] | None, environment: dict[str, str]) -> AgentOptions:
    """Options from arguments and environment. Raises ConfigError; argparse exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m unicron.worker_shim.agent",
        description="Start and supervise one node's workers. UNICRON_NATS: URL of the log.",
    )
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--devices", type=int, required=True, help="device slots it offers")
    parser.add_argument("--run-dir", required=True, help="for sockets, pages, journals and logs")
    parser.add_argument("--template", default="", help="socket of a fork server to fork from")
    parser.add_argument("--address", default="127.0.0.1", help="where other nodes reach this one")
    parser.add_argument("--device-kind", default="cpu")
    parser.add_argument("--rack", default="")
    parser.add_argument("--grace-s", type=float, default=DEFAULT_GRACE_S)
    parser.add_argument("--fault-injection", action="store_true", help="honour breakpoints")
    parser.add_argument("--preload", choices=MODES, default=MODES[0])
    parser.add_argument("--entry", default="", help="module:function instead of a worker's main")
    parser.add_argument("--store-entry", default="", help="module:function instead of the store")
    parser.add_argument("--die-with-parent", type=int, default=0, metavar="PID")
    given = parser.parse_args(arguments)
    for name in (given.cluster, given.node):
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ConfigError(
                f"{name!r} can't name a cluster or node",
                fix="use letters, digits, - and _ only: it becomes part of subjects and paths",
            )
    if given.die_with_parent:
        die_with_parent(given.die_with_parent)
    node, folder = NodeId(given.node), os.path.join(os.path.abspath(given.run_dir), given.node)
    workers = WorkersOptions(
        cluster=ClusterId(given.cluster),
        node=node,
        devices=given.devices,
        nats_url=_nats_url(environment),
        folder=folder,
        fault_injection=given.fault_injection,
    )
    keeper = KeeperOptions(
        node=node,
        address=given.address,
        folder=folder,
        template=given.template,
        preload=given.preload,
        grace_s=given.grace_s,
        entry=given.entry,
        store_entry=given.store_entry,
    )
    return AgentOptions(
        device_kind=given.device_kind, rack=given.rack, workers=workers, keeper=keeper
    )


def _nats_url(environment: dict[str, str]) -> str:
    url = environment.get("UNICRON_NATS", "")
    for parts in map(urlsplit, url.split(",")):
        if parts.scheme not in ("nats", "tls", "ws", "wss") or not parts.hostname:
            raise ConfigError(
                "UNICRON_NATS isn't the address of a NATS server"
                if url
                else "UNICRON_NATS isn't set",
                fix="set it to nats://[user:password@]host:port, several with commas between",
            )
    return url


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = parse(arguments, dict(os.environ))
        claim(options.keeper.folder, options.keeper.node)
    except UnicronError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    setproctitle.setproctitle(f"unicron: agent {options.keeper.node}")
    while (code := asyncio.run(Agent(options).run())) == DECLARED_LOST:
        pass
    return code


if __name__ == "__main__":
    sys.exit(main())
