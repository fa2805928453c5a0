"""An event loop on virtual time: when everybody waits, time jumps to what comes next.

Nothing in it depends on the machine: the same program makes the same steps in the same order.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")

#: Virtual wall clocks begin here (nanoseconds since 1970: 2026-01-01).
EPOCH_NS = 1_767_225_600_000_000_000


class NothingLeft(Exception):
    """Everybody waits, and nothing will ever happen: the program under test is stuck."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time() starts at 0 and passes only when nothing else can happen.

    It keeps its timers itself: what is due at the same time comes in the order in which it was
    asked for, which asyncio's heap leaves open, and no file is ever looked at.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._calls = 0
        self._due: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now_s

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._calls += 1
        heapq.heappush(self._timers, (when, self._calls, handle))
        return handle

    def _run_once(self) -> None:
        """What run_forever() does again and again."""
        due, timers = self._due, self._timers
        if not due:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise NothingLeft("everybody waits for somebody else")
            self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            due.append(heapq.heappop(timers)[2])
        for _ in range(len(due)):
            handle = due.popleft()
            if not handle.cancelled():
                handle._run()


def run(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """What `main` returns, run from time 0 to its end. Takes no real time to wait.

    Raises:
        NothingLeft: `main` waits for what can't happen any more.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
