"""Texts that are too long for the log: named there by their digest, kept whole on the node's disk
until the agent has put them beside the log.

A worker that raises has little time: it writes one file, and its agent, which lives on, does the
rest for as long as it takes. Nothing waits for that. Who reads the log finds the text beside it by
its digest, or finds that it isn't there.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable

from unicron.events.texts import PART_BYTES, TEXT_MAX_BYTES
from unicron.events.worker import LongText
from unicron.worker_shim.evidence import cut

log = logging.getLogger(__name__)

SUFFIX = ".text"
#: Texts that may wait in a node's folder. The oldest are the evidence and stay.
WAITING_MAX = 64

_LOOK_S = 0.5
_RETRY_FIRST_S, _RETRY_LAST_S = 0.5, 30.0

#: Stores one part (digest, number, bytes); "" once it is there, or why it isn't. Never raises.
Store = Callable[[str, int, bytes], Awaitable[str]]


def keep(folder: str, text: str) -> LongText | None:
    """Write the text, or its beginning and end if it is larger than TEXT_MAX_BYTES, into the folder
    for the agent to take. None: the folder is full or can't be written; that is logged."""
    data = cut(text, TEXT_MAX_BYTES // 4).encode(errors="replace")  # 4 bytes a character at most
    digest = hashlib.sha256(data).hexdigest()
    path = os.path.join(folder, f"{digest}{SUFFIX}")
    try:
        if len(waiting(folder)) >= WAITING_MAX:
            log.error(
                "%d texts wait for the log already; this one is only in this file", WAITING_MAX
            )
            return None
        with open(f"{path}.new", "wb", opener=_private) as file:
            file.write(data)
        os.rename(f"{path}.new", path)
    except OSError as error:
        log.error("a text can't be kept in %s (%s)", folder, error.strerror)
        return None
    return LongText(sha256=digest, size=len(data))


def waiting(folder: str) -> list[str]:
    """Digests of the texts that wait in the folder."""
    names = [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    return sorted(name.removesuffix(SUFFIX) for name in names)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class LongTexts:
    """Takes what waits in a node's folder to the store; `run` until cancelled."""

    def __init__(self, folder: str, store: Store) -> None:
        self._folder = folder
        self._store = store
        self._said = ""

    async def run(self) -> None:
        """Again and again, whatever goes wrong."""
        delay = _RETRY_FIRST_S
        while True:
            why = ""
            with contextlib.suppress(OSError):
                for digest in waiting(self._folder):
                    why = why or await self._deliver(digest)
            self._say(why)
            await asyncio.sleep(delay if why else _LOOK_S)
            delay = min(2 * delay, _RETRY_LAST_S) if why else _RETRY_FIRST_S

    async def _deliver(self, digest: str) -> str:
        path = os.path.join(self._folder, f"{digest}{SUFFIX}")
        with open(path, "rb") as file:
            data = file.read(TEXT_MAX_BYTES + 1)
        if hashlib.sha256(data).hexdigest() != digest:
            log.error("%s was damaged on the node's disk: it is dropped", path)
            os.unlink(path)
            return ""
        for number, start in enumerate(range(0, len(data), PART_BYTES)):
            if why := await self._store(digest, number, data[start : start + PART_BYTES]):
                return why
        os.unlink(path)
        return ""

    def _say(self, why: str) -> None:
        """Once for each reason."""
        if why and why != self._said:
            log.warning("texts too long for the log wait on this node's disk: %s", why)
        self._said = why
