"""Time as the runtime sees it; the simulator has another one."""

import time

import anyio


class SystemClock:
    """The machine's own clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)
