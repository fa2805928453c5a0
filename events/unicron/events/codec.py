"""Bytes to events and back: the only place that knows the wire format.

JSON in canonical form (fields in the order of their definition, nothing omitted), so that people
read the stream with `jq` and equal events have equal bytes. Reading never fails on the live path:
what can't be understood becomes a value that says so. Strictness is for tests and verification.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec

from unicron.events import subjects
from unicron.events.advisory import ConnectionClosed, ConnectionOpened
from unicron.events.beat import Beat
from unicron.events.envelope import Envelope, Source
from unicron.events.errors import DecodeError
from unicron.events.ids import Incarnation, Sequence
from unicron.events.nesting import DEPTH_MAX, too_deep
from unicron.events.recorded import Entry, Recorded, UndecodableEvent, UnknownEvent
from unicron.events.union import AnyEvent
from unicron.events.upcast import CURRENT, RawBody, Upcasters

#: Tags of all event types of this version.
KNOWN_TAGS = frozenset(str(event_type.__struct_config__.tag) for event_type in get_args(AnyEvent))

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Envelope)
_beat_decoder = msgspec.json.Decoder(Beat)


class _LooseEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope of any version: only what is needed to say which event it is."""

    id: str
    body: RawBody
    source: Source | None = None


_loose_decoder = msgspec.json.Decoder(_LooseEnvelope)


def encode(envelope: Envelope) -> bytes:
    """Canonical bytes of the envelope."""
    return _encoder.encode(envelope)


def encode_beat(beat: Beat) -> bytes:
    """Bytes of a heartbeat."""
    return _encoder.encode(beat)


def decode_beat(data: bytes) -> Beat:
    """A heartbeat. DecodeError if `data` is none; unknown fields are ignored."""
    if too_deep(data):
        raise DecodeError("a heartbeat can't be read: it nests too deeply", code="E-DECODE-BEAT")
    try:
        return _beat_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"a heartbeat can't be read: {error}", code="E-DECODE-BEAT") from None


def decode(
    subject: str,
    data: bytes,
    *,
    strict: bool = False,
    upcasters: Upcasters = CURRENT,
    shallow: bool = False,
) -> Entry:
    """What `data`, stored under `subject`, says. `shallow`: the caller knows that it doesn't nest
    too deeply.

    Never raises unless `strict`: then DecodeError for unknown fields, unknown tags and bytes that
    are no event.
    """
    entry: Entry
    if not shallow and too_deep(data):
        entry = UndecodableEvent(id=_id_of_bytes(data), reason=f"nests more than {DEPTH_MAX} deep")
    elif subjects.tree_of(subject) == "advisory":
        entry = _decode_advisory(data)
    else:
        entry = _decode_envelope(data, upcasters)
    if strict:
        _check_strict(subject, data, entry, upcasters)
    return entry


def record(
    seq: int,
    subject: str,
    data: bytes,
    at_ns: int,
    *,
    strict: bool = False,
    upcasters: Upcasters = CURRENT,
    shallow: bool = False,
) -> Recorded:
    """One entry as read from a log, decoded. Raises as decode() does."""
    entry = decode(subject, data, strict=strict, upcasters=upcasters, shallow=shallow)
    return Recorded(seq=Sequence(seq), subject=subject, data=data, at_ns=at_ns, entry=entry)


def _decode_envelope(data: bytes, upcasters: Upcasters) -> Entry:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    # Rare from here on: an older type, a newer type, or no event at all.
    try:
        loose = _loose_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return UndecodableEvent(id=_id_of_bytes(data), reason=reason)
    tag = loose.body.get("type")
    if not isinstance(tag, str) or tag in KNOWN_TAGS:
        return UndecodableEvent(id=loose.id, reason=reason)
    try:
        body = upcasters.apply(loose.body)
        if body is None:
            return UnknownEvent(id=loose.id, tag=tag, source=loose.source)
        return msgspec.convert(msgspec.json.decode(data) | {"body": body}, Envelope)
    except Exception as error:  # whatever a body that we didn't write makes an upcast stumble over
        return UndecodableEvent(id=loose.id, reason=f"{error!r} (in the upcast of {tag})")


