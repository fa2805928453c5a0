"""Snapshots in the object store of the log's server: every instance on any host finds them there.

What nats-py's object store writes, other clients and `nats object` read: a large snapshot in
chunks, with their sha256. The bucket is made with the first one, on as many servers as the log.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Awaitable
from typing import Final, TypeVar

import anyio
import msgspec
from nats import errors as nats_errors
from nats.js import errors as js_errors
from nats.js.api import ObjectInfo
from nats.js.object_store import ObjectStore

from unicron.controlplane.runtime.jetstream.connection import ApiRefused, Connection, NoAnswer
from unicron.controlplane.runtime.jetstream.stream import stream_info
from unicron.events import LogError, Sequence, subjects

T = TypeVar("T")

_STREAM_NOT_FOUND: Final = 10059
_NAME: Final = re.compile(r"[0-9]{12,18}")
_LIMIT_S: Final = 20.0  # of all chunks together; one that gets no answer takes 5 s


class _State(msgspec.Struct, frozen=True):
    subjects: dict[str, int] | None = None


class _Info(msgspec.Struct, frozen=True):
    state: _State


class JetStreamSnapshots:
    """Snapshots in the bucket of `cluster`; the newest `keep`. One that is less than `apart` events
    newer than another one isn't kept: all instances write here."""

    name = "object store"

    def __init__(
        self,
        connection: Connection,
        cluster: str,
        *,
        keep: int = 2,
        apart: int = 5_000,
    ) -> None:
        self._connection = connection
        self._bucket = subjects.snapshot_bucket(cluster)
        self._stream = f"OBJ_{self._bucket}"
        self._cluster = cluster
        self._newest = Sequence(0)  # that was seen here
        self._keep = keep
        self._apart = apart

    @property
    def where(self) -> str:
        return f"the bucket {self._bucket} at {self._connection.address}"

    async def known(self) -> list[Sequence]:
        prefix = f"$O.{self._bucket}.M."
        try:
            found = await self._connection.api(
                f"STREAM.INFO.{self._stream}", {"subjects_filter": f"{prefix}>"}, _Info
            )
        except ApiRefused as refused:
            if refused.err_code == _STREAM_NOT_FOUND:
                return []
            raise
        names = (_name_of(subject.removeprefix(prefix)) for subject in found.state.subjects or ())
        known = [Sequence(int(name)) for name in names if _NAME.fullmatch(name)]
        self._newest = max(known, default=self._newest)
        return known

    async def load(self, seq: Sequence) -> bytes | None:
        try:
            store = await self._store()
            info = await self._answered(store.get_info(_name(seq)))
            await self._check_chunks(info)
            result = await self._answered(store.get(_name(seq)))
        except js_errors.NotFoundError:  # deleted: its name stays
            return None
        return result.data

    async def _check_chunks(self, info: ObjectInfo) -> None:
        """LogError if some are missing: whoever gets the object would wait for them."""
        subject = f"$O.{self._bucket}.C.{info.nuid}"
        found = await self._connection.api(
            f"STREAM.INFO.{self._stream}", {"subjects_filter": subject}, _Info
        )
        there = (found.state.subjects or {}).get(subject, 0)
        if there < (info.chunks or 0):
            raise LogError(
                f"the object store at {self._connection.address} has lost parts of {info.name}",
                why=f"{there} of {info.chunks} are there",
            )

    async def save(self, seq: Sequence, data: bytes) -> None:
        if seq - self._newest < self._apart:
            return
        known = await self.known()
        if seq - max(known, default=0) < self._apart:
            return
        store = await self._store(create=True)
        await self._answered(store.put(_name(seq), data))
        for old in sorted([*known, seq])[: -self._keep]:
            await self._remove(store, old)

    async def _remove(self, store: ObjectStore, seq: Sequence) -> None:
        """The object, and what the store keeps of a deleted one."""
        with contextlib.suppress(js_errors.NotFoundError):  # another instance was quicker
            await self._answered(store.delete(_name(seq)))
        meta = f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(_name(seq).encode()).decode()}"
        await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": meta}, dict)

    async def _store(self, *, create: bool = False) -> ObjectStore:
        context = self._connection.client.jetstream()
        try:
            return await self._answered(context.object_store(self._bucket))
        except js_errors.NotFoundError:
            if not create:
                raise
        replicas = (await stream_info(self._connection, self._cluster)).config.num_replicas
        return await self._answered(context.create_object_store(self._bucket, replicas=replicas))

    async def _answered(self, work: Awaitable[T]) -> T:
        """What comes of it, with our errors. nats-py waits without a limit for a lost chunk."""
        try:
            with anyio.fail_after(_LIMIT_S):
                return await work
        except js_errors.NotFoundError:
            raise
        except (js_errors.Error, ValueError) as error:
            raise LogError(
                f"the object store at {self._connection.address} refuses",
                why=str(error) or type(error).__name__,
            ) from error
        except (nats_errors.Error, OSError) as error:  # TimeoutError is one, too
            raise NoAnswer(
                f"the object store at {self._connection.address} gave no answer",
                why=str(error) or type(error).__name__,
                fix="check that the server runs",
            ) from error


def _name(seq: Sequence) -> str:
    return f"{seq:012d}"


def _name_of(token: str) -> str:
    """The object's name in its subject; "" if there is none."""
    try:
        return base64.urlsafe_b64decode(token).decode("ascii", errors="replace")
    except binascii.Error:
        return ""
