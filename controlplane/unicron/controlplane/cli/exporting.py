"""`unicron replay --export`: a log into a history file, or onto stdout, or nothing at all."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from unicron.events import ConfigError, Recorded, Seal, StateDigest

if TYPE_CHECKING:
    from unicron.controlplane.cli.log_source import OpenLog

#: The FILE that means stdout.
STDOUT: Final = "-"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A file that was written; `size` in bytes."""

    file: str
    size: int
    seal: Seal


def export(
    opened: "OpenLog", items: Iterable[Recorded | StateDigest], file: str, *, force: bool
) -> Exported | None:
    """Write the entries of an open log; None if they went into a pipe or a device, which can't be
    read back. Putting a file in the place of one would take it away from others.

    Raises:
        ConfigError: it can't be written; under the name stands what stood there before.
        LogError: the log can't be read or folded; likewise.
    """
    check_target(file, force=force)
    try:
        if is_pipe(file):
            _into_pipe(opened, items, file)
            return None
        seal = _write(opened, items, Path(file))
    except OSError as error:
        raise ConfigError(
            f"{file} can't be written",
            why=error.strerror or str(error),
            fix="make room or get the permission, or give another name",
            code="E-EXPORT-WRITE",
        ) from error
    return Exported(file=file, size=os.stat(file).st_size, seal=seal)


def check_target(file: str, *, force: bool) -> None:
    """ConfigError if `file` can't be written, before anything long begins."""
    path = Path(file)
    if path.is_dir():
        raise ConfigError(
            f"{file} is a folder",
            fix=f"give the name of a file in it, such as {path / 'log.ndjson'}",
            code="E-EXPORT-TARGET",
        )
    if path.is_file() and not force:
        raise ConfigError(
            f"{file} is there already",
            why="an export replaces nothing by itself",
            fix="give another name, or say --force",
            code="E-EXPORT-EXISTS",
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"{file} can't be written: there is no folder {path.parent}",
            fix="make the folder, or give another name",
            code="E-EXPORT-TARGET",
        )


def is_pipe(file: str) -> bool:
    """Stdout, or something else that isn't an ordinary file or the place for one."""
    if file == STDOUT:
        return True
    try:
        return not stat.S_ISREG(os.stat(file).st_mode)
    except FileNotFoundError:
        return False


def _into_pipe(opened: "OpenLog", items: Iterable[Recorded | StateDigest], file: str) -> None:
    try:
        with os.fdopen(os.dup(1), "wb") if file == STDOUT else open(file, "wb") as pipe:
            _write(opened, items, pipe)
    except BrokenPipeError:
        return  # `| head` has seen enough


def _write(
    opened: "OpenLog", items: Iterable[Recorded | StateDigest], target: Path | IO[bytes]
) -> Seal:
    from unicron.controlplane.replay import export_history

    return export_history(
        target,
        (item for item in items if isinstance(item, Recorded)),
        cluster=opened.cluster,
        birth=opened.birth,
        version=version("unicron-controlplane"),
    )


def up_to(
    items: Iterable[Recorded | StateDigest], until: int | None
) -> Iterator[Recorded | StateDigest]:
    """What is to be written. ConfigError if the log ends before `until`."""
    last = 0
    for item in items:
        if until is not None and item.seq > until:
            return
        last = item.seq
        yield item
    if until is not None and last < until:
        raise ConfigError(
            f"the log has no event #{until}",
            why=f"it ends with #{last}",
            fix=f"give a sequence from 0 to {last}",
            code="E-REPLAY-UNTIL",
        )
