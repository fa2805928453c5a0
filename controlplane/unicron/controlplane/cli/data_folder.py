"""LOG as the data folder of a control plane that runs."""

import fcntl
import os
from pathlib import Path

from unicron.controlplane.cli.history_path import ENDINGS
from unicron.controlplane.runtime.data_folder import LOCK, READER, owner
from unicron.events import ConfigError
from unicron.events.history_reader import unreadable


def reading(data: Path) -> tuple[str, str] | None:
    """Address and cluster of the server that runs on this folder; None if it is no data folder, or
    nobody runs on it but a history file lies in it.

    Raises:
        ConfigError: nobody runs on it, so that its log can't be read; or it may not be read.
    """
    cluster = owner(data) if os.path.isdir(data) else ""
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
        why="the log stands in the store of a NATS server that ends with its control plane",
        fix=f"unicron up --cluster {cluster} --data {data}, and read it meanwhile",
        code="E-DATA-NOT-RUNNING",
    )


def _is_locked(data: Path) -> bool:
    """Does somebody run on it? What a killed one left behind says nothing."""
    with (data / LOCK).open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
