"""A descriptor on a process that isn't our child: news of its end, and the safe way to kill it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable


class Watch:
    """Calls `on_gone` once, in the loop, when the process has ended. A descriptor never means
    another process that got the same pid later."""

    def __init__(self, pid: int, on_gone: Callable[[], None]) -> None:
        self.pid = pid
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1
            self._loop.call_soon(on_gone)
        else:
            self._loop.add_reader(self._fd, self._ended)

    def send(self, number: int) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Watch no longer."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _ended(self) -> None:
        self.close()
        self._on_gone()
