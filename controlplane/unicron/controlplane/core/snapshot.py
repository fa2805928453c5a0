"""What an instance knows after one entry of its log, as bytes: a cache, so that whoever starts need
not fold the log from its first entry on.

A line with the format and the sha256 of all the rest, which is compressed: a line with everything
but the maps of the state; then the maps, some entries a line, in the order in which they stand:
rules go by it. So a large state is encoded in many short steps, between which other threads run.

What can't be used is left aside, and the log is folded from its start. But a snapshot that is
whole also bears witness: a log that isn't the one it was made of, or lost its end, is refused.
"""

import functools
import hashlib
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final, TypeVar, get_origin

import msgspec

from unicron.controlplane.core.change import replace
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.events import (
    EMPTY_CHAIN,
    Envelope,
    LeadershipTaken,
    LogBroken,
    LogMismatch,
    Recorded,
    Sequence,
    extend_chain,
)
from unicron.planner.problem import PlanProblem

T = TypeVar("T")

#: Of the bytes; a newer one is left aside.
SNAPSHOT_FORMAT: Final = 1

_MAGIC: Final = b"unicron-snapshot"
_LINE: Final = 500
_MAPS: Final = {
    field.name: msgspec.json.Decoder(field.type)
    for field in msgspec.structs.fields(ClusterState)
    if get_origin(field.type) is dict
}


class SnapshotUnusable(Exception):
    """It is left aside; the message says why."""


class UnreadSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance couldn't read. `first`: by kind, the alarm that is due for its first entry;
    `said`: those that are in the log. `decision`: the first one of a newer version, with its tag.
    """

    first: dict[str, str] = {}
    said: tuple[str, ...] = ()
    decision: tuple[Sequence, str] | None = None


class SnapshotHead(msgspec.Struct, frozen=True, kw_only=True):
    """Which log it is of, and up to which entry. `entry`: entry_hash() of that one. `fold_version`
    and `vocabulary` say who understands the state; `version`: of the software, for people."""

    cluster: str
    birth: str
    seq: Sequence
    entry: str
    fold_version: int
    vocabulary: str
    version: str = ""


class Snapshot(SnapshotHead, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a follower has made of the log up to `seq` and needs to go on.

    `chain` (hex) is that of the log. `control_seq`: last entry of the control tree, the fence.
    `leadership`: the one in force, None before the first. `problem`: what the open request for a
    plan is about. `losses`: the newest NodeLost of each node. `state_digest`: of `state`.
    """

    chain: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    control_seq: Sequence
    leadership: LeadershipTaken | None
    problem: PlanProblem | None
    losses: dict[str, Sequence]
    unread: UnreadSoFar
    state_digest: str = ""
    state: ClusterState


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot is held against that is said to be of the entry `seq`. `entry`: what stands
    there, None if there is nothing; `missing`: the first entry up to there that isn't in the log
    any more, 0 if all are."""

    cluster: str
    birth: str
    last_seq: Sequence
    seq: Sequence
    entry: Recorded | None
    missing: Sequence = Sequence(0)


_encoder = msgspec.json.Encoder()
_head_decoder = msgspec.json.Decoder(SnapshotHead)
_decoder = msgspec.json.Decoder(Snapshot)


def entry_hash(recorded: Recorded) -> str:
    """Tells one entry from any other (hex): its sequence, subject and bytes."""
    return extend_chain(EMPTY_CHAIN, recorded.seq, recorded.subject, recorded.data).hex()


@functools.cache
def vocabulary() -> str:
    """sha256 (hex) over the events that this version understands. A state in which some were
    unknown isn't what whoever knows them would have made of the same log."""
    schema = _undescribed(msgspec.json.schema(Envelope))
    return hashlib.sha256(msgspec.json.encode(schema, order="deterministic")).hexdigest()


def _undescribed(schema: Any) -> Any:
    """Without texts for people."""
    if isinstance(schema, dict):
        told = {k: v for k, v in schema.items() if not (k == "description" and type(v) is str)}
        return {key: _undescribed(value) for key, value in told.items()}
    return [_undescribed(value) for value in schema] if isinstance(schema, list) else schema


# --- As bytes -----------------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Its bytes, with the digest of its state. Takes as long as encoding the state twice."""
    packer = zlib.compressobj(level=1)
    parts = [packer.compress(line) for line in _lines(snapshot)]
    content = b"".join([*parts, packer.flush()])
    check = hashlib.sha256(content).hexdigest()
    return b"%s %d %s\n%s" % (_MAGIC, SNAPSHOT_FORMAT, check.encode(), content)


def _lines(snapshot: Snapshot) -> Iterator[bytes]:
    state = snapshot.state
    empty: dict[str, Any] = {}
    rest = replace(state, **dict.fromkeys(_MAPS, empty))
    yield _encoder.encode(replace(snapshot, state=rest, state_digest=digest(state))) + b"\n"
    for name in _MAPS:
        entries = iter(getattr(state, name).items())
        while some := dict(islice(entries, _LINE)):
            yield _encoder.encode({name: some}) + b"\n"


