"""The events of an embedded control plane, as the host reads them."""

from collections.abc import Callable
from typing import Self

import anyio

from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.ports import Tail
from unicron.events import Recorded

_LOOK_S = 0.5


class EventStream:
    """Entries of the log in strict order; each one after it was folded, so that the control
    plane's state has it. Ends when the control plane does, or by aclose()."""

    def __init__(self, tail: Tail, engine: Engine, forget: Callable[["EventStream"], None]) -> None:
        self._tail = tail
        self._engine = engine
        self._forget = forget
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Recorded:
        recorded = await anext(self._tail)
        while self._engine.state.seq < recorded.seq:
            if self._closed:
                raise StopAsyncIteration
            with anyio.move_on_after(_LOOK_S):
                await self._engine.moved()
        return recorded

    async def aclose(self) -> None:
        """End it. Harmless if it has ended."""
        self._closed = True
        self._forget(self)
        await self._tail.aclose()
