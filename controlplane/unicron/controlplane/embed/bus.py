"""The bus of an embedded control plane: beats of the host's own nodes, beside those of others."""

from collections.abc import Callable
from typing import Protocol

import anyio

from unicron.controlplane.runtime.ports import Bus
from unicron.events import Beat, NodeId, Recorded


class OuterBus(Bus, Protocol):
    """A bus that other control planes hear, too."""

    async def send_beat(self, beat: Beat) -> None:
        """Say a heartbeat to all of them, and to ourselves. It may get lost."""
        ...


class HostBus:
    """Bus in front of another one, or alone if the log is in memory. The host's nodes hear orders
    as they are folded, so nothing needs to be said to them again. Their beats go to whoever leads:
    over the outer bus, which `run` does, if there is one."""

    def __init__(self, outer: OuterBus | None) -> None:
        self._outer = outer
        self._handlers: list[Callable[[Beat], None]] = []
        self._waiting: dict[NodeId, Beat] = {}
        self._new = anyio.Event()

    def beat(self, beat: Beat) -> None:
        """One of the host's nodes beats."""
        if self._outer is None:
            for handler in self._handlers:
                handler(beat)
        else:
            self._waiting[beat.node] = beat
            self._new.set()

    async def run(self) -> None:
        """Send the beats out until cancelled."""
        while self._outer is not None:
            await self._new.wait()
            self._new = anyio.Event()
            waiting, self._waiting = self._waiting, {}
            for beat in waiting.values():
                await self._outer.send_beat(beat)

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