def read_head(data: bytes) -> SnapshotHead:
    """What it is of. Raises SnapshotUnusable if it isn't whole, or of another format."""
    return _decoded(_head_decoder, _content(data).partition(b"\n")[0])


def decode_snapshot(data: bytes) -> Snapshot:
    """The snapshot in these bytes. Raises SnapshotUnusable if this version wouldn't have made the
    same of its log."""
    first, *lines = _content(data).rstrip(b"\n").split(b"\n")
    head = _decoded(_head_decoder, first)
    if head.fold_version != FOLD_VERSION:
        raise SnapshotUnusable(
            f"it was folded by version {head.fold_version} of the rules, and this is {FOLD_VERSION}"
        )
    if head.vocabulary != vocabulary():
        raise SnapshotUnusable("it was made by a version that knows other events")
    snapshot = _decoded(_decoder, first)
    maps: dict[str, dict[str, Any]] = {}
    for line in lines:
        for name, entries in _decoded(_raw_decoder, line).items():
            if name not in _MAPS:
                raise SnapshotUnusable(f"its state has a part {name}, which is none")
            maps.setdefault(name, {}).update(_decoded(_MAPS[name], entries))
    state = replace(snapshot.state, **maps)
    if state.seq != snapshot.seq or digest(state) != snapshot.state_digest:
        raise SnapshotUnusable("its state isn't the one that it was made of")
    return replace(snapshot, state=state)


_raw_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _content(data: bytes) -> bytes:
    """What stands below the first line, if its check is right."""
    first, _, content = data.partition(b"\n")
    magic, *rest = first.split(b" ")
    if magic != _MAGIC or not rest:
        raise SnapshotUnusable("it is no snapshot, or only the beginning of one")
    if rest[0] != str(SNAPSHOT_FORMAT).encode():
        raise SnapshotUnusable(
            f"it has format {rest[0][:20].decode(errors='replace')}; this version reads "
            f"{SNAPSHOT_FORMAT}"
        )
    if rest[1:] != [hashlib.sha256(content).hexdigest().encode()]:
        raise SnapshotUnusable("its bytes don't match their check: it was cut off or changed")
    try:
        return zlib.decompress(content)
    except zlib.error as error:
        raise SnapshotUnusable(f"it can't be read: {error}") from None


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotUnusable(f"it can't be read: {error}") from None


# --- Against the log ----------------------------------------------------------------------------


def judge(data: bytes, log: LogFacts, where: str) -> Snapshot:
    """The snapshot, if it may stand for the beginning of this log. `where` names it for people.

    Raises:
        SnapshotUnusable: it is left aside.
        LogMismatch, LogBroken: it is whole, and shows that the log isn't what it was.
    """
    head = read_head(data)
    if head.cluster != log.cluster:
        raise SnapshotUnusable(f"it is of cluster {head.cluster}")
    if head.seq != log.seq:
        raise SnapshotUnusable(f"it is of #{head.seq:,}")
    check_log(head, log, where)
    return decode_snapshot(data)


def check_log(head: SnapshotHead, log: LogFacts, where: str) -> None:
    """Nothing if the snapshot was made of this log. Raises LogMismatch or LogBroken."""
    restore = "restore the log from a replica or backup"
    fix = (
        f"{restore}; only if what it lost may be lost, move the snapshots ({where}) away and empty "
        "the run folders of all nodes"
    )
    check_birth(head, log.birth, fix)
    if head.seq > log.last_seq:
        raise LogBroken(
            f"the log of {log.cluster} ends at #{log.last_seq:,}, but the snapshot is of "
            f"#{head.seq:,}",
            first_wrong=log.last_seq + 1,
            why="it has lost its end",
            fix=fix,
            code="E-LOG-SHORT",
        )
    if log.entry is None or log.missing:
        missing = log.missing or head.seq
        raise LogBroken(
            f"the log of {log.cluster} has no event {missing}, but the snapshot is of "
            f"#{head.seq:,}",
            first_wrong=missing,
            why="events were removed from it",
            fix=restore,
            code="E-LOG-GAP",
        )
    if entry_hash(log.entry) != head.entry:
        raise LogBroken(
            f"#{head.seq:,} of the log of {log.cluster} isn't what the snapshot was made of",
            first_wrong=head.seq,
            why="it lost its end and went on otherwise, or was changed",
            fix=fix,
            code="E-LOG-CHANGED",
        )


def check_birth(head: SnapshotHead, birth: str, fix: str) -> None:
    """Nothing if it is of the log that was born so; else LogMismatch, with this to do about it."""
    if head.birth != birth:
        raise LogMismatch(
            f"the log of {head.cluster} is another one than the snapshot of #{head.seq:,} is of",
            why=f"it was born {birth}, and the snapshot's {head.birth}",
            fix=fix,
            code="E-LOG-BIRTH",
        )
