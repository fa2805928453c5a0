import hashlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.events.test_codec import CONTROL, lost
from unicron.events import (
    EMPTY_CHAIN,
    ConfigError,
    DecodeError,
    HistoryHeader,
    HistoryReader,
    LogBroken,
    LogMismatch,
    chain_of,
    encode,
    read_history,
    record,
    subjects,
    write_history,
)

HEADER = HistoryHeader(cluster="demo", birth="2026-11-30-abc", version="0.1.0")
FACT = subjects.fact("demo", "n1")


def some_events(count=6):
    return [
        record(seq, CONTROL if seq % 2 else FACT, encode(lost(id=f"a:1:{seq}")), 1000 + seq)
        for seq in range(1, count + 1)
    ]


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "log.ndjson"
    write_history(file, HEADER, some_events())
    return file


def broken(path, edit):
    """LogBroken of the file after `edit` of its lines: 0 the header, 1 to 6 events, 7 the seal."""
    lines = path.read_bytes().splitlines(keepends=True)
    edit(lines)
    path.write_bytes(b"".join(lines))
    with pytest.raises(LogBroken) as raised:
        read_history(path)
    assert raised.value.fix
    return raised.value


def test_what_was_written_is_read(path):
    history = read_history(path, strict=True)
    assert list(history.events) == some_events()
    assert history.header == HEADER
    assert history.seal.chain == chain_of(some_events()).hex()
    assert (history.seal.events, history.seal.last_seq) == (6, 6)


