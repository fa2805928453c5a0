"""What a control plane begins with: the log of its cluster on a server, and the snapshots of it."""

import logging
from collections.abc import Callable
from pathlib import Path

from unicron.controlplane.runtime.jetstream import Connection, JetStreamLog, JetStreamSnapshots
from unicron.controlplane.runtime.snapshot_folder import SnapshotFolder
from unicron.controlplane.runtime.snapshots import SnapshotKeeper
from unicron.events import LogMismatch

log = logging.getLogger(__name__)

_NO_LOG = "E-LOG-NONE"


async def open_log(
    connection: Connection,
    cluster: str,
    *,
    snapshots: Path | None,
    replicas: int = 1,
    tell: Callable[[str], object] = log.info,
) -> tuple[JetStreamLog, SnapshotKeeper]:
    """The log, made if there is none and never was, and what keeps snapshots: in the folder
    `snapshots`, if it is given, and on the server. `tell` hears from which one an engine begins.

    Raises:
        ConfigError, LogMismatch, LogUnreachable: the log can't be had.
        LogMismatch: it is gone, though there are snapshots of it.
    """
    folder = [SnapshotFolder(snapshots, cluster)] if snapshots is not None else []
    keeper = SnapshotKeeper([*folder, JetStreamSnapshots(connection, cluster)], tell=tell)
    try:
        return await JetStreamLog.open(connection, cluster, create=False), keeper
    except LogMismatch as mismatch:
        if mismatch.code != _NO_LOG:
            raise
    places = await keeper.places()
    if places:
        raise LogMismatch(
            f"the log of {cluster} is gone from the NATS server at {connection.address}",
            why=f"there are snapshots of it in {' and '.join(places)}",
            fix="check the address, or restore the log from a replica or backup; only if it may be "
            "lost, move the snapshots away and empty the run folders of all nodes",
            code=_NO_LOG,
        )
    return await JetStreamLog.open(connection, cluster, replicas=replicas), keeper
