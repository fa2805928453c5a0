"""`--from-snapshot`: the file that is named, or the newest that the control plane keeps."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from unicron.controlplane.core.snapshot import (
    Snapshot,
    SnapshotUnusable,
    check_birth,
    decode_snapshot,
    judge,
    read_head,
)
from unicron.controlplane.runtime import data_folder
from unicron.events import ConfigError, LogMismatch
from unicron.events.history_reader import unreadable

if TYPE_CHECKING:  # brings nats and asyncio, which reading a file doesn't need
    from unicron.controlplane.runtime.jetstream import JetStreamLog

#: Instead of a file.
NEWEST: Final = "newest"
_WITHOUT: Final = "leave out --from-snapshot, and the whole log is folded"


def for_file(asked: str, cluster: str, birth: str) -> Snapshot:
    """The snapshot with which to begin a history file of this log. Raises as for_stream() does."""
    if asked == NEWEST:
        raise ConfigError(
            "--from-snapshot newest goes with the log of a control plane",
            why="only beside that snapshots are kept",
            fix="name the file of one, or give the data folder or the address as LOG",
            code="E-SNAPSHOT",
        )
    try:
        snapshot = decode_snapshot(_read(asked))
    except SnapshotUnusable as why:
        raise _unusable(asked, str(why)) from None
    _check_cluster(asked, snapshot.cluster, cluster)
    check_birth(snapshot, birth, _WITHOUT)
    return snapshot


async def for_stream(asked: str, log: "JetStreamLog", shown: str) -> Snapshot:
    """The snapshot with which to begin this log, whose name for people is `shown`.

    Raises:
        ConfigError: it can't be read or used, or there is none.
        LogMismatch, LogBroken: it is of another log, or of one that has lost something.
    """
    if asked == NEWEST:
        return await _newest(log, shown)
    from unicron.controlplane.runtime.snapshots import facts_of

    data = _read(asked)
    try:
        head = read_head(data)
        _check_cluster(asked, head.cluster, log.cluster)
        check_birth(head, await log.birth(), _WITHOUT)
        return judge(data, await facts_of(log, await log.last_seq(), head.seq), asked)
    except SnapshotUnusable as why:
        raise _unusable(asked, str(why)) from None


async def _newest(log: "JetStreamLog", shown: str) -> Snapshot:
    from unicron.controlplane.runtime.jetstream import JetStreamSnapshots
    from unicron.controlplane.runtime.snapshot_folder import SnapshotFolder
    from unicron.controlplane.runtime.snapshots import SnapshotKeeper

    folder = Path(shown) / data_folder.SNAPSHOTS
    on_disk = [SnapshotFolder(folder, log.cluster)] if folder.is_dir() else []
    keeper = SnapshotKeeper(
        [*on_disk, JetStreamSnapshots(log.connection, log.cluster)], tell=lambda _: None
    )
    found = await keeper.newest(log)
    if found is None:
        raise ConfigError(
            f"there is no snapshot of {shown} that can be used",
            why="none was written so far, or all are of other versions",
            fix=_WITHOUT,
            code="E-SNAPSHOT",
        )
    return found


def _read(file: str) -> bytes:
    from unicron.controlplane.runtime.snapshot_folder import read_file

    try:
        return read_file(Path(file))
    except SnapshotUnusable as why:
        raise _unusable(file, str(why)) from None
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise ConfigError(
                f"there is no snapshot {file}",
                fix="they lie in the folder snapshots of a data folder; or say newest",
                code="E-CONFIG-FILE",
            ) from error
        raise unreadable(Path(file), error) from error


def _check_cluster(file: str, found: str, cluster: str) -> None:
    if found != cluster:
        raise LogMismatch(
            f"{file} is a snapshot of cluster {found}, not of {cluster}",
            fix=_WITHOUT,
            code="E-LOG-CLUSTER",
        )


def _unusable(file: str, why: str) -> ConfigError:
    return ConfigError(
        f"the snapshot {file} can't be used", why=why, fix=_WITHOUT, code="E-SNAPSHOT"
    )