NEARLY_EVENTS = [
    b'{"a":1}',
    b'{"a" : [1, 2.50e1,"\\u00e4\xc3\xa4"] }',
    b' {"a":1}',
    b'{"a":1}\n',
    b'{"a":\n1}',
    b'{"a":\r1}',
    b'{"a":"\xff"}',
    b'{"a":tru}',
    b'{"a":1}{}',
    b'{"a":1,"check":"0123456789abcdef"}',
    b'{"seal":{"events":0}}',
    b'{"a":1,"a":2}',
    *(b'{"a":' + depth * b"[" + depth * b"]" + b"}" for depth in (1, 61, 62, 63, 64, 65, 200)),
]
DATA = st.one_of(st.binary(), st.sampled_from(NEARLY_EVENTS))


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), DATA)))
def test_any_bytes_under_any_subject(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "log.ndjson"
    events = [record(seq, subject, data, seq) for seq, (subject, data) in enumerate(raw, 1)]
    write_history(path, HEADER, events)
    assert list(read_history(path).events) == events


def test_lines_can_be_read_without_us(path):
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["unicron_history"] == 3
    assert lines[0]["cluster"] == "demo"
    assert lines[2]["event"]["id"] == "a:1:2"
    assert lines[-1]["seal"]["events"] == 6


def test_a_part_of_a_log_carries_the_chain_before_it(tmp_path):
    events = some_events()
    before = chain_of(events[:3]).hex()
    header = msgspec.structs.replace(HEADER, first_seq=4, chain_before=before)
    seal = write_history(tmp_path / "part", header, events[3:])
    assert seal.chain == chain_of(events).hex()
    assert list(read_history(tmp_path / "part").events) == events[3:]


def test_an_empty_log(tmp_path):
    seal = write_history(tmp_path / "empty", HEADER, [])
    assert (seal.events, seal.last_seq, seal.chain) == (0, 0, EMPTY_CHAIN.hex())
    assert read_history(tmp_path / "empty").events == ()


@pytest.mark.parametrize("at", range(1, 7))
def test_a_dropped_event(path, at):
    error = broken(path, lambda lines: lines.pop(at))
    assert error.first_wrong == at
    assert error.code == "E-LOG-GAP"


@pytest.mark.parametrize("at", range(1, 6))
def test_swapped_events(path, at):
    def swap(lines):
        lines[at], lines[at + 1] = lines[at + 1], lines[at]

    assert broken(path, swap).first_wrong == at


@pytest.mark.parametrize("at", range(1, 7))
def test_an_added_event(path, at):
    error = broken(path, lambda lines: lines.insert(at, lines[at]))
    assert error.first_wrong == at + 1
    assert error.code == "E-LOG-ORDER"


@pytest.mark.parametrize("at", range(1, 7))
@pytest.mark.parametrize(
    "old,new",
    [
        (b"two paths", b"too paths"),
        (b'"at_ns":1', b'"at_ns":2'),
        (b"unicron.demo", b"unicron.dome"),
        (b'"check":"', b'"chick":"'),
    ],
)
def test_an_edited_event(path, at, old, new):
    def edit(lines):
        assert old in lines[at]
        lines[at] = lines[at].replace(old, new)

    error = broken(path, edit)
    assert error.first_wrong == at
    assert error.code == "E-LOG-CHANGED"


def test_an_edited_header(path):
    def edit(lines):
        lines[0] = lines[0].replace(b'"demo"', b'"prod"')

    error = broken(path, edit)
    assert error.first_wrong == 0
    assert "header" in error.what


def test_an_edited_seal(path):
    def edit(lines):
        lines[7] = lines[7].replace(b'"events":6', b'"events":7')

    assert broken(path, edit).first_wrong == 7


def test_a_forged_file_with_a_wrong_chain(tmp_path):
    """Checks that fit the changed lines: the seal's chain still gives it away."""
    header = msgspec.structs.replace(HEADER, chain_before="00" * 32)
    write_history(tmp_path / "forged", header, some_events())
    assert read_history(tmp_path / "forged").seal.chain != chain_of(some_events()).hex()


@pytest.mark.parametrize("kept", range(1, 8))
def test_a_file_cut_between_lines(path, kept):
    def cut(lines):
        del lines[kept:]

    error = broken(path, cut)
    assert error.first_wrong == kept
    assert error.code == "E-LOG-SHORT"


def test_a_file_cut_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises((LogBroken, LogMismatch)) as raised:
            read_history(path)
        assert raised.value.code in {"E-LOG-HALF", "E-LOG-SHORT", "E-LOG-FORMAT"}


def test_lines_after_the_seal(path):
    assert broken(path, lambda lines: lines.append(lines[1])).first_wrong == 7


def test_a_line_longer_than_any_is_not_taken_for_the_end(path):
    error = broken(path, lambda lines: lines.insert(2, b"9" * (17 << 20) + b"\n"))
    assert error.why == "its line is longer than 16 MiB"
    assert (error.code, error.first_wrong) == ("E-LOG-CHANGED", 2)


# --- Digests of the state -------------------------------------------------------------------------


def with_digests(path, every=2):
    header = msgspec.structs.replace(HEADER, fold_version=7, digest_every=every)
    asked = []

    def state_digest():
        asked.append(f"state {len(asked)}")
        return asked[-1]

    seal = write_history(path, header, some_events(5), state_digest)
    return header, seal


def test_digests_stand_where_the_header_says_and_in_the_seal(tmp_path):
    header, seal = with_digests(tmp_path / "log")
    history = read_history(tmp_path / "log")
    assert (history.header, history.seal) == (header, seal)
    assert list(history.events) == some_events(5)
    assert [(d.seq, d.state_digest) for d in history.digests] == [
        (2, "state 0"),
        (4, "state 1"),
        (5, "state 2"),
    ]


def test_events_and_digests_come_in_the_order_of_the_lines(tmp_path):
    with_digests(tmp_path / "log")
    with (tmp_path / "log").open("rb") as file:
        reader = HistoryReader("log", file)
        assert reader.seal is None
        items = [(type(item).__name__, item.seq) for item in reader]
    assert items == [
        ("Recorded", 1),
        ("Recorded", 2),
        ("StateDigest", 2),
        ("Recorded", 3),
        ("Recorded", 4),
        ("StateDigest", 4),
        ("Recorded", 5),
        ("StateDigest", 5),
    ]
    assert reader.seal is not None


@pytest.mark.parametrize("at,seq", [(3, 2), (6, 4)])
def test_a_missing_digest_is_named_after_its_event(tmp_path, at, seq):
    with_digests(tmp_path / "log")
    error = broken(tmp_path / "log", lambda lines: lines.pop(at))
    assert error.first_wrong == seq
    assert f"the digest after event {seq}" in error.what


def test_a_header_that_promises_digests_that_nobody_computes(tmp_path):
    header = msgspec.structs.replace(HEADER, digest_every=2)
    with pytest.raises(ValueError, match="digests"):
        write_history(tmp_path / "log", header, some_events())
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_format_1_has_none_and_is_read(tmp_path, path):
    """As the first version wrote it: the header and the seal had fewer fields, and events were
    text."""
    lines = path.read_bytes().splitlines()
    lines[0] = lines[0].replace(b'"unicron_history":3', b'"unicron_history":1')
    lines[0] = lines[0].replace(b',"fold_version":0,"logic_version":0,"digest_every":0', b"")
    lines[-1] = lines[-1].replace(b',"state_digest":"","configuration":""', b"")
    for at, event in enumerate(some_events(), 1):
        text = msgspec.json.encode(event.data.decode())
        assert event.data in lines[at]
        lines[at] = lines[at].replace(b'"event":' + event.data, b'"data":' + text)
    check = hashlib.sha256()
    for at, line in enumerate(lines):
        content = line.rpartition(b',"check":"')[0] + b"}"
        check.update(content)
        lines[at] = content[:-1] + b',"check":"%s"}\n' % check.hexdigest()[:16].encode()
    (tmp_path / "old").write_bytes(b"".join(lines))
    history = read_history(tmp_path / "old")
    assert list(history.events) == some_events()
    assert (history.header.unicron_history, history.digests) == (1, ())


def test_other_files(tmp_path):
    with pytest.raises(ConfigError, match="no history file"):
        read_history(tmp_path / "missing")
    with pytest.raises(ConfigError, match="folder"):
        read_history(tmp_path)
    other = tmp_path / "other"
    for content in (b"", b"hello\n", b"\xff\xfe\n", b'{"a":1}\n', b"[]\n"):
        other.write_bytes(content)
        with pytest.raises(LogMismatch, match="no unicron history"):
            read_history(other)


def test_a_newer_format_names_the_version_that_reads_it(path):
    path.write_bytes(path.read_bytes().replace(b'"unicron_history":3', b'"unicron_history":4'))
    with pytest.raises(LogMismatch, match=r"unicron 0\.1\.0"):
        read_history(path)


def test_a_log_with_a_gap_is_not_written_and_what_was_there_stays(path):
    before = path.read_bytes()
    events = some_events()
    del events[2]
    with pytest.raises(LogBroken) as raised:
        write_history(path, HEADER, events)
    assert raised.value.first_wrong == 3
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_strictness_reaches_the_events(tmp_path):
    foreign = encode(lost()).replace(b'"term":5', b'"term":5,"mood":1')
    write_history(tmp_path / "log", HEADER, [record(1, CONTROL, foreign, 1)])
    assert read_history(tmp_path / "log").events[0].envelope == lost()
    with pytest.raises(DecodeError):
        read_history(tmp_path / "log", strict=True)


@pytest.mark.parametrize("at_ns", [-1, 1 << 63, 10**25])
def test_a_time_that_is_none_is_refused(tmp_path, at_ns):
    """Checks hold no secret: whoever changes the time may have made them right again."""
    log = some_events()
    log[1] = msgspec.structs.replace(log[1], at_ns=at_ns)
    path = tmp_path / "log.ndjson"
    write_history(path, HEADER, log)
    with pytest.raises(LogBroken, match="is none") as caught:
        read_history(path)
    assert caught.value.first_wrong == 2


def test_a_file_without_lines_is_refused_without_reading_all_of_it():
    with pytest.raises(LogMismatch, match="no unicron history"):
        read_history(Path("/dev/zero"))


def test_a_header_that_nests_too_deeply_is_refused(tmp_path):
    path = tmp_path / "log.ndjson"
    path.write_bytes(b'{"unicron_history":2,"x":' + b"[" * 5000 + b"]" * 5000 + b"}\n")
    with pytest.raises(LogMismatch, match="no unicron history"):
        read_history(path)


def test_a_header_with_an_impossible_cluster_is_refused(tmp_path):
    path = tmp_path / "log.ndjson"
    header = msgspec.structs.replace(HEADER, cluster="a.*.>")
    write_history(path, header, some_events())
    with pytest.raises(LogBroken, match="the header") as caught:
        read_history(path)
    assert caught.value.first_wrong == 0
