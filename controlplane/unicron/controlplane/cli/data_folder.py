"""The data folder of `unicron up`: whose it is, who runs on it, and the addresses in it."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unicron.controlplane.cli.history_path import ENDINGS
from unicron.events import ConfigError, subjects
from unicron.events.history_reader import unreadable

if TYPE_CHECKING:  # brings asyncio, which reading a file doesn't need
    from unicron.controlplane.runtime.natsserver import NatsServer

#: Hold an address each, with its password, while the server runs.
NODES: Final = "nodes.url"
READER: Final = "reader.url"
#: Holds snapshots of the state.
SNAPSHOTS: Final = "snapshots"
_CLUSTER: Final = "cluster"
_PORT: Final = "port"
_LOCK: Final = "lock"


@contextlib.contextmanager
def alone(data: Path, cluster: str) -> Iterator[None]:
    """Nobody else runs on this folder meanwhile: two servers on one store destroy the log.
    ConfigError if somebody does, or if the folder holds the log of another cluster; and, before
    anything is written, if this can't be the name of one."""
    subjects.check_cluster(cluster)
    with _usable(data):
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / _LOCK).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another `unicron up` runs on {data}",
                why="two servers on one store would destroy the log",
                fix="end that one, or give another --data",
                code="E-DATA-IN-USE",
            ) from error
        _claim(data, cluster)
        yield


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
    owner = _owner(data)
    if owner not in ("", cluster):
        raise ConfigError(
            f"{data} is the folder of cluster {owner}, not of {cluster}",
            why="a data folder holds the log of one cluster",
            fix=f"give another --data, or say --cluster {owner}",
            code="E-DATA-CLUSTER",
        )
    if not owner:
        with _usable(data):
            (data / _CLUSTER).write_text(cluster + "\n")


def _owner(data: Path) -> str:
    path = data / _CLUSTER
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


def reading(data: Path) -> tuple[str, str] | None:
    """Address and cluster of the server that runs on this folder; None if it is no data folder, or
    nobody runs on it but a history file lies in it.

    Raises:
        ConfigError: nobody runs on it, so that its log can't be read; or it may not be read.
    """
    cluster = _owner(data) if os.path.isdir(data) else ""
    if not cluster:
        return None
    try:
        if _is_locked(data):
            return (data / READER).read_text().strip(), cluster
    except FileNotFoundError:
        pass  # it is starting, or ending
    except OSError as error:
        raise unreadable(data / READER, error) from error
    if any(path.name.endswith(ENDINGS) for path in data.iterdir()):
        return None
    raise ConfigError(
        f"the log in {data} can't be read: its control plane doesn't run",
        why="the log stands in the store of a NATS server that runs only while `unicron up` does",
        fix=f"unicron up --cluster {cluster} --data {data}, and read it meanwhile",
        code="E-DATA-NOT-RUNNING",
    )


def _is_locked(data: Path) -> bool:
    """Does somebody run on it? What a killed one left behind says nothing."""
    with (data / _LOCK).open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
