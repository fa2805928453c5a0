"""A log, folded again and judged: what an embedder calls, and what it gets back."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from itertools import takewhile

import msgspec

from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.snapshot import Snapshot
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.replay.divergence import Divergence, ReplayDivergence
from unicron.controlplane.replay.folding import Folding, SourceGap, Unread, behind, out_of_order
from unicron.controlplane.replay.judge import Judge, Tally
from unicron.events import ConfigError, Recorded, Sequence, StateDigest


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found. `digest` and `chain` are those after `last_seq`, the last entry folded.
    What stands up to `began` was taken from a snapshot: nothing of it was judged or counted, and
    of the `unjudged` decisions after it only that they stand where they may.

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
    began: Sequence = Sequence(0)
    unjudged: int = 0
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
    """Replays one log from its first event on, as often as asked; or from `snapshot` on, which is
    then believed. `events` is the whole log all the same, which is held against the snapshot's
    chain, or what came after it alone.

    Raises:
        LogBroken: the entries aren't #1, #2, … (or those after the snapshot) without a hole, or
            aren't those that the snapshot was made of.
    """

    def __init__(self, events: SequenceOf[Recorded], *, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot
        self._began = snapshot.seq if snapshot is not None else 0
        whole = not self._began or (len(events) > 0 and events[0].seq == 1)
        for expected, recorded in enumerate(events, 1 if whole else self._began + 1):
            if recorded.seq != expected:
                raise out_of_order(expected, recorded.seq)
        if snapshot is not None and whole:
            rest = behind(snapshot, events)
            events = tuple(item for item in rest if isinstance(item, Recorded))
        self._events = events

    def state_at(self, seq: int) -> ClusterState:
        """The state after the entry `seq`; 0: before the first.

        Raises:
            ConfigError: the log doesn't reach that far, or the snapshot is of a later one.
            ReplayDivergence: the fold can't take an entry.
        """
        last = self._began + len(self._events)
        if not self._began <= seq <= last:
            raise _out_of_reach(seq, self._began, last)
        return Folding(self._snapshot).run(self._events, seq)

    def replay(self, until: int | None = None) -> ReplayReport:
        """Fold only. Raises as state_at() does."""
        return self._once(verify=False, until=until)

    def verify(self, until: int | None = None) -> ReplayReport:
        """Fold and compare every decision up to the first difference, which is in the report.

        Raises:
            ConfigError: the log doesn't reach up to `until`, or the snapshot is of a later entry.
        """
        return self._once(verify=True, until=until)

    def _once(self, *, verify: bool, until: int | None) -> ReplayReport:
        done = replay_once(self._events, verify=verify, until=until, snapshot=self._snapshot)
        return done[0]


def replay_once(
    items: Iterable[Recorded | StateDigest],
    *,
    verify: bool,
    until: int | None = None,
    fold_version: int = FOLD_VERSION,
    snapshot: Snapshot | None = None,
    chain: Callable[[], bytes] | None = None,
) -> tuple[ReplayReport, ClusterState]:
    """One pass over a log that need not fit into memory; its report and the state at its end.

    `items`: the entries from the first one on, or from the one after `snapshot`, and, of a history
    file, the digests between them; `fold_version`: of the fold that computed those. `chain`: gives
    the log's chain after the item that was taken last, if whoever reads the items computes it
    anyway. Raises as Replayer does.
    """
    began = snapshot.seq if snapshot is not None else Sequence(0)
    if until is not None:
        if until < began:
            raise _out_of_reach(until, began, began)
        items = takewhile(lambda item: item.seq <= until, items)
    if not verify:
        folding, tally = _folded(items, snapshot, chain)
        report = _report(folding, tally, verified=None)
    else:
        judge = Judge(fold_version, snapshot)
        found = judge.first_divergence(items)
        folding = judge.folding
        report = _report(folding, judge.tally, verified=found is None, divergence=found)
    if report.divergence is None and until is not None and report.last_seq < until:
        raise _out_of_reach(until, began, report.last_seq)
    return msgspec.structs.replace(report, began=began), folding.state


def _folded(
    items: Iterable[Recorded | StateDigest],
    snapshot: Snapshot | None,
    chain: Callable[[], bytes] | None,
) -> tuple[Folding, Tally]:
    folding, tally = Folding(snapshot), Tally()
    for item in items:
        if isinstance(item, Recorded):
            folding.step(item, chain() if chain is not None else None)
            tally.count(item)
    return folding, tally


def _out_of_reach(seq: int, began: int, last: int) -> ConfigError:
    if 0 <= seq < began:
        return ConfigError(
            f"#{seq} stands before the snapshot",
            why=f"that is of #{began}, and nothing before it is folded",
            fix=f"give a sequence from {began} on, or leave out the snapshot",
            code="E-REPLAY-UNTIL",
        )
    return ConfigError(
        f"the log has no event #{seq}",
        why=f"it ends with #{last}",
        fix=f"give a sequence from {began} to {last}",
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
        unjudged=tally.unjudged,
        digests=tally.digests,
        vouched=Sequence(tally.vouched),
        divergence=divergence,
    )
