"""History files: a log, or its beginning, in one file that shows if it was touched.

NDJSON. The first line says what it is, then one line per event, then the seal:

    {"unicron_history":1,"cluster":…,"birth":…,"version":…,"first_seq":1,…,"check":…}
    {"seq":1,"subject":…,"at_ns":…,"data":…,"check":…}
    {"seal":{"events":1,"last_seq":1,"chain":…},"check":…}

`data` holds the event's raw bytes as text, or `data_b64` in base64 if they are not UTF-8. `check`
is the beginning of a running hash over all lines so far: it tells *which* line was touched first,
where the seal's chain (unicron.events.chain) tells only that some event was.
"""

import base64
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from unicron.events.chain import EMPTY_CHAIN, extend_chain
from unicron.events.codec import record
from unicron.events.errors import ConfigError, LogBroken, LogMismatch
from unicron.events.recorded import Recorded

#: The format this version writes and reads.
HISTORY_FORMAT = 1


class HistoryHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Which log it is. `birth`: of the stream, as EventLog.birth() gives it. `version`: of the
    software that wrote the file. `chain_before` (hex) is the log's chain before `first_seq`."""

    unicron_history: int = HISTORY_FORMAT
    cluster: str
    birth: str
    version: str
    first_seq: int = 1
    chain_before: str = EMPTY_CHAIN.hex()


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """What the whole file must come to. `chain` (hex) is the log's after the last event."""

    events: int
    last_seq: int
    chain: str


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A file's content, checked."""

    header: HistoryHeader
    events: tuple[Recorded, ...]
    seal: Seal


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    seq: int
    subject: str
    at_ns: int
    data: str | None = None
    data_b64: str | None = None


class _SealLine(msgspec.Struct, frozen=True, kw_only=True):
    seal: Seal


_encoder = msgspec.json.Encoder(order="deterministic")
_line_decoder = msgspec.json.Decoder(_Line)
_seal_decoder = msgspec.json.Decoder(_SealLine)
_SEAL_BEGINS = b'{"seal":'


