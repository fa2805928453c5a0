"""Snapshots as bytes, and against a log: what is used, left aside, or refused."""

import hashlib
import random
import zlib

import msgspec
import pytest

from tests.core.snapshots import facts_of, snapshot_of
from tests.core.story import running
from unicron.controlplane.core import snapshot as snapshots
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.snapshot import (
    SNAPSHOT_FORMAT,
    SnapshotUnusable,
    decode_snapshot,
    encode_snapshot,
    entry_hash,
    judge,
    read_head,
    vocabulary,
)
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.events import LogBroken, LogMismatch
from unicron.planner.problem import PlanProblem


@pytest.fixture(scope="module")
def story():
    return running(3)


@pytest.fixture(scope="module")
def small(story):
    """The bytes of a snapshot of #40."""
    return encode_snapshot(snapshot_of(story, 40))


def sealed(content, version=SNAPSHOT_FORMAT):
    """With a check that is right."""
    packed = zlib.compress(content)
    return b"unicron-snapshot %d %s\n%s" % (
        version,
        hashlib.sha256(packed).hexdigest().encode(),
        packed,
    )


def lines_of(data):
    return zlib.decompress(data.partition(b"\n")[2]).splitlines()


def test_what_was_put_in_comes_out_in_the_same_order(story):
    for seq in (1, 7, len(story.log)):
        problem = PlanProblem(computed_at=3, nodes=(), tasks=(), expected_run_ms=5)
        made = snapshot_of(story, seq, problem=problem, losses={"n2": 4, "n1": 3})
        read = decode_snapshot(encode_snapshot(made))
        assert replace(read, state_digest="") == made
        assert msgspec.json.encode(read.state) == msgspec.json.encode(made.state)
        assert read_head(encode_snapshot(made)).seq == seq


def test_large_maps_go_over_several_lines_and_keep_their_order(story, monkeypatch):
    monkeypatch.setattr(snapshots, "_LINE", 2)
    made = snapshot_of(story, len(story.log))
    data = encode_snapshot(made)
    assert len(lines_of(data)) > 1 + len(snapshots._MAPS)
    read = decode_snapshot(data).state
    assert (
        list(read.workers) == list(made.state.workers) != sorted(made.state.workers, reverse=True)
    )
    assert msgspec.json.encode(read) == msgspec.json.encode(made.state)


def test_every_byte_counts(small):
    chance = random.Random(0)
    for place in range(len(small)):
        changed = bytearray(small)
        changed[place] ^= 1 << chance.randrange(8)
        with pytest.raises(SnapshotUnusable):
            decode_snapshot(bytes(changed))


def test_whatever_is_missing_at_the_end_shows(small):
    for size in range(len(small)):
        with pytest.raises(SnapshotUnusable):
            decode_snapshot(small[:size])
    with pytest.raises(SnapshotUnusable, match="check"):
        decode_snapshot(small + b"\n")


@pytest.mark.parametrize(
    "other, why",
    [
        ({"fold_version": FOLD_VERSION + 1}, f"folded by version {FOLD_VERSION + 1}"),
        ({"vocabulary": "other"}, "knows other events"),
        ({"seq": 39}, "its state isn't the one"),
    ],
)
def test_what_another_version_made_is_left_aside(story, other, why):
    data = encode_snapshot(snapshot_of(story, 40, **other))
    with pytest.raises(SnapshotUnusable, match=why):
        decode_snapshot(data)


def test_a_newer_format_is_left_aside(small):
    with pytest.raises(SnapshotUnusable, match=r"format 2; this version reads 1"):
        decode_snapshot(sealed(b"whatever", 2))
    assert decode_snapshot(sealed(b"\n".join(lines_of(small))))  # the way it is made here is right


@pytest.mark.parametrize(
    "change",
    [
        lambda first, rest: [first.replace(b'"void":0', b'"void":1'), *rest],
        lambda first, rest: [first.replace(b'"cluster":"c",', b'"cluster":"c","x":1,', 1), *rest],
        lambda first, rest: [first.replace(b'"chain"', b'"chains"'), *rest],
        lambda first, rest: [first, *rest[:-1]],
        lambda first, rest: [first, *rest, b'{"gremlins":{}}'],
        lambda first, rest: [first, *rest, b"[]"],
        lambda first, rest: [first, *rest, b'{"nodes":{"n9":{}}}'],
        lambda first, rest: rest,
        lambda first, rest: [b"[" * 100_000],
        lambda first, rest: [b'{"x":' + b"[" * 100_000],
        lambda first, rest: [b""],
    ],
)
def test_bytes_that_no_version_of_ours_wrote_are_left_aside(small, change):
    first, *rest = lines_of(small)
    changed = change(first, rest)
    assert changed != [first, *rest]
    with pytest.raises(SnapshotUnusable):
        decode_snapshot(sealed(b"\n".join(changed)))


