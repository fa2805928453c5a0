"""A log, folded again and judged: what an embedder calls, and what it gets back."""

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from itertools import takewhile

import msgspec

from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.replay.divergence import Divergence, ReplayDivergence
from unicron.controlplane.replay.folding import Folding, SourceGap, Unread, out_of_order
from unicron.controlplane.replay.judge import Judge, Tally
from unicron.events import ConfigError, Recorded, Sequence, StateDigest


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found. `digest` and `chain` are those after `last_seq`, the last entry folded.

    `foreign`: decisions with other entries between their `decided_at` and themselves.
    `other_versions`: decisions not decided again because another version of decide() or of the
    fold made them. `digests`: those of the history file that were compared. `vouched`: the last
    entry that the chain in a later decision covers; what was changed after it shows only in a
    file's seal. `verified`: None if nothing was compared.
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
    digests: int = 0
    vouched: Sequence = Sequence(0)
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
        return replay_once(self._events, verify=False, until=until)[0]

    def verify(self, until: int | None = None) -> ReplayReport:
        """Fold and compare every decision up to the first difference, which is in the report.

        Raises:
            ConfigError: the log doesn't reach up to `until`.
        """
        return replay_once(self._events, verify=True, until=until)[0]

    def _check_reaches(self, seq: int) -> None:
        if not 0 <= seq <= len(self._events):
            raise _too_short(seq, len(self._events))


def replay_once(
    items: Iterable[Recorded | StateDigest],
    *,
    verify: bool,
    until: int | None = None,
    fold_version: int = FOLD_VERSION,
) -> tuple[ReplayReport, ClusterState]:
    """One pass over a log that need not fit into memory; its report and the state at its end.

    `items`: the entries from the first one on and, of a history file, the digests between them;
    `fold_version`: of the fold that computed those. Raises as Replayer does.
    """
    if until is not None:
        if until < 0:
            raise _too_short(until, 0)
        items = takewhile(lambda item: item.seq <= until, items)
    if not verify:
        folding, tally = _folded(items)
        report = _report(folding, tally, verified=None)
    else:
        judge = Judge(fold_version)
        found = judge.first_divergence(items)
        folding = judge.folding
        report = _report(folding, judge.tally, verified=found is None, divergence=found)
    if report.divergence is None and until is not None and report.last_seq < until:
        raise _too_short(until, report.last_seq)
    return report, folding.state


def _folded(items: Iterable[Recorded | StateDigest]) -> tuple[Folding, Tally]:
    folding, tally = Folding(), Tally()
    for item in items:
        if isinstance(item, Recorded):
            folding.step(item)
            tally.count(item)
    return folding, tally


def _too_short(seq: int, last: int) -> ConfigError:
    return ConfigError(
        f"the log has no event #{seq}",
        why=f"it ends with #{last}",
        fix=f"give a sequence from 0 to {last}",
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
        digests=tally.digests,
        vouched=Sequence(tally.vouched),
        divergence=divergence,
    )
