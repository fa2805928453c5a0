"""Which history file LOG is, and how it is opened."""

import contextlib
import os
import stat
import sys
import threading
from pathlib import Path
from typing import IO, Final

from unicron.events import ConfigError
from unicron.events.compressed import SUFFIX
from unicron.events.history_reader import unreadable

#: How the names of history files end.
ENDINGS: Final = (".ndjson", f".ndjson{SUFFIX}")
#: The LOG that means stdin.
STDIN: Final = "-"
_STDIN_PATH: Final = Path("/dev/stdin")
#: Whoever writes into a named pipe has opened it within this.
_WRITER_S: Final = 10.0


def history_in(log: str) -> Path:
    """The history file that LOG is, or the only one in the folder that it is. ConfigError if the
    folder may not be read or doesn't hold exactly one."""
    if log == STDIN:
        if sys.stdin is not None and sys.stdin.isatty():
            raise ConfigError(
                "nothing is piped in",
                why="--log - reads a history from stdin, and that is the terminal",
                fix="unicron replay --log LOG --export - | ..., or give a file",
                code="E-CONFIG-FILE",
            )
        return _STDIN_PATH
    path = Path(log)
    if not os.path.isdir(path):
        return path
    try:
        found = sorted(p for p in path.iterdir() if p.name.endswith(ENDINGS) and p.is_file())
    except OSError as error:
        raise unreadable(path, error) from error
    if len(found) == 1:
        return found[0]
    names = ", ".join(p.name for p in found[:5])
    raise ConfigError(
        f"{path} holds {len(found) or 'no'} history files",
        why=f"there are {names}" if found else "a history's name ends in .ndjson, or .ndjson.zst",
        fix="give the path of one history file",
        code="E-CONFIG-FILE",
    )


def opened(path: Path) -> IO[bytes]:
    """The file, to be read. A named pipe waits for whoever writes into it, but not for ever.

    Raises:
        OSError: as it comes.
        ConfigError: nobody writes into the pipe.
    """
    if path == _STDIN_PATH or not _is_pipe(path):
        return path.open("rb")
    files: list[IO[bytes]] = []
    errors: list[OSError] = []

    def wait() -> None:
        try:
            files.append(path.open("rb"))
        except OSError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(_WRITER_S)
    if waiting.is_alive():
        with contextlib.suppress(OSError):  # a writer ends its wait
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        waiting.join(1.0)
        for file in files:
            file.close()
        raise ConfigError(
            f"nobody writes into {path}",
            why=f"it is a pipe, and {_WRITER_S:.0f} s have passed",
            fix="begin to write first, or give a history file",
            code="E-CONFIG-FILE",
        )
    if errors:
        raise errors[0]
    return files[0]


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False
