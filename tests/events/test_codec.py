import msgspec
import pytest
from hypothesis import given, settings

from tests.support.event_strategies import EVENT_TYPES, envelopes, struct
from unicron.events import (
    KNOWN_TAGS,
    Beat,
    ConnectionClosed,
    ConnectionOpened,
    DecodeError,
    Envelope,
    NodeLost,
    Source,
    UndecodableEvent,
    UnknownEvent,
    decode,
    decode_beat,
    encode,
    encode_beat,
    event_id,
    record,
    subjects,
)
from unicron.events.nesting import too_deep

CONTROL = subjects.control("demo", "node", "n1")


def lost(**changes):
    source = Source(who="control/a", incarnation=3, counter=7)
    envelope = Envelope(
        id=event_id(source),
        source=source,
        written_at_ns=1,
        body=NodeLost(node="n1", incarnation=1, evidence="two paths"),
        term=5,
    )
    return msgspec.structs.replace(envelope, **changes)


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda e: e.__name__)
def test_every_event_type_comes_back_as_it_went(event_type):
    @settings(max_examples=15)
    @given(envelopes(struct(event_type)))
    def check(envelope):
        data = encode(envelope)
        assert decode(CONTROL, data, strict=True) == envelope
        assert encode(decode(CONTROL, data)) == data

    check()


def test_bytes_are_canonical_and_complete():
    assert encode(lost()) == (
        b'{"id":"control/a:3:7","source":{"who":"control/a","incarnation":3,"counter":7},'
        b'"written_at_ns":1,"body":{"type":"node.lost.v1","node":"n1","incarnation":1,'
        b'"evidence":"two paths"},"term":5,"cause":[],"incident":null,"traceparent":null,'
        b'"basis":null}'
    )


def test_an_unknown_tag_is_kept_with_its_id_and_source():
    data = encode(lost()).replace(b"node.lost.v1", b"node.evaporated.v3")
    assert decode(CONTROL, data) == UnknownEvent(
        id="control/a:3:7",
        tag="node.evaporated.v3",
        source=Source(who="control/a", incarnation=3, counter=7),
    )
    with pytest.raises(DecodeError, match=r"node\.evaporated\.v3") as raised:
        decode(CONTROL, data, strict=True)
    assert raised.value.code == "E-DECODE-TAG"


@pytest.mark.parametrize(
    "old,new,path",
    [
        (b'"term":5', b'"term":5,"mood":"good"', "$.mood"),
        (b'"counter":7', b'"counter":7,"host":"h"', "$.source.host"),
        (b'"node":"n1"', b'"node":"n1","rack":{"row":1}', "$.body.rack"),
    ],
)
def test_an_unknown_field_is_ignored_unless_strict(old, new, path):
    data = encode(lost()).replace(old, new)
    assert decode(CONTROL, data) == lost()
    with pytest.raises(DecodeError) as raised:
        decode(CONTROL, data, strict=True)
    assert path in raised.value.what
    assert raised.value.code == "E-DECODE-FIELD"


