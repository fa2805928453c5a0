"""The lease in a key-value bucket beside the log: one key, which changes hands by its revision.

The bucket is kept in memory, on as many servers as the log. If it is lost, it is made again by
whoever leads; the others wait for that as long as for a silent leader.
"""

import base64

import msgspec

from unicron.controlplane.runtime.jetstream.connection import (
    ApiError,
    ApiRefused,
    Connection,
    NoAnswer,
)
from unicron.controlplane.runtime.ports import Hold
from unicron.events import subjects

#: One server: it is there or it isn't. Several: renewals stall for 5 s while they elect another
#: leader among them, which must not depose ours.
SINGLE_MS, CLUSTER_MS = 2_000, 10_000

_KEY = "leader"
_STREAM_NOT_FOUND, _NO_MESSAGE, _NAME_IN_USE = 10059, 10037, 10058
_CHANGED = (10071, 10164)  # "wrong last sequence"


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    holder: str


class _Message(msgspec.Struct, frozen=True):
    seq: int
    data: str = ""


class _Answer(msgspec.Struct, frozen=True):
    message: _Message


class _Ack(msgspec.Struct, frozen=True):
    seq: int = 0
    error: ApiError | None = None


class JetStreamLease:
    """Lease on the server of the log."""

    def __init__(self, connection: Connection, cluster: str, *, replicas: int) -> None:
        self._connection = connection
        self._bucket = subjects.lease_bucket(cluster)
        self._subject = f"$KV.{self._bucket}.{_KEY}"
        self._replicas = replicas
        self._limit_ms = SINGLE_MS if replicas == 1 else CLUSTER_MS
        self._answer_s = self._limit_ms / 2000

    @property
    def limit_ms(self) -> int:
        return self._limit_ms

    async def look(self) -> Hold:
        try:  # the stream's leader answers: replicas may lag behind
            answer = await self._connection.api(
                f"STREAM.MSG.GET.KV_{self._bucket}",
                {"last_by_subj": self._subject},
                _Answer,
                limit_s=self._answer_s,
            )
        except ApiRefused as refused:
            if refused.err_code in (_STREAM_NOT_FOUND, _NO_MESSAGE):
                return Hold()
            raise _no_answer(refused) from None
        try:
            value = msgspec.json.decode(base64.b64decode(answer.message.data), type=_Value)
        except msgspec.DecodeError:  # deleted or written by hand: nobody holds it
            value = _Value(holder="")
        return Hold(value.holder, answer.message.seq)

    async def put(self, holder: str, after: Hold) -> Hold | None:
        if not after.revision:
            await self._make()
        reply = await self._connection.request(
            self._subject,
            msgspec.json.encode(_Value(holder=holder)),
            headers={"Nats-Expected-Last-Subject-Sequence": str(after.revision)},
            limit_s=self._answer_s,
        )
        ack = msgspec.json.decode(reply.data, type=_Ack)
        if ack.error is None:
            return Hold(holder, ack.seq)
        if ack.error.err_code in _CHANGED:
            return None
        raise NoAnswer("the lease can't be written", why=ack.error.description)

    async def _make(self) -> None:
        """The bucket, as key-value buckets are made."""
        body = {
            "name": f"KV_{self._bucket}",
            "subjects": [f"$KV.{self._bucket}.>"],
            "storage": "memory",
            "num_replicas": self._replicas,
            "max_msgs_per_subject": 1,
            "discard": "new",
            "deny_delete": True,
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            "duplicate_window": 0,
        }
        try:
            await self._connection.api(
                f"STREAM.CREATE.KV_{self._bucket}", body, dict, limit_s=self._answer_s
            )
        except ApiRefused as refused:
            if refused.err_code != _NAME_IN_USE:  # it is there, made otherwise: as good
                raise _no_answer(refused) from None


def _no_answer(refused: ApiRefused) -> NoAnswer:
    return NoAnswer("the lease can't be read or made", why=refused.what)
