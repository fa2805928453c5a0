"""`unicron replay --export`: a log into a history file, or onto stdout, or nothing at all."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING

from unicron.controlplane.cli.target import STDOUT, check_target, is_pipe
from unicron.events import ConfigError, Recorded, Seal, StateDigest

if TYPE_CHECKING:
    from unicron.controlplane.cli.log_source import OpenLog


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
    check_target(file, "an export", force=force)
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
