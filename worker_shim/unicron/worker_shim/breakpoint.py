"""The fault injector's handle on a worker's progress page, used from another process."""

import os
import time
from types import TracebackType
from typing import Self

from unicron.worker_shim.page import (
    ANY,
    ARMED,
    CONDITION_FORMAT,
    HEADER_FORMAT,
    HIT,
    HIT_NS,
    WORD_FORMAT,
    Action,
    Phase,
)


class Breakpoint:
    """One worker's breakpoint."""

    def __init__(self, path: str, timeout_s: float = 10.0) -> None:
        """Wait for the page at `path` to exist. Raises TimeoutError, and ValueError if the
        worker was launched without fault injection."""
        self.path = path
        until = time.monotonic() + timeout_s
        while True:
            try:
                self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                break
            except FileNotFoundError:
                if time.monotonic() > until:
                    raise TimeoutError(f"no progress page at {path} after {timeout_s} s") from None
                time.sleep(0.001)
        header = os.pread(self._fd, HEADER_FORMAT.size, 0)
        if len(header) < HEADER_FORMAT.size or not HEADER_FORMAT.unpack(header)[5]:
            os.close(self._fd)
            raise ValueError(
                f"the worker of {path} ignores breakpoints: launch it with fault_injection=True"
            )
        self._token = max(self._word(ARMED), self._word(HIT))

    def arm(
        self,
        phase: Phase,
        *,
        iteration: int = ANY,
        micro_batch: int = ANY,
        generation: int = ANY,
        action: Action = Action.HOLD,
        argument_ms: int = 0,
    ) -> None:
        """Have the worker do `action` the next time it enters `phase` with these numbers; -1 is
        any. Once."""
        self.disarm()
        condition = CONDITION_FORMAT.pack(
            int(phase), iteration, micro_batch, generation, int(action), argument_ms
        )
        os.pwrite(self._fd, condition, 8 * (ARMED + 1))
        self._token += 1
        os.pwrite(self._fd, WORD_FORMAT.pack(self._token), 8 * ARMED)

    def hit_ns(self) -> int | None:
        """CLOCK_MONOTONIC nanoseconds at which the worker stopped; None if it hasn't."""
        return self._word(HIT_NS) if self._word(HIT) == self._token else None

    def wait_hit(self, timeout_s: float) -> int | None:
        """`hit_ns`, waiting up to `timeout_s` for it."""
        until = time.monotonic() + timeout_s
        while True:
            hit = self.hit_ns()
            if hit is not None or time.monotonic() > until:
                return hit
            time.sleep(0.0005)

    def disarm(self) -> None:
        """Let a held worker go on; nothing is held until armed again."""
        os.pwrite(self._fd, WORD_FORMAT.pack(0), 8 * ARMED)

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _word(self, number: int) -> int:
        (value,) = WORD_FORMAT.unpack(os.pread(self._fd, 8, 8 * number))
        return int(value)