def test_bytes_that_are_no_snapshot_at_all_are_left_aside():
    check = hashlib.sha256(b"no stream").hexdigest().encode()
    for data in (b"", b"\n", b"unicron-snapshot", b"unicron-snapshot\nx", b"\xff 1 x\ny"):
        with pytest.raises(SnapshotUnusable, match="no snapshot"):
            decode_snapshot(data)
    with pytest.raises(SnapshotUnusable, match="can't be read"):
        decode_snapshot(b"unicron-snapshot 1 %s\nno stream" % check)


def test_a_state_with_a_part_that_is_new_is_another_state(small):
    """As a version that had one more field would have written it."""
    first, *rest = lines_of(small)
    changed = first.replace(b'"state":{', b'"state":{"mood":"good",')
    assert changed != first
    assert decode_snapshot(sealed(b"\n".join([changed, *rest])))  # its digest says: nothing in it
    digest = decode_snapshot(small).state_digest.encode()
    changed = changed.replace(digest, hashlib.sha256(b"with a mood").hexdigest().encode())
    with pytest.raises(SnapshotUnusable, match="state isn't the one"):
        decode_snapshot(sealed(b"\n".join([changed, *rest])))


def test_texts_for_people_are_no_part_of_the_vocabulary(monkeypatch):
    told = {"description": "x", "properties": {"description": {"type": "string"}}, "any": [1]}
    assert snapshots._undescribed(told) == {
        "properties": {"description": {"type": "string"}},
        "any": [1],
    }
    before = vocabulary()
    vocabulary.cache_clear()
    schema = snapshots.msgspec.json.schema
    monkeypatch.setattr(snapshots.msgspec.json, "schema", lambda t: {**schema(t), "more": 1})
    assert vocabulary() != before
    vocabulary.cache_clear()


def test_the_same_log_is_believed_also_when_it_has_grown(story, small):
    assert judge(small, facts_of(story, 40), "here").state == story.states[40]
    grown = facts_of(story, 40, last_seq=40)
    assert judge(small, grown, "here").seq == 40


@pytest.mark.parametrize(
    "log, error, code, wrong",
    [
        ({"birth": "other"}, LogMismatch, "E-LOG-BIRTH", None),
        ({"last_seq": 39, "entry": None}, LogBroken, "E-LOG-SHORT", 40),
        ({"entry": None}, LogBroken, "E-LOG-GAP", 40),
        ({"missing": 7}, LogBroken, "E-LOG-GAP", 7),
    ],
)
@pytest.mark.parametrize("fold_version", [FOLD_VERSION, FOLD_VERSION + 1])
def test_a_log_that_lost_something_is_refused(story, log, error, code, wrong, fold_version):
    """Also by a snapshot whose state nobody here understands."""
    data = encode_snapshot(snapshot_of(story, 40, fold_version=fold_version))
    with pytest.raises(error) as refused:
        judge(data, facts_of(story, 40, **log), "the folder x")
    assert refused.value.code == code
    assert getattr(refused.value, "first_wrong", None) == wrong
    assert ("the folder x" in refused.value.fix) == (code != "E-LOG-GAP")  # nothing reads past it
    assert "restore" in refused.value.fix


def test_a_log_that_went_on_otherwise_is_refused(story, small):
    there = story.log[39]
    for other in (
        replace(there, data=there.data.replace(b"1", b"2", 1)),
        replace(there, subject=there.subject + "x"),
    ):
        assert entry_hash(other) != entry_hash(there)
        with pytest.raises(LogBroken) as refused:
            judge(small, facts_of(story, 40, entry=other), "x")
        assert (refused.value.code, refused.value.first_wrong) == ("E-LOG-CHANGED", 40)


def test_what_is_of_another_cluster_or_entry_says_nothing_of_this_log(story, small):
    short = {"last_seq": 3, "entry": None, "birth": "other"}
    with pytest.raises(SnapshotUnusable, match="of cluster c"):
        judge(small, facts_of(story, 40, cluster="d", **short), "x")
    with pytest.raises(SnapshotUnusable, match="of #40"):
        judge(small, facts_of(story, 50, **short), "x")
    with pytest.raises(SnapshotUnusable, match="cut off or changed"):
        judge(small[:-1], facts_of(story, 40, **short), "x")
