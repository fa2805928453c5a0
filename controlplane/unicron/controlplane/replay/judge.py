"""Fold a log again, decide again at each `decided_at`, and compare with what the log holds.

What is compared for every decision: its basis is there and names an entry before it with no other
decision in between; the chain and the state's digest at `decided_at`; and what decide() gives on
that state. A history file's own digests are compared as well. The first difference is the answer.
A decision of another logic version isn't decided again, and digests are compared only within one
fold version.

One pass, and no state is kept: entries wait unfolded until the next decision says at which of
them it was made.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.snapshot import Snapshot
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.core.verdict import LOGIC_VERSION, Verdict
from unicron.controlplane.replay.divergence import (
    Divergence,
    ReplayDivergence,
    differences,
    shown,
)
from unicron.controlplane.replay.folding import Folding
from unicron.events import (
    AlarmRaised,
    AnyDecision,
    Basis,
    ClusterConfigured,
    DeadlinePassed,
    Decision,
    DecodeError,
    Envelope,
    LeadershipTaken,
    NodeRecovered,
    NodeReturned,
    NodeSuspected,
    PlanSolved,
    Recorded,
    Sequence,
    StateDigest,
    TaskMeasured,
    TaskStalled,
    TaskSubmitted,
    Term,
    UnknownEvent,
    WorkerSlow,
    decode,
    subjects,
)

#: What enters the control tree from outside decide(): time, opinions, orders of people, answers
#: of the solver. They have no basis. All other decisions have one.
INPUTS: Final[tuple[type[Decision], ...]] = (
    LeadershipTaken,
    TaskSubmitted,
    ClusterConfigured,
    DeadlinePassed,
    PlanSolved,
    NodeSuspected,
    TaskStalled,
    TaskMeasured,
    WorkerSlow,
    NodeRecovered,
    NodeReturned,
    AlarmRaised,
)


class Tally:
    """Counts over the entries that were read. `vouched`: the last entry that a decision's chain
    covers, all before it included; `digests`: those of the file that were compared; `unjudged`:
    decisions that were made on a state before the snapshot."""

    def __init__(self) -> None:
        self.events = self.decisions = self.inputs = self.foreign = 0
        self.redecided = self.other_versions = self.digests = self.unjudged = 0
        self.vouched = 0

    def count(self, recorded: Recorded) -> None:
        self.events += 1
        envelope = recorded.entry
        if not isinstance(envelope, Envelope) or not isinstance(envelope.body, Decision):
            return
        self.decisions += 1
        self.inputs += type(envelope.body) in INPUTS
        if envelope.basis is not None:
            self.foreign += envelope.basis.decided_at < recorded.seq - 1


class Judge:
    """One verification. `fold_version`: of the fold that computed the file's digests. What stands
    up to `snapshot` is believed."""

    def __init__(self, fold_version: int = FOLD_VERSION, snapshot: Snapshot | None = None) -> None:
        self.folding = Folding(snapshot)
        self.tally = Tally()
        self._fold_version = fold_version
        self._waiting: deque[Recorded | StateDigest] = deque()  # taken in, not folded yet
        self._control = 0  # last entry of the control tree
        self._terms: dict[int, LeadershipTaken] = {}
        self._began = snapshot.seq if snapshot is not None else 0
        if snapshot is not None:
            self._control = snapshot.control_seq
            if snapshot.leadership is not None:
                self._terms[snapshot.state.term] = snapshot.leadership

    def first_divergence(self, items: Iterable[Recorded | StateDigest]) -> Divergence | None:
        """Take in all of `items`, or those up to the first difference.

        Raises:
            LogBroken: they aren't #1, #2, … without a hole.
        """
        for item in items:
            found = self._take_in(item)
            if found is not None:
                return found
        return self._fold_to(None)

    def _take_in(self, item: Recorded | StateDigest) -> Divergence | None:
        if isinstance(item, StateDigest) or not _speaks(item):
            self._waiting.append(item)
            return None
        basis = item.envelope.basis if item.envelope is not None else None
        found = self._fold_to(basis.decided_at if basis is not None else item.seq - 1)
        at = (self.folding.state, self.folding.chain)
        found = found or self._fold_to(item.seq - 1) or self._judge(item, *at)
        if found is None:
            self._waiting.append(item)
            found = self._fold_to(item.seq)
            if subjects.tree_of(item.subject) == "control":
                self._control = item.seq
        return found

    def _fold_to(self, seq: int | None) -> Divergence | None:
        """Fold what waits, up to the entry `seq`; None: all of it."""
        while self._waiting and (seq is None or self._waiting[0].seq <= seq):
            item = self._waiting.popleft()
            if isinstance(item, StateDigest):
                found = self._compared(item)
                if found is not None:
                    return found
                continue
            try:
                self.folding.step(item)
            except ReplayDivergence as error:
                return error.divergence
            self.tally.count(item)
        return None

    def _compared(self, item: StateDigest) -> Divergence | None:
        if self._fold_version != FOLD_VERSION:
            return None
        self.tally.digests += 1
        expected = digest(self.folding.state)
        if item.state_digest == expected:
            return None
        return Divergence(
            seq=Sequence(item.seq),
            what="digest",
            message=f"the state after #{item.seq} isn't the one whose digest the file holds",
            why="the events are the same, so the fold differs, or the digest was changed",
            expected=expected,
            actual=item.state_digest,
        )

    def _judge(self, recorded: Recorded, state: ClusterState, chain: bytes) -> Divergence | None:
        """`state` and `chain` are those at the decision's `decided_at`, if it has one."""
        seq, envelope = recorded.seq, recorded.envelope
        control = subjects.tree_of(recorded.subject) == "control"
        if control:  # here every field counts: what isn't understood may have decided something
            try:
                decode(recorded.subject, recorded.data, strict=True)
            except DecodeError as error:
                return self._unread(recorded, error)
        if envelope is None or not isinstance(envelope.body, Decision):
            return None
        if not control:
            message = f"{_name(envelope)} stands outside the control tree"
            return Divergence(seq=seq, what="subject", message=message, actual=recorded.subject)
        if isinstance(envelope.body, LeadershipTaken):
            self._terms[seq] = envelope.body
        if isinstance(envelope.body, INPUTS):
            if envelope.basis is None:
                return self._input(seq, envelope)
            message = f"{_name(envelope)} has a basis, but decide() never makes one"
            return Divergence(seq=seq, what="basis", message=message)
        if envelope.basis is None:
            message = f"{_name(envelope)} has no basis: nothing says what it was decided on"
            return Divergence(seq=seq, what="basis", message=message)
        return self._decision(seq, envelope, envelope.basis, state, chain)

    def _input(self, seq: Sequence, envelope: Envelope) -> Divergence | None:
        """Nothing says what an input was made of, but it must be its leader's, too."""
        led = self.folding.state.term
        if isinstance(envelope.body, LeadershipTaken) or envelope.term == led:
            return None
        return _other_term(seq, envelope, led)

    def _unread(self, recorded: Recorded, error: DecodeError) -> Divergence:
        if not isinstance(recorded.entry, UnknownEvent):
            return Divergence(seq=recorded.seq, what="event", message=error.what, why=error.why)
        leader = self._terms.get(self.folding.state.term)
        writer = f"unicron {leader.version}" if leader and leader.version else "its version"
        return Divergence(
            seq=recorded.seq,
            what="newer",
            message=f"{error.what}: from here on nothing can be judged",
            why=f"it was written by a newer version; {writer} led then and can read it",
        )

    def _decision(
        self, seq: Sequence, envelope: Envelope, basis: Basis, state: ClusterState, chain: bytes
    ) -> Divergence | None:
        at = basis.decided_at
        name = _name(envelope)
        if not self._control <= at < seq:
            between = f"and #{self._control} came between" if at < seq else "which isn't before it"
            return Divergence(
                seq=seq,
                what="fence",
                message=f"{name} was decided at #{at}, {between}",
                why="one decision at a time: each is decided on a state that has the one before",
                expected=f"#{self._control} to #{seq - 1}",
                actual=f"#{at}",
            )
        leadership = self._terms.get(envelope.term)
        if leadership is None or state.term != envelope.term:
            return _other_term(seq, envelope, state.term)
        if basis.logic_version != leadership.logic_version:
            return Divergence(
                seq=seq,
                what="version",
                message=f"{name} and its leader name different versions of decide()",
                expected=str(leadership.logic_version),
                actual=str(basis.logic_version),
            )
        if at < self._began:
            self.tally.unjudged += 1
            return None
        return self._basis(seq, basis, state, chain) or self._again(
            seq, envelope, basis, state, leadership
        )

    def _basis(
        self, seq: Sequence, basis: Basis, state: ClusterState, chain: bytes
    ) -> Divergence | None:
        at, vouched = basis.decided_at, self.tally.vouched
        if basis.chain != chain.hex():
            return Divergence(
                seq=seq,
                what="chain",
                message=f"the log up to #{at} isn't the one that was read when this was decided",
                why=f"an event in #{vouched + 1} to #{at} was changed, or this one was",
                since=Sequence(vouched + 1),
                expected=chain.hex(),
                actual=basis.chain,
            )
        if self._terms[state.term].fold_version == FOLD_VERSION:
            expected = digest(state)
            if basis.state_digest != expected:
                return Divergence(
                    seq=seq,
                    what="state",
                    message=f"the state at #{at} isn't the one this was decided on",
                    why=f"the events are the same, so the fold differs after #{vouched}, "
                    "or this digest was changed",
                    expected=expected,
                    actual=basis.state_digest,
                )
        self.tally.vouched = max(vouched, at)
        return None

    def _again(
        self,
        seq: Sequence,
        envelope: Envelope,
        basis: Basis,
        state: ClusterState,
        leadership: LeadershipTaken,
    ) -> Divergence | None:
        versions = (basis.logic_version, leadership.fold_version)
        if versions != (LOGIC_VERSION, FOLD_VERSION):
            self.tally.other_versions += 1
            return None
        try:
            verdict = decide(state)
        except Exception as error:  # on the state that a forged log leads to
            return Divergence(
                seq=seq,
                what="decision",
                message=f"decide() fails on the state at #{basis.decided_at}",
                why=f"{type(error).__name__}: {error}",
            )
        self.tally.redecided += 1
        recorded = Verdict(
            body=_as_decision(envelope), cause=envelope.cause, incident=envelope.incident
        )
        if verdict == recorded:
            return None
        return _other_decision(seq, basis.decided_at, verdict, recorded)


