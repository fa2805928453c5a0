"""The disk under a server of our own: told before it is full, and gone on from by itself.

A nats-server that couldn't write once refuses everything from then on, also when there is room
again, until it is started anew. It is ours, so we do that. What it had acknowledged is on the disk,
and publishers keep what it hadn't.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
import msgspec

from unicron.controlplane.runtime.jetstream.connection import Connection, NoAnswer, connect
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import UnicronError

logger = logging.getLogger(__name__)

Disk: TypeAlias = Literal["ample", "low", "stuck", "gone"]

#: Below this the operator is told. A log grows by some 600 bytes an event.
LOW: Final = 64 << 20
#: From here on a server that couldn't write is started anew.
ROOM: Final = 16 << 20
_LOOK_S: Final = 2.0
#: From one new start to the next, if it gets stuck again: doubled up to the limit.
_AGAIN_S: Final = 5.0
_AGAIN_MAX_S: Final = 60.0
_ANSWER_S: Final = 2.0
_HEALTH: Final = "$SYS.REQ.SERVER.PING.HEALTHZ"
#: In what the server says of its health. Its log says it too, but lies on the same disk.
_STUCK: Final = " write error: "


class _Health(msgspec.Struct, frozen=True):
    status: str
    error: str = ""


class _Answer(msgspec.Struct, frozen=True):
    data: _Health


def judged(before: Disk, free: int | None, *, stuck: bool, low: int = LOW) -> Disk:
    """How it stands with the disk. `free`: bytes that we may still write; None if the folder is
    gone. `stuck`: the server couldn't write since it was started. What is low is ample again with
    half as much more."""
    if free is None:
        return "gone"
    if stuck:
        return "stuck"
    return "low" if free < (low if before == "ample" else low * 3 // 2) else "ample"


def said(disk: Disk, root: Path, free: int | None, why: str, room: int = ROOM) -> str:
    """What to tell the operator when it comes to stand so."""
    if disk == "gone" or free is None:
        return (
            f"the folder of the log is gone ({root}): what was recorded ends with this process. "
            "Put it back from a copy, and start again"
        )
    if disk == "stuck":
        return (
            f"the log can't be written: {why} ({root}). Tasks train on, but no failure is answered "
            f"until it can. Make at least {room >> 20} MiB of room; nothing else is to be done"
        )
    if disk == "low":
        return (
            f"the disk of the log has {free >> 20} MiB left ({root}). When it is full, no failure "
            "is answered any more: make room"
        )
    return f"the disk of the log has room again ({root})"


async def keep_writable(
    server: NatsServer,
    tell: Callable[[str], None] = logger.warning,
    *,
    low: int = LOW,
    room: int = ROOM,
    look_s: float = _LOOK_S,
    again_s: float = _AGAIN_S,
) -> None:
    """Look at a server that runs and at its disk, for ever: `tell` how it comes to stand with it,
    and start the server anew once it can write again. Raises as NatsServer.start() does."""
    disk: Disk = "ample"
    clock = asyncio.get_running_loop().time
    pause_s, not_before = again_s, 0.0
    connection: Connection | None = None
    try:
        while True:
            free = _free(server.root)
            if connection is None:
                with contextlib.suppress(UnicronError):  # it is just being started, perhaps
                    connection = await connect(server.system_url, name="control/disk")
            why = await _trouble(connection) if connection is not None else ""
            now = judged(disk, free, stuck=bool(why), low=low)
            if now != disk:
                disk = now
                tell(said(disk, server.root, free, why, room))
            if disk == "stuck" and free is not None and free >= room and clock() >= not_before:
                await server.restart()
                tell("the nats-server was started anew")
                pause_s = min(pause_s * 2, _AGAIN_MAX_S)
                not_before = clock() + pause_s
            elif disk != "stuck" and clock() >= not_before + _AGAIN_MAX_S:
                pause_s = again_s
            await asyncio.sleep(look_s)
    finally:
        if connection is not None:
            with anyio.CancelScope(shield=True):
                await connection.close()


def _free(root: Path) -> int | None:
    try:
        status = os.statvfs(root / "store")
    except FileNotFoundError:
        return None
    return status.f_bavail * status.f_frsize


async def _trouble(connection: Connection) -> str:
    """Why the server can't write any more; "" if it can, or gives no answer."""
    try:
        answer = await connection.request(_HEALTH, b"", limit_s=_ANSWER_S)
        error = msgspec.json.decode(answer.data, type=_Answer).data.error
    except (NoAnswer, msgspec.DecodeError):
        return ""
    return error.rpartition(": ")[2] if _STUCK in error else ""
