"""The progress page: a small mapped file that tells from outside where a worker stands.

The training thread writes it without a lock and without a system call; the agent reads it for
the beats and, after a death, for the last place the worker was seen at. So no thread of the
worker is needed to know that it makes progress, and a SIGKILL between any two instructions
leaves a readable page: there are two slots, the writer fills the older one and then publishes
it by advancing one counter. A reader accepts a slot only if the counter, the slot's own number
and its check word agree.

The breakpoint area lets a fault injector in another process stop the worker at an exact place.
It is dead unless the worker was launched with fault injection.
"""

import mmap
import os
import struct
import time
from enum import IntEnum

import msgspec

from unicron.events.beat import WorkerBeat
from unicron.events.ids import Incarnation, WorkerId
from unicron.worker_shim.process import start_ticks

MAGIC = int.from_bytes(b"unicronP", "little")
VERSION = 1
_PAGE_BYTES = 512

# Word numbers (8 bytes each) in the file.
_HEADER, _COUNT, _SLOTS, _BREAKPOINT = 0, 8, 16, 48
_SLOT_WORDS = 16
ARMED, HIT, HIT_NS = _BREAKPOINT, _BREAKPOINT + 8, _BREAKPOINT + 9  # after the condition's six

# Native order and alignment: struct then copies each word with one memcpy.
HEADER_FORMAT = struct.Struct("@6q")  # magic, version, pid, start ticks, incarnation, injection
_SLOT_FORMAT = struct.Struct("@11q")  # number, eight integers, changed_ns, check word
# phase, iteration, micro-batch, generation, what to do, its argument
CONDITION_FORMAT = struct.Struct("@6q")
WORD_FORMAT = struct.Struct("@q")

#: A worker held at a breakpoint goes on after this long: an injector that died must not look
#: like a hang for ever.
BREAKPOINT_LIMIT_S = 30.0
ANY = -1


class Phase(IntEnum):
    """What the training thread is doing."""

    START = 0
    BUILD = 1
    PREPARED = 2
    REGROUP = 3
    TRANSFER = 4
    FORWARD = 5
    BACKWARD = 6
    REDUCTION = 7
    VOTE = 8
    VOTED = 9
    STEP = 10
    COMMITTED = 11
    QUIESCED = 12
    FINISHED = 13
    SECTION = 14

    @property
    def label(self) -> str:
        """The name used in beats and facts, in lower case."""
        return self.name.lower()


class Action(IntEnum):
    """What a worker does at a breakpoint. The argument is in milliseconds, where there is one."""

    #: Stand there until killed or disarmed.
    HOLD = 0
    #: Raise an exception out of the training step.
    RAISE = 1
    #: Run in circles in Python code, as a user's loop would, until killed.
    SPIN = 2
    #: Let the loss of this micro-batch become NaN.
    NAN = 3
    #: Reset the generation's connections to the other members, and live.
    RESET = 4
    #: From now on take so much longer for each micro-batch.
    SLOW = 5
    #: Hold the interpreter, without letting any other thread run, in a declared section.
    HOG = 6


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of a page.

    `start_ticks`: start of the process in clock ticks since boot, as /proc gives it; with the
    pid it names the process for good. `iteration`: iterations committed. `collectives` and
    `forward_passes`: totals of this incarnation. `micro_batch_us`: what it took to compute a
    micro-batch of the last committed iteration, on average. `section_ms`: limit of the section it
    declared, 0 outside of one. `changed_ns`: CLOCK_MONOTONIC of the last change.
    """

    pid: int
    start_ticks: int
    incarnation: int
    generation: int
    iteration: int
    micro_batches_done: int
    phase: Phase
    collectives: int
    forward_passes: int
    micro_batch_us: int
    section_ms: int
    changed_ns: int


class ProgressPage:
    """The writer's side. Only one thread, the training thread, may call it."""

    def __init__(self, path: str, incarnation: int, *, fault_injection: bool = False) -> None:
        """Create the page. Replaces what is at `path`; raises OSError if that can't be written."""
        self.path = path
        self.generation = 0
        self.iteration = 0
        self.micro_batches_done = 0
        self.phase = Phase.START
        self.collectives = 0
        self.forward_passes = 0
        self.micro_batch_us = 0
        self.section_ms = 0
        self._count = 0
        self._fault_injection = fault_injection
        self._map = _create(path, incarnation, fault_injection=fault_injection)
        self._words = memoryview(self._map).cast("q")
        self._write()

    def enter(self, phase: Phase, micro_batch: int = ANY) -> tuple[Action, int] | None:
        """The training thread goes on to `phase`. `micro_batch` is what a breakpoint compares:
        how many micro-batches of the iteration this member has finished, or -1. Returns what an
        injector wants of this worker here, and the argument; None almost always."""
        self.phase = phase
        self._write()
        if self._fault_injection and self._words[ARMED]:
            return self._maybe_stop(micro_batch)
        return None

    def set(
        self,
        *,
        generation: int | None = None,
        iteration: int | None = None,
        micro_batches_done: int | None = None,
        micro_batch_us: int | None = None,
        section_ms: int | None = None,
    ) -> None:
        """Change the integers that are given, all at once."""
        if micro_batch_us is not None:
            self.micro_batch_us = micro_batch_us
        if section_ms is not None:
            self.section_ms = section_ms
        if generation is not None:
            self.generation = generation
        if iteration is not None:
            self.iteration = iteration
        if micro_batches_done is not None:
            self.micro_batches_done = micro_batches_done
        self._write()

    def count_collective(self) -> None:
        """A collective is about to be entered."""
        self.collectives += 1
        self._write()

    def count_forward(self) -> None:
        """A forward pass was begun."""
        self.forward_passes += 1
        self._write()

    def close(self) -> None:
        """Unmap; the file stays for whoever wants to know how it ended."""
        self._words.release()
        self._map.close()

    def _write(self) -> None:
        number = self._count + 1
        fields = (
            number,
            self.generation,
            self.iteration,
            self.micro_batches_done,
            int(self.phase),
            self.collectives,
            self.forward_passes,
            self.micro_batch_us,
            self.section_ms,
            time.monotonic_ns(),
        )
        slot = 8 * (_SLOTS + (number & 1) * _SLOT_WORDS)
        _SLOT_FORMAT.pack_into(self._map, slot, *fields, _check(fields))
        self._words[_COUNT] = number  # one aligned store: the slot is published
        self._count = number

    def _maybe_stop(self, micro_batch: int) -> tuple[Action, int] | None:
        token = self._words[ARMED]
        if self._words[HIT] == token:
            return None  # stopped here before; it fires once for each arming
        here = (int(self.phase), self.iteration, micro_batch, self.generation)
        *wanted, action, argument = CONDITION_FORMAT.unpack_from(self._map, 8 * (ARMED + 1))
        if any(w not in (ANY, h) for w, h in zip(wanted, here, strict=True)):
            return None
        now = time.monotonic_ns()
        self._words[HIT_NS] = now
        self._words[HIT] = token
        if action != Action.HOLD:
            return Action(action), argument
        until = now + int(BREAKPOINT_LIMIT_S * 1e9)
        while self._words[ARMED] == token and time.monotonic_ns() < until:
            time.sleep(0.001)
        return None


