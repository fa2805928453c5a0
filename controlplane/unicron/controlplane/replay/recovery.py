"""From the events of an incident to its steps; steps.py says what they are."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from collections.abc import Set as AbstractSet
from typing import Any

from unicron import events as ev
from unicron.controlplane.core.state import IncidentState
from unicron.controlplane.replay import steps as st
from unicron.controlplane.replay.rounds import Round, Said, Timeline, rounds_of
from unicron.events import OrderedMember, Recorded, Sequence, WorkerId, node_of

_MS = 1_000_000


def recovery_of(
    log: SequenceOf[Recorded],
    incident: IncidentState,
    mine: SequenceOf[Recorded],
    void: AbstractSet[Sequence],
) -> st.IncidentSteps:
    """The steps of `incident`. `log` begins with #1; `mine` are the events in it that belong to
    the incident, without repetitions; decisions in `void` never took effect."""
    applied = [r for r in mine if r.seq not in void]
    timeline = Timeline(log, mine[0].seq, incident.resolved or None)
    rounds = rounds_of(log, incident.task, applied, timeline.until)
    told = _Told(timeline, log, {r.seq for r in mine})
    steps = [*told.recognised(applied), *told.plans(applied, rounds)]
    for number, round_ in enumerate(rounds, 1):
        steps += told.transition(number, round_)
    end = timeline.last
    return st.IncidentSteps(
        incident=incident.incident,
        first_seq=timeline.first,
        last_seq=end,
        start_ns=timeline.at(timeline.first),
        end_ns=None if end is None else timeline.at(end),
        steps=st.in_order(steps),
        transitions=tuple(_in_short(n, r, timeline) for n, r in enumerate(rounds, 1)),
    )


def _in_short(number: int, round_: Round, timeline: Timeline) -> st.Transition:
    close, order = round_.close, round_.order
    over = round_.cut is not None or timeline.last is not None
    return st.Transition(
        number=number,
        state=st.DONE if round_.all_committed else st.CUT if over else st.OPEN,
        planned=order is not None and order.body.planned,
        closed=close.body.generation if close else None,
        ordered=order.body.generation if order else None,
        close_seq=close.seq if close else None,
        order_seq=order.seq if order else None,
        reason=close.body.reason if close else order.body.reason if order else "",
    )


class _Told:
    """Makes steps of what one incident's events say."""

    def __init__(
        self, timeline: Timeline, log: SequenceOf[Recorded], mine: AbstractSet[Sequence]
    ) -> None:
        self._time = timeline
        self._log = log
        self._mine = mine

    def _step(
        self,
        name: str,
        first: int,
        last: Sequence | None,
        cut: Sequence | None = None,
        **rest: Any,
    ) -> st.Step:
        """From `first` to `last`; without that to `cut`, to the incident's end, or open."""
        first = self._time.inside(first)
        state = st.DONE
        if last is None:
            last = cut or self._time.last
            state = st.OPEN if last is None else st.CUT
        return st.Step(
            name=name,
            state=state,
            first_seq=first,
            last_seq=last,
            start_ns=self._time.at(first),
            end_ns=None if last is None else self._time.at(last),
            **rest,
        )

    # --- Before anything moves -------------------------------------------------------------------

    def recognised(self, applied: SequenceOf[Recorded]) -> Iterator[st.Step]:
        """Detect and classify: of the opening, and of every raise."""
        for recorded in applied:
            envelope = recorded.envelope
            opens = ev.IncidentOpened | ev.IncidentEscalated
            if envelope is None or not isinstance(envelope.body, opens):
                continue
            at = self._time.inside(max(envelope.cause, default=recorded.seq))
            at = min(at, recorded.seq)
            evidence = self._log[at - 1].envelope
            led = evidence.cause if evidence is not None else ()
            begun = min([s for s in led if s in self._mine and s < at], default=at)
            if isinstance(envelope.body, ev.IncidentOpened):
                begun = self._time.first
            yield self._step(st.DETECT, begun, at, cause=led, what=_tag(evidence))
            yield self._step(
                st.CLASSIFY, at, recorded.seq, cause=envelope.cause, what=_tag(envelope)
            )

    def plans(self, applied: SequenceOf[Recorded], rounds: list[Round]) -> Iterator[st.Step]:
        """Every plan that was made, asked for or dropped; and where survivors went on without a
        new one, the answer that their order is."""
        asked: dict[int, Sequence] = {}
        opened = self._time.first
        local: list[Sequence] = []
        for recorded in applied:
            envelope, seq = recorded.envelope, recorded.seq
            if envelope is None:
                continue
            number = next((n for n, r in enumerate(rounds, 1) if _within(r, seq)), 0)
            rest: dict[str, Any] = {
                "cause": envelope.cause,
                "what": _tag(envelope),
                "transition": number,
            }
            match envelope.body:
                case ev.IncidentOpened() | ev.IncidentEscalated():
                    opened = seq
                case ev.PlanRequested():
                    asked[seq] = seq
                case ev.PlanDropped(request=request):
                    yield self._step(st.PLAN, min(asked.pop(request, request), seq), seq, **rest)
                case ev.PlanDecided(source="local"):
                    local.append(seq)
                    newest = max([s for s in envelope.cause if s < seq], default=opened)
                    yield self._step(st.PLAN, min(max(newest, opened), seq), seq, **rest)
                case ev.PlanDecided(computed_at=request):
                    yield self._step(st.PLAN, min(asked.pop(request, request), seq), seq, **rest)
                case _:
                    pass
        for seq in asked.values():
            yield self._step(st.PLAN, seq, None, cause=(seq,))
        for place, round_ in enumerate(rounds, 1):
            if not any(_within(round_, seq) for seq in local):
                yield from self._answered_by_order(place, round_)

    def _answered_by_order(self, number: int, round_: Round) -> Iterator[st.Step]:
        if round_.close is None or round_.order is None:
            return
        order = round_.order
        yield self._step(
            st.PLAN,
            _last_answer(round_),
            order.seq,
            cause=order.cause,
            what=str(order.body.__struct_config__.tag),
            transition=number,
            generation=order.body.generation,
        )

    # --- A transition ----------------------------------------------------------------------------

    def transition(self, number: int, round_: Round) -> Iterator[st.Step]:
        """Quiesce, regroup, transfer, redistribute and resume, as far as there was each."""
        if round_.close is not None:
            yield self._quiesce(number, round_, round_.close)
        if round_.order is None:
            return
        order = round_.order
        common: dict[str, Any] = {
            "cause": order.cause,
            "transition": number,
            "generation": order.body.generation,
        }
        ready = max(r.seq for r in round_.ready.values()) if round_.all_ready else None
        yield self._step(
            st.REGROUP,
            order.seq,
            ready,
            round_.cut,
            what="member.ready.v1" if ready else "",
            ranks=tuple(self._regrouped(round_, order, m) for m in round_.members.values()),
            **common,
        )
        yield from self._transfer(round_, order, common)
        commits = sorted(c.seq for c in round_.commits.values())
        first = commits[0] if commits else None
        if ready is None and first is None:
            return
        # A commit proves that all were ready, even where that was heard later.
        heard = (r.seq for r in round_.ready.values() if first is None or r.seq < first)
        begun = max(heard, default=order.seq)
        common["cause"] = (order.seq,)
        yield self._step(
            st.REDISTRIBUTE,
            begun,
            first,
            round_.cut,
            what="member.committed.v1" if first else "",
            ranks=tuple(self._shared_out(order, m, begun, first) for m in round_.members.values()),
            **common,
        )
        if first is not None:
            last = commits[-1] if round_.all_committed else None
            yield self._step(
                st.RESUME,
                first,
                last,
                round_.cut,
                what="member.committed.v1" if last else "",
                ranks=tuple(self._resumed(round_, m, first) for m in round_.members.values()),
                **common,
            )

    def _quiesce(self, number: int, round_: Round, close: Said[ev.GenerationClosed]) -> st.Step:
        last = _last_answer(round_) if round_.all_stopped else None
        names = sorted({*round_.stopping, *round_.answers}, key=lambda w: _place(round_, w))
        return self._step(
            st.QUIESCE,
            close.seq,
            last,
            round_.cut,
            cause=close.cause,
            transition=number,
            generation=close.body.generation,
            what="" if last is None else _tag(self._log[last - 1].envelope),
            ranks=tuple(
                part for name in names if (part := self._stopped(round_, close, name)) is not None
            ),
        )

    def _stopped(
        self, round_: Round, close: Said[ev.GenerationClosed], worker: WorkerId
    ) -> st.RankStep | None:
        member, answer = round_.stopping.get(worker), round_.answers.get(worker)
        if answer is None and round_.order is not None:
            return None  # it isn't waited for any more: it was gone before
        body = answer.body if answer else None
        quiesced = body if isinstance(body, ev.MemberQuiesced) else None
        life = quiesced.incarnation if quiesced else member.incarnation if member else 0
        words = {ev.MemberQuiesced: "quiesced", ev.WorkerExited: "exited", ev.NodeLost: "lost"}
        return st.RankStep(
            worker=worker,
            node=node_of(worker),
            incarnation=life,
            rank=member.rank if member and member.incarnation == life else None,
            seq=answer.seq if answer else None,
            start_ns=self._time.at(close.seq),
            end_ns=self._time.at(answer.seq) if answer else None,
            how=words[type(body)] if body is not None else "",
            iteration=quiesced.iteration if quiesced else None,
            kept=len(quiesced.kept) if quiesced else None,
        )

    def _ready_part(
        self, round_: Round, member: OrderedMember, start_ns: int, end_ns: int | None
    ) -> st.RankStep:
        ready = round_.ready.get(member.worker)
        body = ready.body if ready else None
        return st.RankStep(
            worker=member.worker,
            node=member.node,
            incarnation=member.incarnation,
            rank=member.rank,
            seq=ready.seq if ready else None,
            start_ns=start_ns,
            end_ns=end_ns,
            how="ready" if ready else "",
            iteration=body.iteration if body else None,
            state_from=member.state_from,
            received_bytes=body.received_bytes if body else 0,
            unblock_ms=body.unblock_ms if body else 0,
            regroup_ms=body.regroup_ms if body else 0,
            transfer_ms=body.transfer_ms if body else 0,
        )

    def _regrouped(
        self, round_: Round, order: Said[ev.TransitionOrdered], member: OrderedMember
    ) -> st.RankStep:
        """Up to where its transfer begins. Who trains on until the switch begins there."""
        ready, start = round_.ready.get(member.worker), self._time.at(order.seq)
        if ready is None:
            return self._ready_part(round_, member, start, None)
        end = self._before(ready, ready.body.transfer_ms if _receives(round_, member) else 0, start)
        if order.body.planned and ready.body.regroup_ms:
            start = max(start, end - ready.body.regroup_ms * _MS)
        return self._ready_part(round_, member, start, end)

    def _before(self, ready: Said[ev.MemberReady], ms: int, earliest: int) -> int:
        return max(earliest, self._time.at(ready.seq) - max(ms, 0) * _MS)

    def _transfer(
        self, round_: Round, order: Said[ev.TransitionOrdered], common: dict[str, Any]
    ) -> Iterator[st.Step]:
        receivers = [m for m in round_.members.values() if _receives(round_, m)]
        if not receivers:
            return
        begun = self._time.at(order.seq)
        parts = []
        for member in receivers:
            ready = round_.ready.get(member.worker)
            took = ready.body.transfer_ms if ready else 0
            start = self._before(ready, took, begun) if ready and took else begun
            end = self._time.at(ready.seq) if ready else None
            parts.append(self._ready_part(round_, member, start, end))
        seqs = [part.seq for part in parts if part.seq is not None]
        last = max(seqs) if len(seqs) == len(parts) else None
        step = self._step(
            st.TRANSFER,
            order.seq,
            last,
            round_.cut,
            what="member.ready.v1" if last else "",
            ranks=tuple(parts),
            **common,
        )
        yield st.starting_at(step, min(part.start_ns for part in parts))

    def _shared_out(
        self,
        order: Said[ev.TransitionOrdered],
        member: OrderedMember,
        begun: Sequence,
        first: Sequence | None,
    ) -> st.RankStep:
        """All at once: nobody commits before all have computed what they owe."""
        planned = order.body.planned
        return st.RankStep(
            worker=member.worker,
            node=member.node,
            incarnation=member.incarnation,
            rank=member.rank,
            seq=first,
            start_ns=self._time.at(begun),
            end_ns=None if first is None else self._time.at(first),
            how="" if first is None else "committed",
            iteration=None if planned else order.body.iteration,
            kept=None if planned else len(member.keeps),
            owed=None if planned else len(member.owes),
        )

    def _resumed(self, round_: Round, member: OrderedMember, first: Sequence) -> st.RankStep:
        commit = round_.commits.get(member.worker)
        return st.RankStep(
            worker=member.worker,
            node=member.node,
            incarnation=member.incarnation,
            rank=member.rank,
            seq=commit.seq if commit else None,
            start_ns=self._time.at(first),
            end_ns=self._time.at(commit.seq) if commit else None,
            how="committed" if commit else "",
            iteration=commit.body.iteration if commit else None,
        )


def _tag(envelope: ev.Envelope | None) -> str:
    return "" if envelope is None else str(envelope.body.__struct_config__.tag)


def _within(round_: Round, seq: Sequence) -> bool:
    """Between the close and the order, or what ended the wait for one."""
    if round_.close is None or seq < round_.close.seq:
        return False
    end = round_.order.seq if round_.order is not None else round_.cut
    return end is None or seq < end


def _last_answer(round_: Round) -> Sequence:
    assert round_.close is not None
    return max((a.seq for a in round_.answers.values()), default=round_.close.seq)


def _place(round_: Round, worker: WorkerId) -> tuple[bool, int, WorkerId]:
    """By rank; who has none comes last."""
    member = round_.stopping.get(worker)
    return member is None, member.rank if member else 0, worker


def _receives(round_: Round, member: OrderedMember) -> bool:
    """Is the state handed to it? From whom, or that it was, is enough."""
    ready = round_.ready.get(member.worker)
    ordered = member.state_from is not None and member.state_from >= 0
    return ordered or (ready is not None and ready.body.received_bytes > 0)
