"""History files: a log, or its beginning, in one file that shows if it was touched.

NDJSON. The first line says what it is, then one line per event and now and then one with the
digest of the state, then the seal:

    {"unicron_history":3,"cluster":…,"birth":…,"version":…,"first_seq":1,…,"check":…}
    {"seq":1,"subject":…,"at_ns":…,"event":{…},"check":…}
    {"digest":{"seq":1,"state_digest":…},"check":…}
    {"seal":{"events":1,"last_seq":1,"chain":…,"state_digest":…,…},"check":…}

`event` holds the event's raw bytes as they are, for they are JSON; if they aren't, or not in one
line, `data` holds them as text, or `data_b64` in base64 if they are not UTF-8. `check`
is the beginning of a running hash over all lines so far: it tells *which* line was touched first,
where the seal's chain (unicron.events.chain) tells only that some event was. Digests stand after
every `digest_every`-th event and nowhere else, so a missing one shows as well.

Format 1 had no digests, format 2 all events as text. They are read for ever. A file whose name ends
in .zst is all of this in zstd.
"""

import base64
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import msgspec

from unicron.events.chain import EMPTY_CHAIN, extend_chain
from unicron.events.compressed import packed
from unicron.events.errors import LogBroken
from unicron.events.nesting import too_deep
from unicron.events.recorded import Recorded

#: The format this version writes. It reads this one and all before it.
HISTORY_FORMAT = 3


class HistoryHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Which log it is. `birth`: of the stream, as EventLog.birth() gives it. `version`: of the
    software that wrote the file. `chain_before` (hex) is the log's chain before `first_seq`.

    `fold_version`: of the fold that computed the digests; `logic_version`: of decide() in the
    software that wrote the file. `digest_every`: events from one digest to the next, counted by
    sequence; 0: there are none.
    """

    unicron_history: int = HISTORY_FORMAT
    cluster: str
    birth: str
    version: str
    first_seq: int = 1
    chain_before: str = EMPTY_CHAIN.hex()
    fold_version: int = 0
    logic_version: int = 0
    digest_every: int = 0

    def digest_due(self, seq: int) -> bool:
        """Does a digest stand after the event `seq`?"""
        return self.digest_every > 0 and seq % self.digest_every == 0


class StateDigest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state after the event `seq`, as sha256 (hex) of its canonical encoding."""

    seq: int
    state_digest: str


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """What the whole file must come to. `chain` (hex) is the log's after the last event,
    `state_digest` that of the state there, "" in a file without digests. `configuration`: the
    digest of what plans rest on there (ClusterConfigured), "" if the file doesn't say."""

    events: int
    last_seq: int
    chain: str
    state_digest: str = ""
    configuration: str = ""


class EventLine(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """An event as it stands in a file."""

    seq: int
    subject: str
    at_ns: int
    event: msgspec.Raw = msgspec.Raw()
    data: str | None = None
    data_b64: str | None = None


class DigestLine(msgspec.Struct, frozen=True, kw_only=True):
    """A digest as it stands in a file."""

    digest: StateDigest


class SealLine(msgspec.Struct, frozen=True, kw_only=True):
    """The seal as it stands in a file."""

    seal: Seal


_encoder = msgspec.json.Encoder(order="deterministic")


def write_history(
    path: Path,
    header: HistoryHeader,
    events: Iterable[Recorded],
    state_digest: Callable[[], str] | None = None,
    configuration: Callable[[], str] = lambda: "",
) -> Seal:
    """Write the file whole or not at all; an existing one is replaced. Returns the seal.

    `state_digest` gives the digest of the state after the event that was last taken from
    `events`; it is asked where `header.digest_every` calls for one, and at the end. So is
    `configuration` for the digest of what plans rest on. Compressed if the name ends in .zst.

    ConfigError if it can't be compressed here; LogBroken if `events` don't follow one another from
    `header.first_seq`; OSError as it comes.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            with packed(file, path) as into:
                seal = write_history_to(into, header, events, state_digest, configuration)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would hide an export from colleagues
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return seal


def write_history_to(
    file: IO[bytes],
    header: HistoryHeader,
    events: Iterable[Recorded],
    state_digest: Callable[[], str] | None = None,
    configuration: Callable[[], str] = lambda: "",
) -> Seal:
    """Write it into an open file or pipe, as write_history() does into one of its own."""
    if header.digest_every and state_digest is None:
        raise ValueError("the header promises digests, and there is nobody to compute them")
    check = hashlib.sha256()

    def put(line: msgspec.Struct) -> None:
        content = _encoder.encode(line)
        check.update(content)
        file.write(content[:-1] + f',"check":"{check.hexdigest()[:16]}"}}\n'.encode())

    put(header)
    chain = bytes.fromhex(header.chain_before)
    expected = header.first_seq
    for event in events:
        if event.seq != expected:
            raise out_of_order(expected, event.seq, "the log that is being exported")
        put(_line_of(event))
        chain = extend_chain(chain, event.seq, event.subject, event.data)
        if state_digest is not None and header.digest_due(event.seq):
            put(DigestLine(digest=StateDigest(seq=event.seq, state_digest=state_digest())))
        expected += 1
    seal = Seal(
        events=expected - header.first_seq,
        last_seq=expected - 1,
        chain=chain.hex(),
        state_digest=state_digest() if state_digest is not None else "",
        configuration=configuration(),
    )
    put(SealLine(seal=seal))
    return seal


def _line_of(event: Recorded) -> EventLine:
    line = EventLine(seq=event.seq, subject=event.subject, at_ns=event.at_ns)
    try:
        text = event.data.decode()
    except UnicodeDecodeError:
        return msgspec.structs.replace(line, data_b64=base64.b64encode(event.data).decode())
    if _is_json(event.data):
        return msgspec.structs.replace(line, event=msgspec.Raw(event.data))
    return msgspec.structs.replace(line, data=text)


def _is_json(data: bytes) -> bool:
    """Can it stand in a line as it is, and be read again to the byte?"""
    if data[:1] != b"{" or data[-1:] != b"}" or b"\n" in data or too_deep(b"{%b}" % data):
        return False
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def out_of_order(expected: int, found: int, where: str) -> LogBroken:
    """The error for an event that isn't the next one; `where` names the file or log."""
    what = f"{where} goes on with event {found} where {expected} must stand"
    if found > expected:
        return LogBroken(
            what,
            first_wrong=expected,
            why="events are missing or were swapped",
            fix="get the history again from the log; a log with a gap can't be folded",
            code="E-LOG-GAP",
        )
    return LogBroken(
        what,
        first_wrong=expected,
        why="events were swapped or added",
        fix="get the history again from the log",
        code="E-LOG-ORDER",
    )