class PageReader:
    """The reader's side. It uses pread, not a map: a truncated file can't hurt it with SIGBUS."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def read(self) -> Progress | None:
        """Where the worker stands, or None: no page yet, not a page, or it changed too fast."""
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return None
        for _ in range(8):
            try:
                data = os.pread(self._fd, _PAGE_BYTES, 0)
            except OSError:
                return None
            found = _parse(data)
            if found is not None or len(data) < _PAGE_BYTES:
                return found
        return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def beat_of(worker: WorkerId, incarnation: Incarnation, seen: Progress | None) -> WorkerBeat:
    """What a living worker's part of its node's heartbeat is; `seen` None: there is no page yet."""
    return WorkerBeat(
        worker=worker,
        incarnation=incarnation,
        alive=True,
        generation=seen.generation if seen else 0,
        iteration=seen.iteration if seen else 0,
        micro_batches_done=seen.micro_batches_done if seen else 0,
        phase=seen.phase.label if seen else "start",
        collectives=seen.collectives if seen else 0,
        micro_batch_us=seen.micro_batch_us if seen else 0,
        section_ms=seen.section_ms if seen else 0,
    )


def _create(path: str, incarnation: int, *, fault_injection: bool) -> mmap.mmap:
    """A zeroed page with its header, put in place by rename so that nobody sees half of one."""
    pid = os.getpid()
    temporary = f"{path}.{pid}"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, _PAGE_BYTES)
        page = mmap.mmap(fd, _PAGE_BYTES)
    finally:
        os.close(fd)
    header = (MAGIC, VERSION, pid, start_ticks(pid), incarnation, int(fault_injection))
    HEADER_FORMAT.pack_into(page, 8 * _HEADER, *header)
    os.rename(temporary, path)
    return page


def _parse(data: bytes) -> Progress | None:
    if len(data) < _PAGE_BYTES:
        return None
    magic, version, pid, ticks, incarnation, _ = HEADER_FORMAT.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        return None
    (count,) = WORD_FORMAT.unpack_from(data, 8 * _COUNT)
    slot = 8 * (_SLOTS + (count & 1) * _SLOT_WORDS)
    *fields, check = _SLOT_FORMAT.unpack_from(data, slot)
    if fields[0] != count or check != _check(tuple(fields)):
        return None
    _, generation, iteration, done, phase, collectives, passes, compute, section, at = fields
    return Progress(
        pid=pid,
        start_ticks=ticks,
        incarnation=incarnation,
        generation=generation,
        iteration=iteration,
        micro_batches_done=done,
        phase=Phase(phase),
        collectives=collectives,
        forward_passes=passes,
        micro_batch_us=compute,
        section_ms=section,
        changed_ns=at,
    )


def _check(fields: tuple[int, ...]) -> int:
    """Differs for a mix of two writes; not meant against damage on disk."""
    mixed = 0
    for shift, field in enumerate(fields):
        mixed ^= field << shift
    return mixed & 0x7FFF_FFFF_FFFF_FFFF
