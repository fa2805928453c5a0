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


class _Call(asyncio.TimerHandle):
    """What is to be called. Asyncio's own handles keep account of what a debugger wants to know;
    a run makes ninety thousand of them."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        when: float = 0.0,
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._when = when
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()  # what they hold on to may go


def _nothing() -> None:
    """In place of what was cancelled."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time() starts at 0 and passes only when nothing else can happen.

    It keeps its timers itself: what is due at the same time comes in the order in which it was
    asked for, which asyncio's heap leaves open, and no file is ever looked at.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._timers: list[tuple[float, int, _Call]] = []
        self._calls = 0
        self._due: deque[_Call] = deque()
        self._stopping = False

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        call = _Call(callback, args, context)
        self._due.append(call)
        return call

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._push(_Call(callback, args, context, self._now_s + delay))

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._push(_Call(callback, args, context, when))

    def _push(self, timer: _Call) -> _Call:
        self._calls += 1
        heapq.heappush(self._timers, (timer._when, self._calls, timer))
        return timer

    def _run_once(self) -> None:
        """What run_forever() does again and again."""
        due, timers = self._due, self._timers
        while not self._stopping:
            if not due:
                while timers and timers[0][2]._cancelled:
                    heapq.heappop(timers)
                if not timers:
                    raise NothingLeft("everybody waits for somebody else")
                self._now_s = max(self._now_s, timers[0][0])
            while timers and timers[0][0] <= self._now_s:
                due.append(heapq.heappop(timers)[2])
            for _ in range(len(due)):
                call = due.popleft()
                if call._cancelled:
                    continue
                try:
                    if call._context is None:
                        call._callback(*call._args)
                    else:
                        call._context.run(call._callback, *call._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    what = {"message": f"Exception in callback {call!r}", "exception": error}
                    self.call_exception_handler(what)


def run(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """What `main` returns, run from time 0 to its end. Takes no real time to wait.

    Raises:
        NothingLeft: `main` waits for what can't happen any more.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        # A task that had the answer would be printed with all of it when the signal handlers go.
        answers: list[T] = []

        async def answer() -> None:
            answers.append(await main())

        runner.run(answer())
        return answers[0]
