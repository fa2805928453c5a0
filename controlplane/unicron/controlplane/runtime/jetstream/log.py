"""The log of one cluster: appending under the fence, reading back, reading on."""

import asyncio
import base64
import contextlib
import logging
from typing import Self

import anyio
import msgspec

from unicron.controlplane.runtime.jetstream.connection import (
    ApiError,
    ApiRefused,
    Connection,
    NoAnswer,
    connect,
)
from unicron.controlplane.runtime.jetstream.lease import JetStreamLease
from unicron.controlplane.runtime.jetstream.stream import (
    StreamInfo,
    ensure_stream,
    nanoseconds,
    stream_info,
)
from unicron.controlplane.runtime.jetstream.tail import JetStreamTail
from unicron.controlplane.runtime.jetstream.texts import ensure_texts, read_text
from unicron.controlplane.runtime.outcomes import Accepted, Conflict, Outcome, Unknown
from unicron.events import (
    LogBroken,
    LogError,
    LogMismatch,
    LongText,
    NodeId,
    Recorded,
    Sequence,
    record,
    subjects,
)

log = logging.getLogger(__name__)

# "wrong last sequence"; with several replicas half of the losers get the second one.
_FENCED = (10071, 10164)
_NO_MESSAGE = 10037
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
#: Longer than an election takes: a server that is there, but takes nothing, is told.
_STUCK_S = 10.0


class _Ack(msgspec.Struct, frozen=True):
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


