"""A long history file, read by two processes: one checks its lines, the other takes the events.

The child goes through the file as everybody does (HistoryLines) and hands on what it has checked,
in blocks. It is of use only while all is well: if it meets anything wrong, or is killed, the parent
reads the file itself from the beginning, skips what it has been given already, and comes to the
same error or to the end. So there is one place that says what is wrong with a file.
"""

import contextlib
import fcntl
import os
import select
import signal
import stat
import struct
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import msgspec

from unicron.events import HistoryHeader, HistoryReader, LogBroken, Recorded, StateDigest
from unicron.events.codec import record
from unicron.events.compressed import unpacked
from unicron.events.history_lines import HistoryLines

#: Files from here on: a fork costs as much as a few thousand events.
_LONG: Final = 4 << 20
_BLOCK: Final = 1 << 18
_PIPE: Final = 1 << 20
#: A child that says nothing for so long is given up.
_SILENT_MS: Final = 10_000
_size = struct.Struct(">I")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event whose line was checked. `shallow` as in record()."""

    seq: int
    subject: str
    data: bytes
    at_ns: int
    shallow: bool


class _Block(msgspec.Struct, array_like=True):
    """Events, the log's chain after each, and the digest that stands behind them if one does.
    `last`: the file ends here, and all of it is as it was written."""

    rows: list[_Row] = []
    chains: list[bytes] = []
    digest: StateDigest | None = None
    last: bool = False


_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(HistoryHeader)
_block_decoder = msgspec.msgpack.Decoder(_Block)


def worth_it(file: IO[bytes]) -> bool:
    """Is the file a long one, and can this process have a child that reads it? A process with
    threads can't be forked, and where SIGCHLD is ignored a dead child's number may be another's."""
    if sys.platform != "linux":
        return False
    status = os.fstat(file.fileno())
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_size >= _LONG
        and len(os.sched_getaffinity(0)) > 1
        and signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN
        and _has_one_thread()
    )


def _has_one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # without /proc nobody can tell
        return False


class ReadAhead:
    """As HistoryReader: `header`, what it gives, `chain` after the event that was given last, and
    its errors. `file`: opened just now, and read by nobody else. `close()` ends the child."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file
        self._pid = 0
        with contextlib.suppress(OSError):  # no process or pipe is left: then not
            self._pid, self._blocks = _forked(path, file)
        try:
            begun = self._frame() if self._pid else None
            self.header = self._anew().header if begun is None else _header_decoder.decode(begun)
        except BaseException:
            self.close()
            raise
        self.chain = bytes.fromhex(self.header.chain_before)

    def close(self) -> None:
        """End the child, if it still is there."""
        if not self._pid:
            return
        os.close(self._blocks)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._pid = 0

    def __iter__(self) -> Iterator[Recorded | StateDigest]:
        given = 0
        while self._pid:
            frame = self._frame()
            if frame is None:
                break
            block = _block_decoder.decode(frame)
            for row, self.chain in zip(block.rows, block.chains, strict=True):
                yield record(row.seq, row.subject, row.data, row.at_ns, shallow=row.shallow)
            given += len(block.rows)
            if block.digest is not None:
                yield block.digest
                given += 1
            if block.last:
                self.close()
                return
        yield from self._rest(given)

    def _frame(self) -> bytes | None:
        """The next thing that the child says; None if it is gone, or silent for too long: it has
        met something, or was killed or stopped."""
        head = self._read(_size.size)
        return self._read(_size.unpack(head)[0]) if head is not None else None

    def _read(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        waiting = select.poll()
        waiting.register(self._blocks, select.POLLIN)
        while size:
            part = os.read(self._blocks, size) if waiting.poll(_SILENT_MS) else b""
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _anew(self) -> HistoryReader:
        self.close()
        self._file.seek(0)
        return HistoryReader(str(self._path), unpacked(self._file))

    def _rest(self, given: int) -> Iterator[Recorded | StateDigest]:
        """What comes after as many items, read by ourselves."""
        reader = self._anew()
        items = iter(reader)
        skipped = sum(1 for _ in islice(items, given))
        if skipped < given or reader.header != self.header or reader.chain != self.chain:
            raise LogBroken(
                f"{self._path} became another file while it was read",
                first_wrong=0,
                why="somebody writes into it",
                fix="read a copy that nobody changes",
                code="E-LOG-CHANGED",
            )
        for item in items:
            self.chain = reader.chain
            yield item


def _forked(path: Path, file: IO[bytes]) -> tuple[int, int]:
    """The child that reads, and the pipe in which it says what."""
    readable, writable = os.pipe()
    pid = -1
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # as large as it may be
            fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, _PIPE)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pid = os.fork()
        if not pid:
            os.close(readable)
            _child(path, file, writable, held)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        os.close(writable)
        if pid < 0:
            os.close(readable)
    return pid, readable


def _child(path: Path, file: IO[bytes], writable: int, held: Any) -> NoReturn:
    """It must never come back from here. Whoever forked it says what there is to say."""
    done = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        with os.fdopen(writable, "wb", buffering=0) as pipe:
            for frame in _frames(path, file):
                _written(pipe, _size.pack(len(frame)) + frame)
        done = 0
    finally:
        os._exit(done)


def _written(pipe: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[pipe.write(rest) :]


def _frames(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    lines = HistoryLines(str(path), unpacked(file), _Row)
    yield _encoder.encode(lines.header)
    block, size = _Block(), 0
    for item in lines:
        if isinstance(item, StateDigest):
            block.digest = item
        else:
            block.rows.append(item)
            block.chains.append(lines.chain)
            size += len(item.data)
        if size >= _BLOCK or block.digest is not None:
            yield _encoder.encode(block)
            block, size = _Block(), 0
    block.last = True
    yield _encoder.encode(block)