def write_history(path: Path, header: HistoryHeader, events: Iterable[Recorded]) -> Seal:
    """Write the file whole or not at all; an existing one is replaced. Returns the seal.

    LogBroken if `events` don't follow one another from `header.first_seq`; OSError as it comes.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            seal = _write_lines(file, header, events)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would hide an export from colleagues
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return seal


def _write_lines(file: IO[bytes], header: HistoryHeader, events: Iterable[Recorded]) -> Seal:
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
            raise _gap(expected, event.seq, "the log that is being exported")
        put(_line_of(event))
        chain = extend_chain(chain, event.seq, event.subject, event.data)
        expected += 1
    seal = Seal(events=expected - header.first_seq, last_seq=expected - 1, chain=chain.hex())
    put(_SealLine(seal=seal))
    return seal


def _line_of(event: Recorded) -> _Line:
    try:
        text, b64 = event.data.decode(), None
    except UnicodeDecodeError:
        text, b64 = None, base64.b64encode(event.data).decode()
    return _Line(seq=event.seq, subject=event.subject, at_ns=event.at_ns, data=text, data_b64=b64)


def _gap(expected: int, found: int, where: str) -> LogBroken:
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


def read_history(path: Path, *, strict: bool = False) -> History:
    """Read and check a whole file.

    ConfigError if there is no such file, LogMismatch if it is no history or of a newer format,
    LogBroken with the first wrong sequence if it was cut off or changed. `strict` as in decode().
    """
    try:
        with path.open("rb") as file:
            return _Reading(str(path), strict=strict).read(iter(file))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no history file {path}",
            fix="give the path that the export or the demo printed",
            code="E-CONFIG-FILE",
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a folder, not a history file",
            fix="give the path of the .ndjson file in it",
            code="E-CONFIG-FILE",
        ) from None


class _Reading:
    """One pass over a file, with what has been checked so far."""

    def __init__(self, name: str, *, strict: bool) -> None:
        self._name = name
        self._strict = strict
        self._check = hashlib.sha256()
        self._events: list[Recorded] = []
        self._expected = 0  # the header is what is wrong if it is still 0

    def read(self, lines: Iterator[bytes]) -> History:
        header = self._header(next(lines, b""))
        chain = bytes.fromhex(header.chain_before)
        self._expected = header.first_seq
        for line in lines:
            content = self._verified(line)
            if content.startswith(_SEAL_BEGINS):
                seal = _seal_decoder.decode(content).seal
                self._check_seal(seal, chain, next(lines, None))
                return History(header=header, events=tuple(self._events), seal=seal)
            event = self._event(content)
            chain = extend_chain(chain, event.seq, event.subject, event.data)
            self._events.append(event)
            self._expected += 1
        raise LogBroken(
            f"{self._name} ends after event {self._expected - 1} without its seal",
            first_wrong=self._expected,
            why="the file is cut off",
            fix="copy or export it again",
            code="E-LOG-SHORT",
        )

    def _header(self, line: bytes) -> HistoryHeader:
        try:
            probe = msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError):
            probe = {}
        version = probe.get("unicron_history")
        if not isinstance(version, int):
            raise LogMismatch(
                f"{self._name} is no unicron history",
                why='its first line must begin {"unicron_history": …}' if line else "it is empty",
                fix="give a file that the demo or write_history wrote",
                code="E-LOG-FORMAT",
            )
        if version != HISTORY_FORMAT:
            raise LogMismatch(
                f"{self._name} has history format {version}; this version reads {HISTORY_FORMAT}",
                why=f"it was written by unicron {probe.get('version', 'of another version')}",
                fix="read it with that version",
                code="E-LOG-FORMAT",
            )
        try:
            return msgspec.json.decode(self._verified(line), type=HistoryHeader)
        except msgspec.ValidationError as error:
            raise self._changed(str(error)) from None

    def _verified(self, line: bytes) -> bytes:
        """The line without its check. LogBroken if the check is missing or wrong."""
        if not line.endswith(b"\n"):
            raise LogBroken(
                f"{self._name} is cut off in the line of event {self._expected}",
                first_wrong=self._expected,
                why="its last line is incomplete",
                fix="copy or export it again",
                code="E-LOG-SHORT",
            )
        content, mark, check = line.rpartition(b',"check":"')
        content += b"}"
        if not mark:
            raise self._changed("its line has no check")
        self._misplaced(content)
        self._check.update(content)
        if check != f'{self._check.hexdigest()[:16]}"}}\n'.encode():
            raise self._changed("its line doesn't match its check")
        return content

    def _misplaced(self, content: bytes) -> None:
        """LogBroken if the line is of another event; a better message than a wrong check."""
        try:
            if content.startswith(_SEAL_BEGINS):
                seq = _seal_decoder.decode(content).seal.last_seq + 1
            else:
                seq = _line_decoder.decode(content).seq
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if self._expected and seq != self._expected:
            raise _gap(self._expected, seq, self._name)

    def _changed(self, why: str) -> LogBroken:
        place = f"event {self._expected}" if self._expected else "the header"
        return LogBroken(
            f"{self._name} was changed at {place}",
            first_wrong=self._expected,
            why=why,
            fix="get the history again from the log",
            code="E-LOG-CHANGED",
        )

    def _event(self, content: bytes) -> Recorded:
        try:
            line = _line_decoder.decode(content)
            if line.data is not None:
                data = line.data.encode()
            else:
                data = base64.b64decode(line.data_b64 or "", validate=True)
        except (ValueError, msgspec.DecodeError) as error:
            raise self._changed(str(error)) from None
        return record(line.seq, line.subject, data, line.at_ns, strict=self._strict)

    def _check_seal(self, seal: Seal, chain: bytes, beyond: bytes | None) -> None:
        if seal.events != len(self._events):
            raise self._changed(f"the seal counts {seal.events} events")
        if seal.chain != chain.hex():
            raise self._changed("the seal's chain isn't that of the events")
        if beyond is not None:
            raise self._changed("there are lines after the seal")
