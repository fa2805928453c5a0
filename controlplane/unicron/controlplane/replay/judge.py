"""Fold a log again, decide again at each `decided_at`, and compare with what the log holds.

What is compared for every decision: its basis is there and names an entry before it with no other
decision in between; the chain and the state's digest at `decided_at`; and what decide() gives on
that state. The first difference is the answer. A decision of another logic version isn't decided
again, and digests are compared only within one fold version.
"""

from collections import Counter
from typing import Final

from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.fold import digest
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
    TaskStalled,
    TaskSubmitted,
    WorkerSlow,
    decode,
    subjects,
)

#: What enters the control tree from outside decide(): time, opinions, orders of people, answers
#: of the solver. They have no basis. All other decisions have one.
INPUTS: Final[tuple[type[Decision], ...]] = (
    LeadershipTaken,
    TaskSubmitted,
    DeadlinePassed,
    PlanSolved,
    NodeSuspected,
    TaskStalled,
    WorkerSlow,
    NodeRecovered,
    NodeReturned,
    AlarmRaised,
)


class Tally:
    """Counts over the entries that were read."""

    def __init__(self) -> None:
        self.events = self.decisions = self.inputs = self.foreign = 0
        self.redecided = self.other_versions = 0

    def count(self, recorded: Recorded) -> None:
        self.events += 1
        envelope = recorded.envelope
        if envelope is None or not isinstance(envelope.body, Decision):
            return
        self.decisions += 1
        self.inputs += isinstance(envelope.body, INPUTS)
        if envelope.basis is not None:
            self.foreign += envelope.basis.decided_at < recorded.seq - 1


class Judge:
    """One verification. Keeps the old states that decisions to come name, and no others."""

    def __init__(self, events: list[Recorded]) -> None:
        self.folding = Folding()
        self.tally = Tally()
        self._events = events
        self._needed: Counter[int] = Counter(
            r.envelope.basis.decided_at for r in events if r.envelope and r.envelope.basis
        )
        self._kept: dict[int, tuple[ClusterState, bytes]] = {}
        self._control = 0  # last entry of the control tree
        self._agreed = 0  # newest `decided_at` whose chain was right
        self._terms: dict[int, LeadershipTaken] = {}
        self._keep()

    def first_divergence(self) -> Divergence | None:
        for recorded in self._events:
            found = self._judge(recorded)
            if found is not None:
                return found
            self.tally.count(recorded)
            try:
                self.folding.step(recorded)
            except ReplayDivergence as error:
                return error.divergence
            self._keep()
            if subjects.tree_of(recorded.subject) == "control":
                self._control = recorded.seq
        return None

    def _keep(self) -> None:
        if self._needed[self.folding.state.seq]:
            self._kept[self.folding.state.seq] = (self.folding.state, self.folding.chain)

    def _judge(self, recorded: Recorded) -> Divergence | None:
        seq, envelope = recorded.seq, recorded.envelope
        control = subjects.tree_of(recorded.subject) == "control"
        if control:  # here every field counts: what isn't understood may have decided something
            try:
                decode(recorded.subject, recorded.data, strict=True)
            except DecodeError as error:
                return Divergence(seq=seq, what="event", message=error.what, why=error.why)
        if envelope is None or not isinstance(envelope.body, Decision):
            return None
        if not control:
            message = f"{_name(envelope)} stands outside the control tree"
            return Divergence(seq=seq, what="subject", message=message, actual=recorded.subject)
        if isinstance(envelope.body, LeadershipTaken):
            self._terms[seq] = envelope.body
        if isinstance(envelope.body, INPUTS):
            if envelope.basis is None:
                return None
            message = f"{_name(envelope)} has a basis, but decide() never makes one"
            return Divergence(seq=seq, what="basis", message=message)
        if envelope.basis is None:
            message = f"{_name(envelope)} has no basis: nothing says what it was decided on"
            return Divergence(seq=seq, what="basis", message=message)
        return self._decision(seq, envelope, envelope.basis)

    def _decision(self, seq: Sequence, envelope: Envelope, basis: Basis) -> Divergence | None:
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
        state, chain = self._take(at)
        if leadership is None or state.term != envelope.term:
            return Divergence(
                seq=seq,
                what="term",
                message=f"{name} is of term {envelope.term}, but #{state.term} led then",
                expected=str(state.term),
                actual=str(envelope.term),
            )
        if basis.logic_version != leadership.logic_version:
            return Divergence(
                seq=seq,
                what="version",
                message=f"{name} and its leader name different versions of decide()",
                expected=str(leadership.logic_version),
                actual=str(basis.logic_version),
            )
        return self._basis(seq, basis, state, chain) or self._again(
            seq, envelope, basis, state, leadership
        )

    def _take(self, at: int) -> tuple[ClusterState, bytes]:
        found = self._kept[at]
        self._needed[at] -= 1
        if not self._needed[at]:
            del self._kept[at]
        return found

    def _basis(
        self, seq: Sequence, basis: Basis, state: ClusterState, chain: bytes
    ) -> Divergence | None:
        at = basis.decided_at
        if basis.chain != chain.hex():
            return Divergence(
                seq=seq,
                what="chain",
                message=f"the log up to #{at} isn't the one that was read when this was decided",
                why=f"an event in #{self._agreed + 1} to #{at} was changed, or this one was",
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
                    why=f"the events are the same, so the fold differs after #{self._agreed}, "
                    "or this digest was changed",
                    expected=expected,
                    actual=basis.state_digest,
                )
        self._agreed = max(self._agreed, at)
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


def _name(envelope: Envelope) -> str:
    return type(envelope.body).__name__
