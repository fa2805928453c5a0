"""The lines of history files: each is checked before anything is made of it.

The rule by which the first wrong sequence is found: what must stand on each line is known from the
lines before it (event k, then the digest after k where the header calls for one, then event k+1 or
the seal), and its check covers all of them. The first line that isn't that names its k; 0 is the
header. So a file that was edited is refused at the first edited line, whatever comes after it.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec

from unicron.events import subjects
from unicron.events.chain import extend_chain
from unicron.events.compressed import Garbled
from unicron.events.errors import ConfigError, LogBroken, LogMismatch
from unicron.events.history import (
    HISTORY_FORMAT,
    DigestLine,
    EventLine,
    HistoryHeader,
    Seal,
    SealLine,
    StateDigest,
    out_of_order,
)
from unicron.events.nesting import too_deep

_AGAIN = "get the history again from the log"
_COPY = "copy or export it again"
_LINE_MAX = 16 * 1024 * 1024
_AT_NS_END = 1 << 63
_SEAL_BEGINS = b'{"seal":'
_CHECK = b',"check":"%b"}\n'
_CHECK_SIZE = len(_CHECK % (b"0" * 16))
_event_decoder = msgspec.json.Decoder(EventLine)
_digest_decoder = msgspec.json.Decoder(DigestLine)
_seal_decoder = msgspec.json.Decoder(SealLine)

E_co = TypeVar("E_co", covariant=True)
E = TypeVar("E")


class Make(Protocol[E_co]):
    """What an event's line becomes. `shallow`: `data` is known not to nest too deeply."""

    def __call__(
        self, seq: int, subject: str, data: bytes, at_ns: int, /, *, shallow: bool
    ) -> E_co: ...


