"""Control-plane instances: the real engine behind simulated ports, crashed, stopped and cut off."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Self, TypeVar

import anyio

from unicron.controlplane.core.invariants import Violation
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.memory import MemorySnapshots
from unicron.controlplane.runtime.outcomes import Outcome, Unknown
from unicron.controlplane.runtime.ports import Hold, Solver
from unicron.controlplane.runtime.writer import NotLeading
from unicron.controlplane.testing.network import ALL, Link
from unicron.controlplane.testing.server import Server
from unicron.controlplane.testing.snapshots import SimulatedKeeper
from unicron.events import Beat, LogUnreachable, Recorded, Sequence, subjects

T = TypeVar("T")

_ATTEMPT_S = 2.0
_LIMIT_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_HEARTBEAT_S = 2.5


class Instance:
    """One process of the control plane on its host. It is also its own clock."""

    def __init__(
        self,
        server: Server,
        name: str,
        link: Link,
        solver: Callable[["Instance"], Solver],
        *,
        skew_ns: int,
        on_end: Callable[["Instance", str, tuple[Violation, ...]], None],
        lease_link: Link | None = None,
        kept: MemorySnapshots | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._skew_ns = skew_ns
        self._on_end = on_end
        self._running = asyncio.Event()
        self._running.set()
        self._scope = anyio.CancelScope()
        self._crash_in = -1
        self._asked: dict[asyncio.Task[None], None] = {}
        self._tails: list[_Tail] = []
        self._beats: list[Callable[[Beat], None]] = []
        self._asks: list[Callable[[str], None]] = []
        self._lost: list[Callable[[], None]] = []
        self._back: list[Callable[[], None]] = []
        self.name, self.link, self.lease_link = name, link, lease_link
        self.alive = True
        self.engine = Engine(
            _Log(self, server),
            _Bus(self, server),
            instance=name,
            solver=solver(self),
            version="sim",
            clock=self,
            snapshots=SimulatedKeeper(server.stream, kept) if kept is not None else None,
            strict=True,
        )
        server.listeners.append(self)
        self.task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        why, violations = "killed", ()
        try:
            with self._scope:
                await self.engine.run()
        except Exception as error:
            first = _first(error)
            why = _reason(first)
            violations = getattr(first, "violations", ())
        self._bury()
        self._on_end(self, why, violations)

    def _bury(self) -> None:
        self.alive = False
        self.link.cut()
        for task in self._asked:
            task.cancel()
        if self in self._server.listeners:
            self._server.listeners.remove(self)

    # --- Faults -------------------------------------------------------------------------------

    def crash(self) -> None:
        """SIGKILL."""
        self._bury()
        self._running.clear()
        self._scope.cancel()

    def crash_after(self, effects: int) -> None:
        """SIGKILL when it has gone through the doors of its ports so many times more."""
        self._crash_in = effects

    def obey(self, ask: Callable[[Engine], Coroutine[None, None, object]]) -> None:
        """An operator asks it for something; whether that comes to anything shows in the log."""

        async def asked() -> None:
            with contextlib.suppress(ValueError, NotLeading):
                await ask(self.engine)

        task = self._loop.create_task(asked())
        self._asked[task] = None
        task.add_done_callback(self._asked.pop)

    def stop(self) -> None:
        """SIGSTOP."""
        self._running.clear()

    def go_on(self) -> None:
        """SIGCONT."""
        self._running.set()

    def cut(self) -> None:
        """No connection to the log."""
        self.link.cut()
        if self.lease_link is not None:
            self.lease_link.cut()
        for lost in self._lost:
            lost()

    def mend(self) -> None:
        if not self.alive or self.link.up:
            return
        self.link.mend()
        if self.lease_link is not None:
            self.lease_link.mend()
        for tail in self._tails:
            tail.reread()
        for back in self._back:
            back()

    @property
    def unhurt(self) -> bool:
        """Neither stopped nor about to crash: its doors are open."""
        return self._crash_in < 0 and self._running.is_set()

    async def door(self) -> None:
        """Everything that goes in or out passes here: it may be the last thing it does."""
        if self._crash_in >= 0:
            self._crash_in -= 1
            if self._crash_in < 0:
                self.crash()
        await self.running()

    async def running(self) -> None:
        """Wait while it is stopped."""
        await self._running.wait()

    # --- Clock --------------------------------------------------------------------------------

    def wall_ns(self) -> int:
        return self._server.clock_ns() + self._skew_ns

    def monotonic_ns(self) -> int:
        return 1000 * round(self._loop.time() * 1e6)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self._running.is_set():
            await self._running.wait()

    # --- What arrives -------------------------------------------------------------------------

    def stored(self, seq: int) -> None:
        for tail in self._tails:
            tail.stored(seq)

    def beat(self, beat: Beat) -> None:
        if self._running.is_set():
            for handler in self._beats:
                handler(beat)

    def ask(self, name: str) -> None:
        if self._running.is_set():
            for handler in self._asks:
                handler(name)


def _first(error: BaseException) -> BaseException:
    """What ended it, of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    if isinstance(error, LogUnreachable):
        return "no log"
    return f"bug: {type(error).__name__}: {error}"