class _Message(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    time: str
    data: str = ""
    hdrs: str = ""

    @property
    def id(self) -> str:
        """The message id it was stored under; "" if it had none."""
        for line in base64.b64decode(self.hdrs).decode(errors="replace").split("\r\n"):
            key, _, value = line.partition(":")
            if key.lower() == "nats-msg-id":
                return value.strip()
        return ""


class _MessageAnswer(msgspec.Struct, frozen=True):
    message: _Message


class JetStreamLog:
    """EventLog on a JetStream stream. Made by open() or connect()."""

    def __init__(
        self,
        connection: Connection,
        cluster: str,
        info: StreamInfo,
        *,
        attempt_s: float,
        limit_s: float,
    ) -> None:
        self.connection = connection
        self._cluster = cluster
        self._stream = subjects.stream_name(cluster)
        self._control = subjects.control_tree(cluster)
        self._birth = info.birth
        self._replicas = info.config.num_replicas
        self._attempt_s = attempt_s
        self._limit_s = limit_s
        self._fenced_append = asyncio.Lock()  # pipelined, the fence would not be one
        self._tails: set[JetStreamTail] = set()
        self._takes_nothing = False
        self._owns_connection = False

    @classmethod
    async def open(
        cls,
        connection: Connection,
        cluster: str,
        *,
        create: bool = True,
        replicas: int = 1,
        birth: str | None = None,
        attempt_s: float = 2.0,
        limit_s: float = 30.0,
    ) -> Self:
        """The log of `cluster` on a connection, which stays the caller's to close.

        `create`: make the stream if it isn't there. `birth`: which one it must be. An append waits
        `attempt_s` for each answer and tries for `limit_s` in all (a cluster of servers elects a
        new leader in 5 s). ConfigError, LogMismatch or LogUnreachable if it can't be had.
        """
        subjects.check_cluster(cluster)
        info = await ensure_stream(connection, cluster, create=create, replicas=replicas)
        if birth is not None and info.birth != birth:
            raise _born_anew(cluster, birth, info.birth)
        return cls(connection, cluster, info, attempt_s=attempt_s, limit_s=limit_s)

    @classmethod
    async def connect(cls, url: str, cluster: str, *, name: str, create: bool = True) -> Self:
        """A connection of its own and the log on it; close() closes both."""
        subjects.check_cluster(cluster)
        connection = await connect(url, name=name)
        try:
            made = await cls.open(connection, cluster, create=create)
        except BaseException:
            await connection.close()
            raise
        made._owns_connection = True
        return made

    @property
    def cluster(self) -> str:
        return self._cluster

    # --- Appending -------------------------------------------------------------------------------

    async def append(
        self, subject: str, data: bytes, event_id: str, *, fence: int | None
    ) -> Outcome:
        is_control = subjects.tree_of(subject) == "control"
        assert is_control == (fence is not None), "control needs a fence, and nothing else has one"
        headers = {"Nats-Msg-Id": event_id}
        if fence is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(fence)
            headers["Nats-Expected-Last-Subject-Sequence-Subject"] = self._control
        loop = asyncio.get_running_loop()
        began = loop.time()
        give_up = began + self._limit_s
        pause_s = _FIRST_PAUSE_S
        async with self._fenced_append if is_control else contextlib.nullcontext():
            while True:
                outcome = await self._attempt(subject, data, event_id, fence, headers)
                self._tell_if_stuck(outcome, loop.time() - began)
                if not isinstance(outcome, Unknown) or loop.time() + pause_s > give_up:
                    return outcome
                # "No leader" is answered at once, hundreds of times a second: back off.
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _tell_if_stuck(self, outcome: Outcome, lasts_s: float) -> None:
        """A server whose disk was full looks healthy: it answers all else, and takes nothing until
        it is started again. One that is out of reach is told elsewhere."""
        address = self.connection.address
        if not isinstance(outcome, Unknown):
            if self._takes_nothing:
                log.warning("the NATS server at %s takes decisions again", address)
            self._takes_nothing = False
        elif lasts_s > _STUCK_S and not self._takes_nothing and self.connection.client.is_connected:
            self._takes_nothing = True
            log.warning(
                "the NATS server at %s has taken no decision for %.0f s: %s. Its log says why; if "
                "its disk was full, make room and start it again",
                address,
                lasts_s,
                outcome.reason,
            )

    async def _attempt(
        self, subject: str, data: bytes, event_id: str, fence: int | None, headers: dict[str, str]
    ) -> Outcome:
        try:
            reply = await self.connection.request(
                subject, data, headers=headers, limit_s=self._attempt_s
            )
            ack = msgspec.json.decode(reply.data, type=_Ack)
            if ack.error is None:
                if ack.duplicate:
                    return await self._adopt(ack.seq, event_id, subject, fence)
                return Accepted(seq=Sequence(ack.seq))
            if fence is not None and ack.error.err_code in _FENCED:
                return await self._refused(event_id, fence)
        except NoAnswer as error:
            return Unknown(reason=error.why)
        except (msgspec.DecodeError, ApiRefused) as error:
            return Unknown(reason=str(error))
        if ack.error.code >= 500:  # "unavailable for now" in its various forms
            return Unknown(reason=ack.error.description)
        raise LogError(
            f"the log refuses an event under {subject}: {ack.error.description}",
            fix="see the server's log; the event was not stored",
            code="E-LOG-REFUSED",
        )

    async def _adopt(self, seq: int, event_id: str, subject: str, fence: int | None) -> Outcome:
        """The server says that it has the event already: see that it really stands there. Who wrote
        something else under the id of a decision was quicker: the next one has another id."""
        message = await self._message({"seq": seq})
        if message is not None and message.id == event_id:
            if message.subject == subject:
                return Accepted(seq=Sequence(seq), duplicate=True)
            log.warning("#%d under %s has the id of a decision: %s", seq, message.subject, event_id)
            if fence is not None:
                return Conflict(last_seq=await self.last_control_seq())
        return Unknown(reason=f"the server calls it a duplicate of {seq}, which isn't it")

    async def _refused(self, event_id: str, fence: int) -> Outcome:
        """The fence held. Against another writer, or against our own earlier try?"""
        outcome = await self._first_decision(event_id, fence)
        if isinstance(outcome, Unknown):
            # Either the winner isn't committed yet, or the log doesn't reach up to the fence.
            last = await self.last_control_seq()
            if last < fence:
                return Conflict(last_seq=last)
        return outcome

    async def _first_decision(self, event_id: str, after: int) -> Outcome:
        """A fenced append that succeeded is the first event of the control tree after the fence;
        so that one event says what became of it, whatever was appended since."""
        first = await self._message({"seq": after + 1, "next_by_subj": self._control})
        if first is None:
            return Unknown(reason=f"nothing stands after {after} so far")
        if first.id == event_id:
            return Accepted(seq=Sequence(first.seq), duplicate=True)
        return Conflict(last_seq=await self.last_control_seq())

    async def resolve(self, event_id: str, subject: str, *, after: int) -> Outcome:
        try:
            if subjects.tree_of(subject) == "control":
                return await self._first_decision(event_id, after)
            seq = after
            while message := await self._message({"seq": seq + 1, "next_by_subj": subject}):
                if message.id == event_id:
                    return Accepted(seq=Sequence(message.seq), duplicate=True)
                seq = message.seq
        except (NoAnswer, ApiRefused) as error:
            return Unknown(reason=str(error))
        return Unknown(reason=f"not among the entries after {after} so far")

    # --- Reading ---------------------------------------------------------------------------------

    async def _message(self, which: dict[str, int | str]) -> _Message | None:
        """One message, from the stream's leader: replicas may lag behind."""
        try:
            answer = await self.connection.api(
                f"STREAM.MSG.GET.{self._stream}", which, _MessageAnswer
            )
        except ApiRefused as refused:
            if refused.err_code == _NO_MESSAGE:
                return None
            raise
        return answer.message

    def read(self, from_seq: int) -> JetStreamTail:
        tail = JetStreamTail(self.connection, self, from_seq, forget=self._tails.discard)
        self._tails.add(tail)
        return tail

    async def get(self, seq: int) -> Recorded | None:
        message = await self._message({"seq": seq})
        if message is None:
            return None
        data = base64.b64decode(message.data)
        return record(message.seq, message.subject, data, nanoseconds(message.time))

    async def keep_texts(self) -> None:
        """See to it that there is a place for texts that are too long for the log."""
        await ensure_texts(self.connection, self._cluster, replicas=self._replicas)

    async def text(self, node: NodeId, text: LongText) -> str | None:
        """A text of that node that is too long for the log; None if it isn't beside it."""
        return await read_text(self.connection, self._cluster, node, text)

    async def last_seq(self) -> Sequence:
        return Sequence((await stream_info(self.connection, self._cluster)).state.last_seq)

    async def last_control_seq(self) -> Sequence:
        message = await self._message({"last_by_subj": self._control})
        return Sequence(message.seq if message else 0)

    async def first_missing(self, upto: int) -> Sequence:
        state = (await stream_info(self.connection, self._cluster)).state
        if state.first_seq > 1 and upto:
            return Sequence(1)
        if not state.num_deleted:
            return Sequence(0)
        listed = (await stream_info(self.connection, self._cluster, deleted=True)).state.deleted
        return Sequence(min((seq for seq in listed or () if seq <= upto), default=0))

    async def birth(self) -> str:
        return self._birth

    def lease(self) -> JetStreamLease:
        return JetStreamLease(self.connection, self._cluster, replicas=self._replicas)

    async def check_reaches(self, from_seq: int) -> None:
        """LogMismatch if the stream was born anew or is gone, LogBroken unless `from_seq` is in it
        or next."""
        try:
            info = await stream_info(self.connection, self._cluster)
        except LogMismatch as error:
            raise _gone(self._cluster, error) from None
        if info.birth != self._birth:
            raise _born_anew(self._cluster, self._birth, info.birth)
        first, last = info.state.first_seq, info.state.last_seq
        if from_seq > last + 1:
            raise LogBroken(
                f"the log of {self._cluster} ends at {last}, before {from_seq}",
                first_wrong=last + 1,
                why="it lost its end, or it isn't the log that the reader knows",
                fix="restore the stream from a replica or backup; don't start over on this one",
                code="E-LOG-SHORT",
            )
        if last and from_seq < first:
            raise LogBroken(
                f"the log of {self._cluster} begins at {first}, not at {from_seq}",
                first_wrong=from_seq,
                why="old events were removed",
                fix="restore the stream from a replica or backup",
                code="E-LOG-GAP",
            )

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):  # each step is short and bounded
            for tail in list(self._tails):
                await tail.aclose()
            if self._owns_connection:
                await self.connection.close()


def _gone(cluster: str, error: LogMismatch) -> LogMismatch:
    """Of a log that was there when it was opened: neither its name nor the address is wrong."""
    if error.code != "E-LOG-NONE":
        return error
    return LogMismatch(
        f"the log of {cluster} has gone from the NATS server",
        why="it was there before; somebody removed it, or the server began with an empty store",
        fix="restore the server's store, or the stream, from a copy; then start again",
        code="E-LOG-NONE",
    )


def _born_anew(cluster: str, known: str, found: str) -> LogMismatch:
    return LogMismatch(
        f"the log of {cluster} is another one than before",
        why=f"its stream was born {found}, and the one known here {known}",
        fix="restore the old stream, or give up its state: remove the snapshots and start over",
        code="E-LOG-BIRTH",
    )
