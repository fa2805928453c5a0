"""The journal: what one incarnation of a worker computed and committed, and when.

Fixed records of 40 bytes, each call one ``write`` with O_APPEND: what was written survives
SIGKILL (it is in the page cache), nothing is synced, and a torn tail is simply not there. It
answers afterwards how many forward passes were done, which samples each iteration was made of,
what the losses were, and when training went on.
"""

import os
import struct
import time
import zlib
from enum import IntEnum

import msgspec

_VERSION = 1
# kind, version, check, micro-batch, iteration, generation, monotonic ns, loss
_RECORD = struct.Struct("<BBHIqqqd")
RECORD_BYTES = 40
assert _RECORD.size == RECORD_BYTES


class Kind(IntEnum):
    """What a record says."""

    FORWARD = 1
    COMMIT = 2
    CONTRIBUTED = 3


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record. `iteration`: the iteration worked on, counted from 0, for all kinds.
    `micro_batch`: 0 for COMMIT. `loss`: NaN unless COMMIT gave one. `mono_ns`:
    CLOCK_MONOTONIC."""

    kind: Kind
    micro_batch: int
    iteration: int
    generation: int
    mono_ns: int
    loss: float


class Journal:
    """The writer. Raises OSError if the file can't be written: a full disk is the host's fault."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)

    def forward(self, iteration: int, micro_batch: int, generation: int) -> None:
        """A forward pass of `micro_batch` begins; written before it, so none goes uncounted."""
        now = time.monotonic_ns()
        os.write(self._fd, _pack(Kind.FORWARD, micro_batch, iteration, generation, now))

    def commit(
        self,
        iteration: int,
        generation: int,
        *,
        loss: float = float("nan"),
        contributed: tuple[int, ...] = (),
    ) -> None:
        """Iteration number `iteration` was committed (the step is done). `contributed`: the ids
        of the micro-batches whose gradients this member brought into it. One write for all."""
        now = time.monotonic_ns()
        records = [
            _pack(Kind.CONTRIBUTED, micro_batch, iteration, generation, now)
            for micro_batch in contributed
        ]
        records.append(_pack(Kind.COMMIT, 0, iteration, generation, now, loss))
        os.write(self._fd, b"".join(records))

    def close(self) -> None:
        os.close(self._fd)


def read_journal(path: str) -> list[Record]:
    """All whole records at `path`, in order; none if there is no file. A torn tail is left out.
    Raises ValueError at a damaged record before the tail: then the file isn't what was written.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    whole = len(data) // RECORD_BYTES
    records: list[Record] = []
    for number in range(whole):
        record = _unpack(data[number * RECORD_BYTES : (number + 1) * RECORD_BYTES])
        if record is not None:
            records.append(record)
        elif number != whole - 1:
            raise ValueError(f"{path}: record {number} is damaged; the journal can't be used")
    return records


def _pack(
    kind: Kind,
    micro_batch: int,
    iteration: int,
    generation: int,
    mono_ns: int,
    loss: float = float("nan"),
) -> bytes:
    bare = _RECORD.pack(kind, _VERSION, 0, micro_batch, iteration, generation, mono_ns, loss)
    check = (zlib.crc32(bare) & 0xFFFF).to_bytes(2, "little")
    return bare[:2] + check + bare[4:]


def _unpack(data: bytes) -> Record | None:
    kind, version, check, micro_batch, iteration, generation, mono_ns, loss = _RECORD.unpack(data)
    bare = data[:2] + b"\0\0" + data[4:]
    if version != _VERSION or check != zlib.crc32(bare) & 0xFFFF:
        return None
    return Record(
        kind=Kind(kind),
        micro_batch=micro_batch,
        iteration=iteration,
        generation=generation,
        mono_ns=mono_ns,
        loss=loss,
    )
