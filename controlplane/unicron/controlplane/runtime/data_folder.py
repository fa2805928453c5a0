"""The data folder of a control plane with a server of its own: whose it is, who runs on it, and
the addresses in it."""

import contextlib
import fcntl
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unicron.events import ConfigError, subjects
from unicron.events.history_reader import unreadable

if TYPE_CHECKING:  # brings asyncio, which reading a file doesn't need
    from unicron.controlplane.runtime.natsserver import NatsServer

#: Hold an address each, with its password, while the server runs.
NODES: Final = "nodes.url"
READER: Final = "reader.url"
#: Holds snapshots of the state.
SNAPSHOTS: Final = "snapshots"
#: Names the cluster whose folder it is.
CLUSTER: Final = "cluster"
#: Held while somebody runs on it.
LOCK: Final = "lock"
_PORT: Final = "port"


@contextlib.asynccontextmanager
async def serving(data: Path, cluster: str) -> AsyncGenerator["NatsServer"]:
    """A server on this folder, alone, with its addresses in it; on the port of last time, if that
    is free. Raises as alone() and NatsServer do."""
    from unicron.controlplane.runtime.natsserver import NatsServer

    with alone(data, cluster):
        async with NatsServer(data, cluster, port=_if_free(port_of(data))) as server:
            with addresses(data, server):
                yield server


@contextlib.contextmanager
def alone(data: Path, cluster: str) -> Iterator[None]:
    """Nobody else runs on this folder meanwhile: two servers on one store destroy the log.
    ConfigError if somebody does, or if the folder holds the log of another cluster; and, before
    anything is written, if this can't be the name of one."""
    subjects.check_cluster(cluster)
    with _usable(data):
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / LOCK).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another control plane runs on {data}",
                why="two servers on one store would destroy the log",
                fix="end that one, or give another folder",
                code="E-DATA-IN-USE",
            ) from error
        try:
            _claim(data, cluster)
            yield
        finally:  # a child between fork and exec would hold it a moment longer
            fcntl.flock(lock, fcntl.LOCK_UN)


@contextlib.contextmanager
def _usable(data: Path) -> Iterator[None]:
    """ConfigError if the system doesn't let us write there."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"can't use the folder {data}",
            why=f"{error.strerror or error}: {error.filename or data}",
            fix="give a folder that you may write to, on a disk with room",
            code="E-DATA-FOLDER",
        ) from error


def _claim(data: Path, cluster: str) -> None:
    """The folder is this cluster's from now on: its server lets in nobody else's nodes."""
    found = owner(data)
    if found not in ("", cluster):
        raise ConfigError(
            f"{data} is the folder of cluster {found}, not of {cluster}",
            why="a data folder holds the log of one cluster",
            fix=f"give another folder, or name the cluster {found}",
            code="E-DATA-CLUSTER",
        )
    if not found:
        with _usable(data):
            (data / CLUSTER).write_text(cluster + "\n")


def owner(data: Path) -> str:
    """The cluster whose folder it is, "" if it is nobody's. ConfigError if it can't be read."""
    path = data / CLUSTER
    try:
        return path.read_text(errors="replace").strip() if path.is_file() else ""
    except OSError as error:
        raise unreadable(path, error) from error


def port_of(data: Path) -> int | None:
    """The port of last time, so that agents find the server again."""
    try:
        port = int((data / _PORT).read_text())
    except (OSError, ValueError):
        return None
    return port if 0 < port < 1 << 16 else None


def _if_free(port: int | None) -> int | None:
    if port is not None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return None
    return port


@contextlib.contextmanager
def addresses(data: Path, server: "NatsServer") -> Iterator[None]:
    """The addresses for nodes and readers stand in the folder meanwhile, for its owner alone."""
    from unicron.controlplane.runtime.natsserver import write_private

    try:
        with _usable(data):
            (data / _PORT).write_text(server.url.rpartition(":")[2])
            write_private(data / NODES, f"{server.node_url}\n".encode())
            write_private(data / READER, f"{server.reader_url}\n".encode())
        yield
    finally:
        for name in (NODES, READER):
            with contextlib.suppress(OSError):
                (data / name).unlink()