def _other_decision(
    seq: Sequence, at: int, verdict: Verdict | None, recorded: Verdict
) -> Divergence:
    was = type(verdict.body).__name__ if verdict is not None else "nothing"
    is_ = type(recorded.body).__name__
    diff: tuple[str, ...] = ()
    if verdict is not None and was == is_:
        diff = differences(_fields(verdict), _fields(recorded))
        message = f"{is_} isn't what decide() gives on the state at #{at}"
    else:
        message = f"on the state at #{at}, decide() gives {was}, and the log has {is_}"
    return Divergence(
        seq=seq,
        what="decision",
        message=message,
        expected="nothing" if verdict is None else shown(_fields(verdict)),
        actual=shown(_fields(recorded)),
        diff=diff,
    )


def _fields(verdict: Verdict) -> dict[str, object]:
    return {"body": verdict.body, "cause": verdict.cause, "incident": verdict.incident}


def _as_decision(envelope: Envelope) -> AnyDecision:
    assert isinstance(envelope.body, Decision)
    return envelope.body


def _speaks(recorded: Recorded) -> bool:
    """Is it a decision, or does it stand where only decisions may?"""
    envelope = recorded.envelope
    decision = envelope is not None and isinstance(envelope.body, Decision)
    return decision or subjects.tree_of(recorded.subject) == "control"


def _other_term(seq: Sequence, envelope: Envelope, led: Term) -> Divergence:
    return Divergence(
        seq=seq,
        what="term",
        message=f"{_name(envelope)} is of term {envelope.term}, but #{led} led then",
        expected=str(led),
        actual=str(envelope.term),
    )


def _name(envelope: Envelope) -> str:
    return type(envelope.body).__name__
