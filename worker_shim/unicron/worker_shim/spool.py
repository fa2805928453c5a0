"""Facts that wait for the log, on the node's disk: the format, and the file of one process.

Every fact is written before it counts as taken, with one ``write`` and no fsync: what was written
survives SIGKILL of its process (it is in the page cache), but not the end of the node's power. What
the log has is removed as soon as nothing waits any more; until then it stays, and a later reader
sends it again under the same id, which the log takes for what it is.

A file: a line that names the format, then records. The first one says whose facts they are, each
further one is an event as it goes to the log. A record is a mark that no UTF-8 text holds, length
and CRC-32 of its content, and the content, so that what was damaged costs no more than itself. Of
two records with the same number the later one counts.
"""

import contextlib
import fcntl
import logging
import os
import struct
import time
import zlib
from collections.abc import Iterable
from typing import Protocol

import msgspec

from unicron.events.envelope import Source
from unicron.events.ids import ClusterId, Incarnation

log = logging.getLogger(__name__)

#: How a spool's name ends, and that of one that is being written anew.
SUFFIX, HALF_SUFFIX = ".spool", ".spool.new"

MAGIC = b"unicron spool 1\n"
_MARK = b"\xff\xfe"
#: mark, length of the content, its CRC-32
_HEAD = struct.Struct("<2sII")

#: A disk that can't be written is complained about at most this often.
_SAY_AGAIN_S = 60.0


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose facts a spool holds."""

    cluster: ClusterId
    who: str
    incarnation: Incarnation


class SpooledFact(msgspec.Struct, frozen=True, kw_only=True):
    """One fact as it lies in a spool. `data`: its bytes in the log; `kind`: its tag."""

    source: Source
    written_at_ns: int
    kind: str
    data: bytes


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a spool holds. `owner`: None if that can't be read. `facts`: in the order of their
    numbers. `damaged`: how many stretches of bytes are no record."""

    owner: Owner | None
    facts: tuple[SpooledFact, ...]
    damaged: int


class _Body(msgspec.Struct, frozen=True):
    type: str = ""


class _Event(msgspec.Struct, frozen=True):
    """What is read of an event here: of any type and version."""

    source: Source
    written_at_ns: int = 0
    body: _Body = _Body()


_event_decoder = msgspec.json.Decoder(_Event)


# --- The format, pure -----------------------------------------------------------------------------


def encode_record(content: bytes) -> bytes:
    """One record."""
    return _HEAD.pack(_MARK, len(content), zlib.crc32(content)) + content


def encode_header(owner: Owner) -> bytes:
    """What a spool begins with."""
    return MAGIC + encode_record(msgspec.json.encode(owner))


def decode(data: bytes) -> Contents:
    """All that can be read of a spool's bytes, whatever happened to them. Never raises."""
    contents, damaged = _records(data)
    owner: Owner | None = None
    facts: dict[int, SpooledFact] = {}
    for number, content in enumerate(contents):
        if number == 0 and owner is None:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                owner = msgspec.json.decode(content, type=Owner)
                continue
        fact = read_fact(content)
        if fact is None:
            damaged += 1
        else:
            facts[fact.source.counter] = fact
    return Contents(
        owner=owner, facts=tuple(facts[number] for number in sorted(facts)), damaged=damaged
    )


def read_fact(data: bytes) -> SpooledFact | None:
    """The fact with these bytes; None if they are none."""
    try:
        event = _event_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return SpooledFact(
        source=event.source, written_at_ns=event.written_at_ns, kind=event.body.type, data=data
    )


def _records(data: bytes) -> tuple[list[bytes], int]:
    """The contents of all whole records, and how many stretches between them are damaged."""
    found: list[bytes] = []
    damaged = 0
    position = len(MAGIC) if data.startswith(MAGIC) else 0
    while position < len(data):
        content = _record_at(data, position)
        if content is not None:
            found.append(content)
            position += _HEAD.size + len(content)
            continue
        damaged += 1
        position = data.find(_MARK, position + 1)
        while position >= 0 and _record_at(data, position) is None:
            position = data.find(_MARK, position + 1)
        if position < 0:
            break
    return found, damaged