class _Log:
    """EventLog of one instance."""

    def __init__(self, owner: Instance, server: Server) -> None:
        self._owner, self._server = owner, server

    @property
    def cluster(self) -> str:
        return self._server.cluster

    async def append(
        self, subject: str, data: bytes, event_id: str, *, fence: int | None
    ) -> Outcome:
        loop = asyncio.get_running_loop()
        give_up, pause_s = loop.time() + _LIMIT_S, _FIRST_PAUSE_S
        while True:
            await self._owner.door()
            try:
                outcome = await self._owner.link.request(
                    lambda: self._server.store(subject, data, event_id, fence), _ATTEMPT_S
                )
                await self._owner.door()
                return outcome
            except TimeoutError:
                if loop.time() + pause_s > give_up:
                    return Unknown(reason="no answer")
            await self._owner.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def resolve(self, event_id: str, subject: str, *, after: int) -> Outcome:
        assert subjects.tree_of(subject) == "control"
        return await self._ask(lambda: self._server.stream.first_decision(event_id, after))

    def read(self, from_seq: int) -> "_Tail":
        tail = _Tail(self._owner, self._server, from_seq)
        self._owner._tails.append(tail)
        return tail

    async def get(self, seq: int) -> Recorded | None:
        entries = self._server.stream.entries
        return await self._ask(lambda: entries[seq - 1] if 0 < seq <= len(entries) else None)

    async def last_seq(self) -> Sequence:
        return await self._ask(lambda: Sequence(len(self._server.stream.entries)))

    async def last_control_seq(self) -> Sequence:
        return await self._ask(lambda: Sequence(self._server.stream.last_control_seq))

    async def first_missing(self, upto: int) -> Sequence:
        return Sequence(0)

    async def birth(self) -> str:
        return await self._ask(lambda: self._server.stream.birth)

    def lease(self) -> "_Lease":
        return _Lease(self._owner, self._server)

    async def close(self) -> None:
        """The connection is the instance's."""

    async def _ask(self, work: Callable[[], T]) -> T:
        await self._owner.door()
        try:
            return await self._owner.link.request(work, _ATTEMPT_S)
        except TimeoutError:
            raise LogUnreachable("no answer from the log", fix="wait") from None


class _Lease:
    """Lease of one instance. With a link of its own it may be late or lost like everything else;
    without one it costs no time, so that an instance alone runs as if there were no lease."""

    def __init__(self, owner: Instance, server: Server) -> None:
        self._owner, self._stream = owner, server.stream

    @property
    def limit_ms(self) -> int:
        return self._stream.lease_ms

    async def look(self) -> Hold:
        return await self._ask(lambda: self._stream.hold)

    async def put(self, holder: str, after: Hold) -> Hold | None:
        return await self._ask(lambda: self._stream.put_lease(holder, after))

    async def _ask(self, work: Callable[[], T]) -> T:
        owner = self._owner
        if not owner.link.up:
            raise LogUnreachable("no answer from the log", fix="wait")
        if owner.lease_link is None:
            await owner.running()
            return work()
        await owner.door()
        try:
            answer = await owner.lease_link.request(work, self.limit_ms / 2000)
        except TimeoutError:
            raise LogUnreachable("no answer from the log", fix="wait") from None
        await owner.door()
        return answer


class _Tail:
    """Entries in strict order. Their delivery may be late, doubled or lost; a heartbeat of the
    server shows what is missing, and it is fetched again."""

    def __init__(self, owner: Instance, server: Server, from_seq: int) -> None:
        self._owner, self._server = owner, server
        self._next = from_seq
        self._known = 0
        self._wake = asyncio.Event()
        self.reread()

    def __aiter__(self) -> Self:
        return self

    def stored(self, seq: int) -> None:
        if seq > self._known:
            self._known = seq
            self._wake.set()

    def reread(self) -> None:
        """Open anew at the next entry wanted."""
        link, stream = self._owner.link, self._server.stream

        def opened() -> None:
            last = len(stream.entries)
            link.back(lambda: self.stored(last))

        link.there(opened)

    async def __anext__(self) -> Recorded:
        while self._next > self._known:
            self._wake.clear()
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._wake.wait()
            except TimeoutError:
                self.reread()
        if not self._owner.unhurt:
            await self._owner.door()
        self._next += 1
        return self._server.stream.entries[self._next - 2]

    async def aclose(self) -> None:
        self._owner._tails.remove(self)


class _Bus:
    """Bus of one instance."""

    def __init__(self, owner: Instance, server: Server) -> None:
        self._owner, self._server = owner, server

    async def on_beats(self, handler: Callable[[Beat], None]) -> None:
        self._owner._beats.append(handler)

    async def on_asks(self, handler: Callable[[str], None]) -> None:
        self._owner._asks.append(handler)

    def on_connection(self, lost: Callable[[], None], back: Callable[[], None]) -> None:
        self._owner._lost.append(lost)
        self._owner._back.append(back)

    async def resend(self, decision: Recorded) -> bool:
        await self._owner.door()
        self._owner.link.there(lambda: self._server.republish(decision), loss=ALL)
        return self._owner.link.up