def _bounded(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Of a file, lines up to a length that none of ours has: a longer one comes in pieces, which
    are refused, instead of filling the memory."""
    readline = getattr(lines, "readline", None)
    return iter(lines) if readline is None else iter(partial(readline, _LINE_MAX), b"")


class HistoryLines(Generic[E]):
    """One pass over the lines of a file. The header is read at once; iterating gives what `make`
    makes of events, and digests, as their lines are checked, the seal's digest last; `seal` is
    known after that. `chain`: the log's, after the event that was given last.

    Raises as read_history() does, except that an OSError comes as it is.
    """

    def __init__(self, name: str, lines: Iterable[bytes], make: Make[E]) -> None:
        self._name = name
        self._lines = _bounded(lines)
        self._make = make
        self._check = hashlib.sha256()
        self._part = "header"  # what must stand on the line that comes next ...
        self._expected = 0  # ... and of which sequence it is
        self.seal: Seal | None = None
        try:
            self.header = self._read_header(next(self._lines, b""))
        except Garbled as error:
            self._damaged(error)
        self.chain = bytes.fromhex(self.header.chain_before)

    def __iter__(self) -> Iterator[E | StateDigest]:
        try:
            yield from self._items()
        except Garbled as error:
            self._damaged(error)

    def _damaged(self, error: Garbled) -> NoReturn:
        raise LogBroken(
            f"{self._name} is damaged before {self._place}",
            first_wrong=self._expected,
            why=f"its compressed data can't be unpacked there: {error}",
            fix=_COPY,
            code="E-LOG-CHANGED",
        )

    def _items(self) -> Iterator[E | StateDigest]:
        every = self.header.digest_every
        self._expected = self.header.first_seq
        self._part = "event"
        for line in self._lines:
            content = self._verified(line)
            if content.startswith(_SEAL_BEGINS):
                yield from self._end(content)
                return
            yield self._event(content)
            if every and self._expected % every == 0:
                self._part = "digest"
                following = next(self._lines, None)
                if following is None:
                    break
                yield self._digest(self._verified(following))
                self._part = "event"
            self._expected += 1
        raise LogBroken(
            f"{self._name} ends before {self._place}, without its seal",
            first_wrong=self._expected,
            why="the file is cut off",
            fix=_COPY,
            code="E-LOG-SHORT",
        )

    @property
    def _place(self) -> str:
        if self._part == "event":
            return f"event {self._expected}"
        return f"the digest after event {self._expected}" if self._expected else "the header"

    def _read_header(self, line: bytes) -> HistoryHeader:
        try:
            probe = {} if too_deep(line) else msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError):
            probe = {}
        version = probe.get("unicron_history")
        if not isinstance(version, int) or version < 1:
            raise LogMismatch(
                f"{self._name} is no unicron history",
                why='its first line must begin {"unicron_history": …}' if line else "it is empty",
                fix="give a file that unicron replay --export or the demo wrote",
                code="E-LOG-FORMAT",
            )
        if version > HISTORY_FORMAT:
            raise LogMismatch(
                f"{self._name} has history format {version}; "
                f"this version reads up to {HISTORY_FORMAT}",
                why=f"it was written by unicron {probe.get('version', 'of another version')}",
                fix="read it with that version",
                code="E-LOG-FORMAT",
            )
        content = self._verified(line)
        try:
            header = msgspec.json.decode(content, type=HistoryHeader)
            bytes.fromhex(header.chain_before)
            subjects.check_cluster(header.cluster)
        except (ValueError, ConfigError, msgspec.ValidationError) as error:
            self._changed(str(error))
        return header

    def _verified(self, line: bytes) -> bytes:
        """The line without its check. LogBroken if the check is missing or wrong."""
        content = line[:-_CHECK_SIZE] + b"}"
        self._check.update(content)
        check = _CHECK % self._check.hexdigest()[:16].encode()
        if line.endswith(check) and not too_deep(content):
            return content
        self._refuse(line)

    def _refuse(self, line: bytes) -> NoReturn:
        """What is wrong with a line that isn't the one its check was made for."""
        if not line.endswith(b"\n"):
            if len(line) >= _LINE_MAX:
                self._changed(f"its line is longer than {_LINE_MAX >> 20} MiB")
            raise LogBroken(
                f"{self._name} is cut off in the line of {self._place}",
                first_wrong=self._expected,
                why="its last line is incomplete",
                fix=_COPY,
                code="E-LOG-HALF",
            )
        content, mark, _ = line.rpartition(b',"check":"')
        content += b"}"
        if not mark:
            self._changed("its line has no check")
        if too_deep(content):
            self._changed("its line nests too deeply")
        if self._part == "event":
            self._misplaced(content)
        self._changed("its line doesn't match its check")

    def _misplaced(self, content: bytes) -> None:
        """LogBroken if the line is of another event; a better message than a wrong check."""
        try:
            if content.startswith(_SEAL_BEGINS):
                seq = _seal_decoder.decode(content).seal.last_seq + 1
            else:
                seq = _event_decoder.decode(content).seq
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if seq != self._expected:
            raise out_of_order(self._expected, seq, self._name)

    def _changed(self, why: str) -> NoReturn:
        raise LogBroken(
            f"{self._name} was changed at {self._place}",
            first_wrong=self._expected,
            why=why,
            fix=_AGAIN,
            code="E-LOG-CHANGED",
        )

    def _event(self, content: bytes) -> E:
        try:
            line = _event_decoder.decode(content)
            data = bytes(line.event)
            as_it_is = bool(data)
            if as_it_is:
                pass  # as nearly always
            elif line.data is not None:
                data = line.data.encode()
            else:
                data = base64.b64decode(line.data_b64 or "", validate=True)
        except (ValueError, msgspec.DecodeError) as error:
            self._changed(str(error))
        if line.seq != self._expected:
            raise out_of_order(self._expected, line.seq, self._name)
        if not 0 <= line.at_ns < _AT_NS_END:
            self._changed(f"its time {line.at_ns} is none")
        event = self._make(line.seq, line.subject, data, line.at_ns, shallow=as_it_is)
        self.chain = extend_chain(self.chain, line.seq, line.subject, data)
        return event

    def _digest(self, content: bytes) -> StateDigest:
        try:
            found = _digest_decoder.decode(content).digest
        except msgspec.DecodeError:
            self._changed("it is missing: another line stands in its place")
        if found.seq != self._expected:
            self._changed(f"it is the digest after event {found.seq}")
        return found

    def _end(self, content: bytes) -> Iterator[StateDigest]:
        """The seal must be that of what was read, and the last line."""
        try:
            seal = _seal_decoder.decode(content).seal
        except msgspec.DecodeError as error:
            self._changed(str(error))
        if seal.last_seq != self._expected - 1:
            raise out_of_order(self._expected, seal.last_seq + 1, self._name)
        if seal.events != self._expected - self.header.first_seq:
            self._changed(f"the seal counts {seal.events} events")
        if seal.chain != self.chain.hex():
            self._changed("the seal's chain isn't that of the events")
        if next(self._lines, None) is not None:
            self._changed("there are lines after the seal")
        if seal.state_digest:
            yield StateDigest(seq=seal.last_seq, state_digest=seal.state_digest)
        self.seal = seal