def _record_at(data: bytes, position: int) -> bytes | None:
    if position + _HEAD.size > len(data):
        return None
    mark, length, check = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    if mark != _MARK or start + length > len(data):
        return None
    content = data[start : start + length]
    return content if zlib.crc32(content) == check else None


# --- The file -------------------------------------------------------------------------------------


class Spool(Protocol):
    """Where a publisher keeps what waits. Its methods never raise, and are called by one thread
    at a time. `behind`: it doesn't hold all that waits; `size`: in bytes."""

    behind: bool
    size: int

    def append(self, fact: bytes) -> None:
        """One more waits."""

    def keep(self, facts: Iterable[bytes]) -> None:
        """These wait, and nothing else."""

    def close(self) -> None:
        """Its process ends in order. What waits is left to others."""


class NoSpool:
    """Facts wait in memory only."""

    behind = False
    size = 0

    def append(self, fact: bytes) -> None:
        pass

    def keep(self, facts: Iterable[bytes]) -> None:
        pass

    def close(self) -> None:
        pass


class SpoolFile:
    """A process's own file at `path`. It is locked while the process lives, and made with the first
    fact. If it can't be written, facts wait in memory only; that is said, not for each of them."""

    def __init__(self, path: str, owner: Owner) -> None:
        self.path = path
        self.behind = False
        self.size = 0
        self._header = encode_header(owner)
        self._fd = -1
        self._closed = False
        self._said_at = -_SAY_AGAIN_S

    def append(self, fact: bytes) -> None:
        if self.behind or self._closed:
            return  # one that is missing must not be followed by others
        try:
            if self._fd < 0:
                self._fd = _create(self.path, self._header)
                self.size = len(self._header)
            self._write(encode_record(fact))
        except OSError as error:
            self._failed(error)

    def keep(self, facts: Iterable[bytes]) -> None:
        try:
            content = b"".join(encode_record(fact) for fact in facts)
            if self._closed:
                return
            if self._fd >= 0 and not content:
                os.ftruncate(self._fd, len(self._header))
                self.size = len(self._header)
            elif content:
                self._replace(content)
        except OSError as error:
            self._failed(error)
        else:
            self.behind = False

    def close(self) -> None:
        self._closed = True
        if self._fd < 0:
            return
        if self.size <= len(self._header) and not self.behind:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        os.close(self._fd)
        self._fd = -1

    def _write(self, record: bytes) -> None:
        """All of it or, after an OSError, nothing."""
        try:
            _write_all(self._fd, record)
        except OSError:
            os.ftruncate(self._fd, self.size)
            raise
        self.size += len(record)

    def _replace(self, content: bytes) -> None:
        fd = _create(f"{self.path}.new", self._header)
        try:
            _write_all(fd, content)
            os.rename(f"{self.path}.new", self.path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}.new")
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.size = fd, len(self._header) + len(content)

    def _failed(self, error: OSError) -> None:
        self.behind = True
        if time.monotonic() - self._said_at < _SAY_AGAIN_S:
            return
        self._said_at = time.monotonic()
        log.error(
            "facts that wait for the log can't be written to %s (%s): they are in memory only, "
            "and lost if this process dies before the log has them",
            self.path,
            error.strerror,
        )


def _create(path: str, header: bytes) -> int:
    """An empty spool, locked; its descriptor. A lock goes when the process does."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(fd, header)
    except OSError:
        os.close(fd)
        raise
    return fd


def _write_all(fd: int, data: bytes) -> None:
    """A disk that gets full takes a part first and refuses the next one."""
    while data:
        data = data[os.write(fd, data) :]


def is_held(path: str) -> bool:
    """Does the process that writes it still live? Raises FileNotFoundError."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


class SpoolDepth:
    """How many facts wait in another process's spool. For people, and cheap to ask for again and
    again: it counts marks, and reads the file only if it has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = (0, 0)
        self._facts = 0

    def read(self) -> int:
        """Facts that the file holds; 0 if it can't be read."""
        try:
            status = os.stat(self._path)
            if (status.st_size, status.st_mtime_ns) != self._seen:
                with open(self._path, "rb") as file:
                    self._facts = max(0, file.read().count(_MARK) - 1)  # less the owner's
                self._seen = (status.st_size, status.st_mtime_ns)
        except OSError:
            self._seen, self._facts = (0, 0), 0
        return self._facts