def _id_of_bytes(data: bytes) -> str:
    """A stand-in id for an entry that names none: equal bytes, equal id."""
    return f"undecodable:{hashlib.sha256(data).hexdigest()[:16]}"


# --- Strictness ----------------------------------------------------------------------------------


def _check_strict(subject: str, data: bytes, entry: Entry, upcasters: Upcasters) -> None:
    """DecodeError unless the entry is an event of this version without foreign fields."""
    if isinstance(entry, UndecodableEvent):
        raise DecodeError(
            f"an entry under {subject} is no event: {entry.reason}",
            why="its writer isn't ours, or the bytes were changed",
            fix="look at the raw bytes of this sequence",
        )
    if isinstance(entry, UnknownEvent):
        raise DecodeError(
            f"event {entry.id} has the unknown type {entry.tag}",
            why="it was written by a newer version",
            fix="use the version that wrote it, or a newer one",
            code="E-DECODE-TAG",
        )
    if subjects.tree_of(subject) == "advisory":
        return  # the server's JSON has many more fields than we take
    raw = msgspec.json.decode(data)
    if (body := upcasters.apply(raw["body"])) is not None:
        raw["body"] = body
    path = _foreign_field(raw, msgspec.to_builtins(entry), "$")
    if path:
        raise DecodeError(
            f"event {entry.id} has the unknown field {path}",
            why="it was written by a newer version, or changed",
            fix="use the version that wrote it, or a newer one",
            code="E-DECODE-FIELD",
        )


def _foreign_field(raw: Any, known: Any, path: str) -> str:
    """Path of the first field in `raw` that decoding left out, or ""."""
    if isinstance(raw, dict) and isinstance(known, dict):
        for key, value in raw.items():
            if key not in known:
                return f"{path}.{key}"
            if found := _foreign_field(value, known[key], f"{path}.{key}"):
                return found
    elif isinstance(raw, list) and isinstance(known, list | tuple):
        for index, (value, counterpart) in enumerate(zip(raw, known, strict=True)):
            if found := _foreign_field(value, counterpart, f"{path}[{index}]"):
                return found
    return ""


# --- The server's advisories ---------------------------------------------------------------------


class _AdvisoryServer(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class _AdvisoryClient(msgspec.Struct, frozen=True):
    id: int
    name: str = ""


class _Advisory(msgspec.Struct, frozen=True):
    """What we take of io.nats.server.advisory.v1.client_connect and client_disconnect."""

    type: str
    timestamp: str
    server: _AdvisoryServer
    client: _AdvisoryClient
    reason: str = ""


_advisory_decoder = msgspec.json.Decoder(_Advisory)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ADVISORY_KINDS = {
    "io.nats.server.advisory.v1.client_connect": "connect",
    "io.nats.server.advisory.v1.client_disconnect": "disconnect",
}


def _decode_advisory(data: bytes) -> Entry:
    """The server's raw report as an event; its id says which report of which server it is."""
    try:
        advisory = _advisory_decoder.decode(data)
        written_at_ns = _rfc3339_ns(advisory.timestamp)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        return UndecodableEvent(id=_id_of_bytes(data), reason=str(error))
    server, number = advisory.server.id, advisory.client.id
    kind = _ADVISORY_KINDS.get(advisory.type)
    who = f"server/{server}"
    event_id = f"{who}:{number}:{kind or advisory.type}:{advisory.timestamp}"
    source = Source(who=who, incarnation=Incarnation(0), counter=0)
    body: AnyEvent
    if kind == "connect":
        body = ConnectionOpened(client=advisory.client.name, server=server, client_number=number)
    elif kind == "disconnect":
        body = ConnectionClosed(
            client=advisory.client.name,
            server=server,
            client_number=number,
            reason=advisory.reason,
        )
    else:
        return UnknownEvent(id=event_id, tag=advisory.type, source=source)
    return Envelope(id=event_id, source=source, written_at_ns=written_at_ns, body=body)


def _rfc3339_ns(text: str) -> int:
    """Nanoseconds since 1970, to the microsecond. ValidationError if `text` is no such time."""
    return (msgspec.convert(text, datetime) - _EPOCH) // timedelta(microseconds=1) * 1000
