"""Reading history files: their lines, as events and digests."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from unicron.events.codec import record
from unicron.events.compressed import unpacked
from unicron.events.errors import ConfigError
from unicron.events.history import HistoryHeader, Seal, StateDigest
from unicron.events.history_lines import HistoryLines
from unicron.events.recorded import Recorded

#: What a history holds, in the order of its lines.
Item: TypeAlias = Recorded | StateDigest


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A file's content, checked. `digests`: those in the file, and the seal's if it has one."""

    header: HistoryHeader
    events: tuple[Recorded, ...]
    seal: Seal
    digests: tuple[StateDigest, ...] = ()


def read_history(path: Path, *, strict: bool = False) -> History:
    """Read and check a whole file. `strict` as in decode().

    ConfigError if there is no such file or it can't be read, LogMismatch if it is no history or
    of a newer format, LogBroken with the first wrong sequence if it was cut off or changed.
    """
    events: list[Recorded] = []
    digests: list[StateDigest] = []
    try:
        with path.open("rb") as file:
            reader = HistoryReader(str(path), unpacked(file), strict=strict)
            for item in reader:
                if isinstance(item, Recorded):
                    events.append(item)
                else:
                    digests.append(item)
    except OSError as error:
        raise unreadable(path, error) from error
    assert reader.seal is not None
    return History(
        header=reader.header, events=tuple(events), seal=reader.seal, digests=tuple(digests)
    )


def unreadable(path: Path, error: OSError) -> ConfigError:
    """What to say of a file that the system doesn't let us read."""
    if isinstance(error, FileNotFoundError):
        return ConfigError(
            f"there is no history file {path}",
            fix="give the path that the export or the demo printed",
            code="E-CONFIG-FILE",
        )
    if isinstance(error, IsADirectoryError):
        return ConfigError(
            f"{path} is a folder, not a history file",
            fix="give the path of the .ndjson file in it",
            code="E-CONFIG-FILE",
        )
    return ConfigError(
        f"{path} can't be read",
        why=error.strerror or str(error),
        fix="check the path and its permissions",
        code="E-CONFIG-FILE",
    )


class HistoryReader(HistoryLines[Recorded]):
    """One pass over the lines of a file. The header is read at once; iterating gives events and
    digests as their lines are checked, the seal's digest last; `seal` is known after that. `chain`:
    the log's, after the event that was given last. `strict` as in decode().

    Raises as read_history() does, except that an OSError comes as it is.
    """

    def __init__(self, name: str, lines: Iterable[bytes], *, strict: bool = False) -> None:
        super().__init__(name, lines, partial(record, strict=strict) if strict else record)
