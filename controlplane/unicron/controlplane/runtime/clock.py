"""Time as the runtime sees it; the simulator has another one."""

import time

import anyio

from unicron.controlplane.runtime.ports import Clock


def now_ms(clock: Clock) -> int:
    """Milliseconds of its monotonic clock."""
    return clock.monotonic_ns() // 1_000_000


class SystemClock:
    """The machine's own clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)
