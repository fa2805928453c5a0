"""The transitions of an incident as its events tell them: who had to answer, and who did."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

from unicron import events as ev
from unicron.events import Incarnation, OrderedMember, Recorded, Sequence, TaskId, WorkerId

_Body = TypeVar("_Body", bound=ev.Event)


class Timeline:
    """Times of the entries from `first` to `last` (None: up to the end of the log, still open),
    which never go back."""

    def __init__(self, log: SequenceOf[Recorded], first: Sequence, last: Sequence | None) -> None:
        self.first, self.last = first, last
        self.until = last or Sequence(len(log))
        times = (recorded.at_ns for recorded in log[first - 1 : self.until])
        self._times = list(accumulate(times, max))

    def at(self, seq: Sequence) -> int:
        """When the entry was stored; `seq` lies inside."""
        return self._times[seq - self.first]

    def inside(self, seq: int) -> Sequence:
        """The nearest sequence that lies inside."""
        return Sequence(min(max(seq, self.first), self.until))


@dataclass(frozen=True, kw_only=True, slots=True)
class Said(Generic[_Body]):
    """One event: where it stands, and what it says."""

    seq: Sequence
    cause: tuple[Sequence, ...]
    body: _Body


@dataclass(kw_only=True, slots=True)
class Round:
    """One transition: a close, an order, or both. `stopping`: members that had to answer the close;
    `answers`, `ready`, `commits`: what came from whom; `cut`: the close that ended it early."""

    close: Said[ev.GenerationClosed] | None = None
    order: Said[ev.TransitionOrdered] | None = None
    stopping: dict[WorkerId, OrderedMember] = field(default_factory=dict)
    answers: dict[WorkerId, Said[ev.Event]] = field(default_factory=dict)
    ready: dict[WorkerId, Said[ev.MemberReady]] = field(default_factory=dict)
    commits: dict[WorkerId, Said[ev.MemberCommitted]] = field(default_factory=dict)
    cut: Sequence | None = None

    @property
    def members(self) -> dict[WorkerId, OrderedMember]:
        """Whom the order names."""
        return {m.worker: m for m in self.order.body.members} if self.order else {}

    @property
    def all_stopped(self) -> bool:
        return self.order is not None or self.stopping.keys() <= self.answers.keys()

    @property
    def all_ready(self) -> bool:
        return self.order is not None and self.members.keys() <= self.ready.keys()

    @property
    def all_committed(self) -> bool:
        return self.order is not None and self.members.keys() <= self.commits.keys()


def rounds_of(
    log: SequenceOf[Recorded], task: TaskId | None, applied: SequenceOf[Recorded], until: Sequence
) -> list[Round]:
    """The transitions of `task`, in order. `log` begins with #1; `applied`: the incident's events
    in it without void decisions; `until`: the incident's last sequence."""
    rounds: list[Round] = []
    for recorded in applied:
        envelope = recorded.envelope
        if envelope is None or getattr(envelope.body, "task", None) != task:
            continue
        seq, cause = recorded.seq, envelope.cause
        last = rounds[-1] if rounds else None
        match envelope.body:
            case ev.GenerationClosed() as body:
                if last is not None and not last.all_committed:
                    last.cut = seq
                rounds.append(Round(close=Said(seq=seq, cause=cause, body=body)))
                rounds[-1].stopping = _stopping(log[: seq - 1], body)
            case ev.TransitionOrdered() as body:
                if last is None or last.order is not None:
                    last = Round()
                    rounds.append(last)
                last.order = Said(seq=seq, cause=cause, body=body)
            case ev.MemberReady() as body if last is not None and _stands(last, body):
                last.ready.setdefault(body.worker, Said(seq=seq, cause=cause, body=body))
            case ev.MemberCommitted() as body if last is not None and _stands(last, body):
                last.commits.setdefault(body.worker, Said(seq=seq, cause=cause, body=body))
            case _:
                pass
    for round_ in rounds:
        if round_.close is not None:
            end = round_.order.seq if round_.order is not None else round_.cut or until
            _collect_answers(round_, log[round_.close.seq : end])
    return rounds


def _stands(round_: Round, body: ev.MemberReady | ev.MemberCommitted) -> bool:
    """Is it said by a member of the ordered generation, in the life that was ordered?"""
    if round_.order is None or body.generation != round_.order.body.generation:
        return False
    member = round_.members.get(body.worker)
    return member is not None and member.incarnation == body.incarnation


def _stopping(
    before: SequenceOf[Recorded], closed: ev.GenerationClosed
) -> dict[WorkerId, OrderedMember]:
    """Who stood in the generation and was still there when it was closed."""
    gone: set[tuple[WorkerId, Incarnation]] = set()
    lost: set[str] = set()
    for recorded in reversed(before):
        match recorded.envelope.body if recorded.envelope else None:
            case ev.TransitionOrdered() as order if (
                order.task == closed.task and order.generation == closed.generation
            ):
                return {
                    m.worker: m
                    for m in order.members
                    if (m.worker, m.incarnation) not in gone and m.node not in lost
                }
            case ev.WorkerExited(worker=worker, incarnation=incarnation):
                gone.add((worker, incarnation))
            case ev.NodeLost(node=node):
                lost.add(node)
            case _:
                pass
    return {}


def _collect_answers(round_: Round, between: SequenceOf[Recorded]) -> None:
    """What members said or became between the close and the order."""
    assert round_.close is not None
    closed = round_.close.body
    for recorded in between:
        envelope = recorded.envelope
        if envelope is None:
            continue
        said: Said[ev.Event] = Said(seq=recorded.seq, cause=envelope.cause, body=envelope.body)
        match envelope.body:
            case ev.MemberQuiesced() as body if (
                body.task == closed.task and body.generation == closed.generation
            ):
                round_.answers.setdefault(body.worker, said)
            case ev.WorkerExited() as body:
                member = round_.stopping.get(body.worker)
                if member is not None and member.incarnation == body.incarnation:
                    round_.answers.setdefault(body.worker, said)
            case ev.NodeLost(node=node):
                for worker, member in round_.stopping.items():
                    if member.node == node:
                        round_.answers.setdefault(worker, said)
            case _:
                pass