@pytest.mark.parametrize(
    "data,reason",
    [
        (b"", "truncated"),
        (b"PING", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[1]", "Expected `object`"),
        (b'{"id":"x","body":{"node":"n1"}}', "missing required field"),
        (encode(lost()).replace(b'"n1"', b"17"), "$.body.node"),
        (encode(lost()).replace(b'"n1"', b'"\xff"'), "UTF-8"),
        (encode(lost())[:-20], "truncated"),
    ],
)
def test_what_is_no_event_is_kept_with_the_reason(data, reason):
    entry = decode(CONTROL, data)
    assert isinstance(entry, UndecodableEvent)
    assert reason in entry.reason
    assert entry.id
    assert decode(CONTROL, data) == entry
    with pytest.raises(DecodeError):
        decode(CONTROL, data, strict=True)


def test_a_recorded_entry_keeps_its_raw_bytes():
    data = encode(lost()).replace(b'"term":5', b'"term": 5')
    entry = record(9, CONTROL, data, 123)
    assert (entry.seq, entry.subject, entry.data, entry.at_ns) == (9, CONTROL, data, 123)
    assert entry.envelope == lost()
    assert entry.id == "control/a:3:7"
    assert record(9, CONTROL, b"?", 123).envelope is None


ADVISORY = {
    "type": "io.nats.server.advisory.v1.client_disconnect",
    "id": "9QbX1O5ebIcnK7kKZA8ieD",
    "timestamp": "2026-11-30T06:42:16.975058759Z",
    "server": {"name": "unicron-demo", "id": "NB4L", "ver": "2.15.1", "jetstream": True},
    "client": {"id": 11, "acc": "U", "user": "node", "name": "worker/n1/0/7", "rtt": 771000},
    "sent": {"msgs": 2, "bytes": 2},
    "reason": "Client Closed",
}


def test_the_servers_advisories_are_events():
    closed = decode(subjects.advisory("demo", "disconnect"), msgspec.json.encode(ADVISORY))
    assert isinstance(closed, Envelope)
    assert closed.body == ConnectionClosed(
        client="worker/n1/0/7", server="NB4L", client_number=11, reason="Client Closed"
    )
    assert closed.source == Source(who="server/NB4L", incarnation=0, counter=0)
    assert closed.written_at_ns == 1796020936975059000
    connect = ADVISORY | {"type": "io.nats.server.advisory.v1.client_connect"}
    data = msgspec.json.encode(connect)
    opened = decode(subjects.advisory("demo", "connect"), data, strict=True)
    assert opened.body == ConnectionOpened(client="worker/n1/0/7", server="NB4L", client_number=11)
    assert opened.id != closed.id
    later = ADVISORY | {"timestamp": "2026-11-30T06:42:17Z"}
    assert decode(subjects.advisory("demo", "disconnect"), msgspec.json.encode(later)).id not in {
        opened.id,
        closed.id,
    }


def test_an_advisory_of_another_kind_is_unknown_and_a_broken_one_undecodable():
    subject = subjects.advisory("demo", "disconnect")
    other = decode(subject, msgspec.json.encode(ADVISORY | {"type": "io.nats.other.v1"}))
    assert isinstance(other, UnknownEvent)
    assert other.tag == "io.nats.other.v1"
    for broken in ({"type": "x"}, ADVISORY | {"timestamp": "yesterday"}):
        assert isinstance(decode(subject, msgspec.json.encode(broken)), UndecodableEvent)
    assert isinstance(decode(subject, encode(lost())), UndecodableEvent)


@given(struct(Beat))
def test_heartbeats_come_back_as_they_went(beat):
    assert decode_beat(encode_beat(beat)) == beat


def test_what_is_no_heartbeat_is_refused():
    with pytest.raises(DecodeError):
        decode_beat(b'{"node":1}')


def test_every_type_has_a_tag_of_its_own_with_a_version():
    assert len(KNOWN_TAGS) == len(EVENT_TYPES)
    for tag in KNOWN_TAGS:
        assert tag.rpartition(".v")[2].isdigit()


# --- Nesting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["unicron.c.fact.n1", "unicron.c.advisory.connect"])
@pytest.mark.parametrize("depth", [65, 3_000, 300_000])
def test_what_nests_too_deeply_is_no_event_and_no_error(subject, depth):
    """However deep the reader's own stack is: a parser that gives up where the stack ends would
    find an event here and none there."""
    inner = b"[" * depth + b"]" * depth
    data = b'{"id":"x:1:1","body":{"type":"fan.slow.v1","x":' + inner + b"}}"
    entry = decode(subject, data)
    assert isinstance(entry, UndecodableEvent)
    assert "64 deep" in entry.reason
    assert decode(subject, data).id == entry.id


def test_brackets_in_texts_and_side_by_side_are_no_nesting():
    flat = b"[" + b",".join([b"[]"] * 500) + b"]"
    assert not too_deep(flat)
    assert not too_deep(b'{"x":"' + b"[" * 500 + b'\\"' + b"{" * 500 + b'"}')
    assert too_deep(b"[" * 65)
    assert not too_deep(b"[" * 64)


def test_a_beat_that_nests_too_deeply_is_none():
    with pytest.raises(DecodeError, match="too deeply"):
        decode_beat(b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}")
