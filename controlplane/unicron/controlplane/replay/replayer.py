"""A log, folded again and judged: what an embedder calls, and what it gets back."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf

import msgspec

from unicron.controlplane.core.fold import digest
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.replay.divergence import Divergence, ReplayDivergence
from unicron.controlplane.replay.folding import Folding, SourceGap, Unread, out_of_order
from unicron.controlplane.replay.judge import Judge, Tally
from unicron.events import ConfigError, Recorded, Sequence


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found. `digest` and `chain` are those after `last_seq`, the last entry folded.

    `foreign`: decisions with other entries between their `decided_at` and themselves.
    `other_versions`: decisions not decided again because another version of decide() or of the
    fold made them. `verified`: None if nothing was compared.
    """

    verified: bool | None
    events: int
    last_seq: Sequence
    decisions: int
    inputs: int
    redecided: int
    foreign: int
    other_versions: int
    void: tuple[Sequence, ...]
    duplicates: tuple[Sequence, ...]
    gaps: tuple[SourceGap, ...]
    unread: tuple[Unread, ...]
    digest: str
    chain: str
    divergence: Divergence | None = None

    def require(self) -> None:
        """Nothing if it holds.

        Raises:
            ReplayDivergence: a difference was found.
        """
        if self.divergence is not None:
            raise ReplayDivergence(self.divergence)


class Replayer:
    """Replays one log from its first event on, as often as asked.

    Raises:
        LogBroken: the entries aren't #1, #2, … without a hole.
    """

    def __init__(self, events: SequenceOf[Recorded]) -> None:
        for expected, recorded in enumerate(events, 1):
            if recorded.seq != expected:
                raise out_of_order(expected, recorded.seq)
        self._events = events

    def state_at(self, seq: int) -> ClusterState:
        """The state after the entry `seq`; 0: before the first.

        Raises:
            ConfigError: the log doesn't reach that far.
            ReplayDivergence: the fold can't take an entry.
        """
        self._check_reaches(seq)
        return Folding().run(self._events, seq)

    def replay(self, until: int | None = None) -> ReplayReport:
        """Fold only. Raises as state_at() does."""
        if until is not None:
            self._check_reaches(until)
        folding, tally = Folding(), Tally()
        for recorded in self._up_to(until):
            tally.count(recorded)
            folding.step(recorded)
        return _report(folding, tally, verified=None)

    def verify(self, until: int | None = None) -> ReplayReport:
        """Fold and compare every decision up to the first difference, which is in the report.

        Raises:
            ConfigError: the log doesn't reach up to `until`.
        """
        if until is not None:
            self._check_reaches(until)
        judge = Judge(list(self._up_to(until)))
        divergence = judge.first_divergence()
        return _report(
            judge.folding, judge.tally, verified=divergence is None, divergence=divergence
        )

    def _up_to(self, until: int | None) -> Iterator[Recorded]:
        return (r for r in self._events if until is None or r.seq <= until)

    def _check_reaches(self, seq: int) -> None:
        if not 0 <= seq <= len(self._events):
            raise ConfigError(
                f"the log has no event #{seq}",
                why=f"it ends with #{len(self._events)}",
                fix=f"give a sequence from 0 to {len(self._events)}",
                code="E-REPLAY-UNTIL",
            )


def _report(
    folding: Folding,
    tally: Tally,
    *,
    verified: bool | None,
    divergence: Divergence | None = None,
) -> ReplayReport:
    return ReplayReport(
        verified=verified,
        events=tally.events,
        last_seq=folding.state.seq,
        decisions=tally.decisions,
        inputs=tally.inputs,
        redecided=tally.redecided,
        foreign=tally.foreign,
        other_versions=tally.other_versions,
        void=tuple(folding.void),
        duplicates=tuple(folding.duplicates),
        gaps=tuple(folding.gaps),
        unread=tuple(folding.unread),
        digest=digest(folding.state),
        chain=folding.chain.hex(),
        divergence=divergence,
    )
