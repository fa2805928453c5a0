"""The connections between processes and the log's server: late, lossy, cut and mended."""

import asyncio
import random
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

#: What is said at most once suffers all of the loss; what is tried again some of it.
ALL, SOME = 1.0, 0.1

#: What arrives on one connection keeps its order; two messages are at least this far apart.
_APART_S = 1e-6


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How well messages travel. One in a thousand times `late_permille` takes up to `late_ms`
    instead of up to `latency_us`. `loss_permille` of those that may get lost are: orders, beats and
    questions; a tenth of that of requests, answers and deliveries, which are tried again.
    `spread_percent`: how much of the latency is left to chance."""

    latency_us: int = 400
    spread_percent: int = 50
    late_permille: int = 0
    late_ms: int = 0
    loss_permille: int = 0


class Link:
    """One process's connection to the server, both ways. What is under way when it is cut is
    lost, so that a request may have done its work without the answer ever coming."""

    def __init__(self, weather: Weather, rng: random.Random) -> None:
        self.up = True
        self._weather = weather
        self._rng = rng
        self._number = 0
        self._latest = {"there": 0.0, "back": 0.0}
        self._loop = asyncio.get_running_loop()

    def cut(self) -> None:
        self.up = False
        self._number += 1

    def mend(self) -> None:
        self.up = True

    def there(self, call: Callable[[], None], *, loss: float = 0.0) -> None:
        """To the server. `loss`: how much of the weather's loss it suffers."""
        self._send("there", call, loss)

    def loses(self, loss: float) -> bool:
        """Does a message that suffers so much of the weather's loss get lost now?"""
        return not self.up or 1000 * self._rng.random() < loss * self._weather.loss_permille

    def back(self, call: Callable[[], None], *, loss: float = 0.0) -> None:
        """From the server."""
        self._send("back", call, loss)

    def _send(self, way: str, call: Callable[[], None], loss: float) -> None:
        if not self.up:
            return
        weather, rng, number = self._weather, self._rng, self._number
        if loss and 1000 * rng.random() < loss * weather.loss_permille:
            return
        spread = weather.spread_percent / 100
        delay_us = weather.latency_us * (1 - spread + spread * rng.random())
        if weather.late_permille and 1000 * rng.random() < weather.late_permille:
            delay_us += 1000 * weather.late_ms * rng.random()
        at = max(self._loop.time() + delay_us / 1e6, self._latest[way] + _APART_S)
        self._latest[way] = at

        def arrive() -> None:
            if self._number == number:
                call()

        self._loop.call_at(at, arrive)

    async def request(self, work: Callable[[], T], limit_s: float) -> T:
        """Have the server do `work`; its answer. Raises TimeoutError if none comes, whether the
        work was done or not."""
        answer: _Answer[T] = _Answer(self._loop, limit_s)

        def do() -> None:
            value = work()
            self.back(lambda: answer.give(value), loss=SOME)

        self.there(do, loss=SOME)
        try:
            return await answer.future
        finally:
            answer.limit.cancel()


class _Answer(Generic[T]):
    """A future whose value may come too late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float) -> None:
        self.future: asyncio.Future[T] = loop.create_future()
        self.limit = loop.call_later(limit_s, self._give_up)

    def _give_up(self) -> None:
        if not self.future.done():
            self.future.set_exception(TimeoutError())

    def give(self, value: T) -> None:
        if not self.future.done():
            self.future.set_result(value)
