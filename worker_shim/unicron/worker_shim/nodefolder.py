"""A node's folder is one agent's: another one would end its workers, and both would go on."""

import fcntl
import json
import os
import time

from unicron.events.errors import ConfigError
from unicron.events.ids import NodeId

#: What an agent writes into it about itself.
STATE_FILE = "agent.json"

#: An agent that is just ending is gone within this.
_LIMIT_S = 5.0
_LOOK_S = 0.05


def claim(folder: str, node: NodeId) -> int:
    """Make the folder if need be, and lock it for as long as this process lives, or until the
    descriptor that is returned is closed. ConfigError: it can't be used, or is another agent's."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise unusable(folder, error) from error
    until = time.monotonic() + _LIMIT_S
    while not _locked(fd):
        if time.monotonic() > until:
            os.close(fd)
            raise ConfigError(
                f"another agent of node {node} runs already",
                why=f"{_holder(folder)} holds {folder}",
                fix="end that one first; if this is another node, give it another --node",
                code="E-NODE-IN-USE",
            )
        time.sleep(_LOOK_S)
    return fd


def unusable(folder: str, error: OSError) -> ConfigError:
    """What is wrong with a folder on which the system says this."""
    return ConfigError(
        f"the node's folder {folder} can't be used",
        why=error.strerror or str(error),
        fix="make room on that disk or allow this user to write there, or give another --run-dir",
        code="E-NODE-FOLDER",
    )


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _holder(folder: str) -> str:
    try:
        with open(os.path.join(folder, STATE_FILE), encoding="utf-8") as file:
            return f"process {int(json.load(file)['pid'])}"
    except (OSError, ValueError, TypeError, KeyError):  # it has only begun
        return "another process"
