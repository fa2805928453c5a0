"""The bus of an embedded control plane: beats of the host's own nodes, beside those of others."""

from collections.abc import Callable

from unicron.controlplane.runtime.ports import Bus
from unicron.events import Beat, Recorded


class HostBus:
    """Bus in front of another one, or alone if the log is in memory. The host's nodes hear orders
    as they are folded, so nothing needs to be said to them again."""

    def __init__(self, outer: Bus | None) -> None:
        self._outer = outer
        self._handlers: list[Callable[[Beat], None]] = []

    def beat(self, beat: Beat) -> None:
        """One of the host's nodes beats."""
        for handler in self._handlers:
            handler(beat)

    async def on_beats(self, handler: Callable[[Beat], None]) -> None:
        self._handlers.append(handler)
        if self._outer is not None:
            await self._outer.on_beats(handler)

    async def on_asks(self, handler: Callable[[str], None]) -> None:
        if self._outer is not None:
            await self._outer.on_asks(handler)

    def on_connection(self, lost: Callable[[], None], back: Callable[[], None]) -> None:
        if self._outer is not None:
            self._outer.on_connection(lost, back)

    async def resend(self, decision: Recorded) -> bool:
        return self._outer is None or await self._outer.resend(decision)
