"""The leader's pen: one append in flight, fenced, and nothing goes on before it is read back."""

import re
from collections.abc import Awaitable, Callable

import anyio

from unicron.controlplane.runtime.outcomes import Accepted, Conflict, Unknown
from unicron.controlplane.runtime.ports import Clock, EventLog
from unicron.events import (
    AnyDecision,
    Basis,
    Envelope,
    Incarnation,
    IncidentId,
    LogUnreachable,
    Sequence,
    Source,
    Term,
    UnicronError,
    encode,
    event_id,
    subjects,
)

_RETRY_S = 0.1
#: Names that can be part of a subject, tokens with dots between.
_SPEAKABLE = re.compile(r"(?=.{1,500}\Z)[^\s\x00-\x1f\x7f.*>]+(\.[^\s\x00-\x1f\x7f.*>]+)*")


class NotLeading(UnicronError):
    """Another instance leads, or nobody does yet: nothing was written here."""

    default_code = "E-NOT-LEADING"


class Refused(NotLeading):
    """The fence held: another one wrote `seq` under the control tree."""

    def __init__(self, seq: Sequence) -> None:
        super().__init__(
            "this instance no longer leads",
            why=f"another one wrote #{seq} under the control tree",
            fix="ask the one that leads: `unicron status` says which",
        )
        self.seq = seq


class Writer:
    """Numbers, encodes and appends what an instance writes in one leadership.

    `incarnation` is another one each time, so that what was refused or is still on its way leaves
    no gap in the numbers. `fence` gives the last control sequence folded, `leading` the term folded
    last; `read_back` waits until a sequence is folded.
    """

    def __init__(
        self,
        log: EventLog,
        instance: str,
        incarnation: Incarnation,
        fence: Callable[[], int],
        leading: Callable[[], Term],
        read_back: Callable[[Sequence], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._log = log
        self._fence = fence
        self._leading = leading
        self._read_back = read_back
        self._clock = clock
        self._who = f"control/{instance}"
        self._incarnation = incarnation
        self._counter = 0
        self._pen = anyio.Lock()
        self.term = Term(0)

    async def write(
        self,
        body: AnyDecision,
        *,
        cause: tuple[Sequence, ...] = (),
        incident: IncidentId | None = None,
        decided: Callable[[], Basis | None] = lambda: None,
        still: Callable[[], bool] = lambda: True,
    ) -> Sequence | None:
        """Append and wait until it was folded; its sequence. None if `still` says, once the pen is
        free, that it isn't wanted any more. `decided` gives the basis, at that moment too.

        Raises:
            NotLeading: another instance has written; nothing of ours was stored.
        """
        async with self._pen:
            # Whoever has folded another's leadership has a fresh fence, but nothing to say.
            if self.term and self._leading() != self.term:
                raise Refused(Sequence(self._leading()))
            if not still():
                return None
            self._counter += 1
            source = Source(who=self._who, incarnation=self._incarnation, counter=self._counter)
            envelope = Envelope(
                id=event_id(source),
                source=source,
                written_at_ns=self._clock.wall_ns(),
                body=body,
                term=self.term,
                cause=cause,
                incident=incident,
                basis=decided(),
            )
            seq = await self._append(envelope)
            await self._read_back(seq)
            return seq

    async def _append(self, envelope: Envelope) -> Sequence:
        subject = subject_of(self._log.cluster, envelope.body)
        data, fence = encode(envelope), self._fence()
        while True:
            try:
                outcome = await self._log.append(subject, data, envelope.id, fence=fence)
                if isinstance(outcome, Unknown):
                    outcome = await self._log.resolve(envelope.id, subject, after=fence)
            except LogUnreachable as error:
                outcome = Unknown(reason=str(error))
            match outcome:
                case Accepted(seq=seq):
                    return seq
                case Conflict(last_seq=last):
                    raise Refused(last)
            await self._clock.sleep(_RETRY_S)


def subject_of(cluster: str, body: object) -> str:
    """Where a decision is written: under the task or node whose shims or agent must hear it. If its
    name can't be part of a subject, nobody of ours has it; who claimed to mustn't stop the log."""
    node = getattr(body, "node", None)
    task = getattr(body, "task", None) or getattr(getattr(body, "spec", None), "task", None)
    if type(body).__name__ in ("WorkerStartOrdered", "WorkerStopOrdered") and node:
        task = None
    if task and _SPEAKABLE.fullmatch(task):
        return subjects.control(cluster, "task", task)
    if node and not task and _SPEAKABLE.fullmatch(node):
        return subjects.control(cluster, "node", node)
    return subjects.control(cluster, "cluster", cluster)
