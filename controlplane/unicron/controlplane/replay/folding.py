"""One pass of the fold over a log, with notes on what the fold only counts."""

from collections.abc import Iterable, Iterator

import msgspec

from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.snapshot import Snapshot
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.replay.divergence import Divergence, ReplayDivergence
from unicron.events import (
    EMPTY_CHAIN,
    LogBroken,
    Recorded,
    Sequence,
    Source,
    StateDigest,
    UndecodableEvent,
    UnknownEvent,
    extend_chain,
    subjects,
)


class SourceGap(msgspec.Struct, frozen=True, kw_only=True):
    """A source's numbers `first` to `last` never reached the log; noticed at `seq`."""

    seq: Sequence
    who: str
    incarnation: int
    first: int
    last: int


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that this version can't read. `tag`: its type, "" if it isn't even an event."""

    seq: Sequence
    tag: str
    reason: str
    decision: bool


class Folding:
    """Folds entries one by one, from the first on, or from the one after `snapshot`. `chain` and
    `state` are those after the last one."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.state = snapshot.state if snapshot is not None else ClusterState()
        self.chain = bytes.fromhex(snapshot.chain) if snapshot is not None else EMPTY_CHAIN
        self.void: list[Sequence] = []
        self.duplicates: list[Sequence] = []
        self.gaps: list[SourceGap] = []
        self.unread: list[Unread] = []

    def step(self, recorded: Recorded, chain: bytes | None = None) -> ClusterState:
        """Fold one entry; the state after it. `chain`: the log's after it, if that is known.

        Raises:
            LogBroken: it isn't the next one.
            ReplayDivergence: the fold can't take it; no log that we wrote does that.
        """
        before = self.state
        expected = before.seq + 1
        if recorded.seq != expected:
            raise out_of_order(expected, recorded.seq)
        try:
            after = fold(before, recorded)
        except Exception as error:  # whatever a forged entry makes the fold stumble over
            raise ReplayDivergence(_fold_failed(recorded, error)) from error
        self.state = after
        self.chain = chain or extend_chain(
            self.chain, recorded.seq, recorded.subject, recorded.data
        )
        if (
            after.void != before.void
            or after.duplicates != before.duplicates
            or after.gaps != before.gaps
            or after.unknown != before.unknown
        ):
            self._note(before, after, recorded)
        return after

    def run(self, events: Iterable[Recorded], until: int | None = None) -> ClusterState:
        """Fold all of `events`, or those up to `until`. Raises as step() does."""
        for recorded in events:
            if until is not None and recorded.seq > until:
                break
            self.step(recorded)
        return self.state

    def _note(self, before: ClusterState, after: ClusterState, recorded: Recorded) -> None:
        if after.void > before.void:
            self.void.append(recorded.seq)
        if after.duplicates > before.duplicates:
            self.duplicates.append(recorded.seq)
        if recorded.envelope is None:
            self.unread.append(_unread(recorded))
        elif after.gaps > before.gaps:
            self.gaps.append(_gap(before, recorded.seq, recorded.envelope.source))


def behind(
    snapshot: Snapshot, items: Iterable[Recorded | StateDigest]
) -> Iterator[Recorded | StateDigest]:
    """What is left of a whole log behind the snapshot. What stands before isn't folded, but held
    against its chain. LogBroken if it isn't what the snapshot was made of."""
    chain, seq, rest = EMPTY_CHAIN, 0, iter(items)
    while seq < snapshot.seq:
        item = next(rest, None)
        if item is None:
            raise LogBroken(
                f"the log ends at #{seq:,}, but the snapshot is of #{snapshot.seq:,}",
                first_wrong=seq + 1,
                why="it has lost its end, or the snapshot is of another one",
                fix="give the whole log, or leave out the snapshot",
                code="E-LOG-SHORT",
            )
        if isinstance(item, StateDigest):
            continue
        if item.seq != seq + 1:
            raise out_of_order(seq + 1, item.seq)
        seq = item.seq
        chain = extend_chain(chain, seq, item.subject, item.data)
    if chain.hex() != snapshot.chain:
        raise LogBroken(
            f"the log up to #{seq:,} isn't what the snapshot was made of",
            first_wrong=1,
            why=f"an event in #1 to #{seq:,} was changed, or the snapshot was",
            fix="leave out the snapshot and verify the whole log",
            code="E-LOG-CHANGED",
        )
    yield from (item for item in rest if item.seq > seq)  # a digest of it isn't compared


def out_of_order(expected: int, found: int) -> LogBroken:
    """The error for an entry that isn't the next one."""
    return LogBroken(
        f"the log goes on with event {found} where {expected} must stand",
        first_wrong=expected,
        why="replay needs every event from the first one on",
        fix="get the whole history from the log",
        code="E-LOG-GAP" if found > expected else "E-LOG-ORDER",
    )


def _fold_failed(recorded: Recorded, error: Exception) -> Divergence:
    return Divergence(
        seq=recorded.seq,
        what="fold",
        message="the fold can't take this event",
        why=f"{type(error).__name__}: {error}",
    )


def _unread(recorded: Recorded) -> Unread:
    entry = recorded.entry
    decision = subjects.tree_of(recorded.subject) == "control"
    if isinstance(entry, UnknownEvent):
        reason = "this version doesn't know the type"
        return Unread(seq=recorded.seq, tag=entry.tag, reason=reason, decision=decision)
    reason = entry.reason if isinstance(entry, UndecodableEvent) else ""
    return Unread(seq=recorded.seq, tag="", reason=reason, decision=decision)


def _gap(before: ClusterState, seq: Sequence, source: Source) -> SourceGap:
    known = before.sources.get(source.who)
    same_life = known is not None and known.incarnation == source.incarnation
    heard = known.counter if known is not None and same_life else 0
    return SourceGap(
        seq=seq,
        who=source.who,
        incarnation=source.incarnation,
        first=heard + 1,
        last=source.counter - 1,
    )
