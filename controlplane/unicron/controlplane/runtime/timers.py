"""Limits running on the monotonic clock, for the waits that the state names; pure."""


class Timers:
    """Key -> when it expires (milliseconds of one monotonic clock), and its limit."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[int, int]] = {}

    def update(self, waits: dict[str, int], now_ms: int) -> None:
        """Start limits of new waits; forget those that ended."""
        self._running = {
            key: self._running.get(key, (now_ms + limit, limit)) for key, limit in waits.items()
        }

    def restart(self) -> None:
        """Give every wait its full limit again, from the next update on."""
        self._running = {}

    def due(self, now_ms: int) -> list[tuple[str, int]]:
        """(key, limit) of expired waits, the earliest first."""
        expired = [(at, key, limit) for key, (at, limit) in self._running.items() if at <= now_ms]
        return [(key, limit) for _, key, limit in sorted(expired)]

    def next_ms(self, now_ms: int) -> int | None:
        """Milliseconds until the next expiry; None if nothing runs."""
        if not self._running:
            return None
        return max(0, min(at for at, _ in self._running.values()) - now_ms)
