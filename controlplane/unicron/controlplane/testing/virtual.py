"""An event loop on virtual time: when everybody waits, time jumps to what comes next.

Nothing in it depends on the machine: the same program makes the same steps in the same order.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")

#: Virtual wall clocks begin here (nanoseconds since 1970: 2026-01-01).
EPOCH_NS = 1_767_225_600_000_000_000


#: Far below anything that is timed here, and above what a float can't tell apart.
_TIE_S = 1e-13


class NothingLeft(Exception):
    """Everybody waits, and nothing will ever happen: the program under test is stuck."""


class _Jump(selectors.DefaultSelector):
    """Instead of waiting for a file, let the time pass. No file ever becomes ready."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeft("everybody waits for somebody else")
        self.loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time() starts at 0 and passes only when nothing else can happen."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._calls = 0
        selector = _Jump()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._now_s

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As ever, but what is due at the same time comes in the order in which it was asked for:
        asyncio's heap leaves that open, so that one more timer would reshuffle others."""
        self._calls += 1
        return super().call_at(when + self._calls * _TIE_S, callback, *args, context=context)

    def pass_time(self, seconds: float) -> None:
        """Nothing happens for so long."""
        self._now_s += seconds


def run(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """What `main` returns, run from time 0 to its end. Takes no real time to wait.

    Raises:
        NothingLeft: `main` waits for what can't happen any more.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
