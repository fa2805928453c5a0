"""The engine: fold everything in stream order, decide when leading, carry out what follows.

The contract of design §5 is executed here and nowhere else: every instance folds strictly in
stream order; decisions are appended under the fence, one at a time, and take effect only once
they were read back; limits, beats and the solver enter as events.
"""

import logging
from collections.abc import Callable

import anyio

from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.fold import digest, fold
from unicron.controlplane.core.fold_node import may_return
from unicron.controlplane.core.problem import allocations_of, problem_of
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.core.verdict import LOGIC_VERSION, Verdict
from unicron.controlplane.runtime.clock import SystemClock
from unicron.controlplane.runtime.monitor import Monitor
from unicron.controlplane.runtime.ports import Bus, Clock, EventLog, Solver, SolverFailed
from unicron.controlplane.runtime.progress import ProgressWatch
from unicron.controlplane.runtime.resend import Resender
from unicron.controlplane.runtime.timers import Timers
from unicron.controlplane.runtime.unread import Unread
from unicron.controlplane.runtime.watchman import Watchman
from unicron.controlplane.runtime.writer import Writer
from unicron.events import (
    EMPTY_CHAIN,
    Basis,
    Beat,
    DeadlinePassed,
    LeadershipTaken,
    LogUnreachable,
    NodeId,
    NodeReturned,
    PlanRequested,
    PlanSolved,
    Recorded,
    Sequence,
    TaskSpec,
    TaskSubmitted,
    Term,
    UnicronError,
    extend_chain,
)
from unicron.planner.explain import explain
from unicron.planner.problem import PlanProblem
from unicron.planner.problem import digest as problem_digest

log = logging.getLogger(__name__)

_TICK_S = 0.05
_RETRY_S = 1.0
#: Decisions in a row that left everything as it was: a bug of ours, not to be repeated for ever.
_VOID_MAX = 20


class EngineStuck(UnicronError):
    """The same decision was void again and again."""

    default_code = "E-ENGINE-STUCK"


class Engine:
    """One control-plane instance on one log. `run` until cancelled."""

    def __init__(
        self,
        event_log: EventLog,
        bus: Bus,
        *,
        instance: str,
        solver: Solver,
        version: str = "",
        on_event: Callable[[ClusterState, Recorded], None] | None = None,
        clock: Clock | None = None,
        strict: bool = False,
    ) -> None:
        """`strict`: what merely waits without a limit stops it too (simulator, tests)."""
        self.state = ClusterState()
        self.monitor = Monitor()
        self.progress = ProgressWatch()
        self._log = event_log
        self._bus = bus
        self._instance = instance
        self._solver = solver
        self._version = version
        self._on_event = on_event
        self._clock = clock or SystemClock()
        self._watchman = Watchman(strict=strict)
        self._unread = Unread()
        self._chain = EMPTY_CHAIN
        self._control_seq = 0
        #: The last entry that stood in the log when this instance began.
        self._history = Sequence(0)
        self._timers = Timers()
        self._waited = (self.state, deadlines(self.state))
        self._moved = anyio.Event()
        self._resender = Resender()
        self._problems: dict[Sequence, PlanProblem] = {}
        self._writer = Writer(
            event_log,
            instance,
            lambda: self._control_seq,
            lambda: self.state.term,
            self._folded,
            self._clock,
        )
        self.leading = False

    # --- folding --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the log and lead the cluster. Returns only by being cancelled or by raising.

        Raises:
            LogError: the log is broken or another one. Nothing was folded past that point.
            Deposed: another instance leads.
            InvariantViolated: a bug of ours showed in the state; nothing was decided on it.
            NewerLog: a newer version led before; this one must not.
        """
        await self._bus.on_beats(self._on_beat)
        await self._bus.on_asks(self._resender.asked)
        self._bus.on_connection(self._on_lost, self._on_back)
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            self._history = await self._end_of_log()
            await self._folded(self._history)
            self._watchman.on_duty = True
            self._unread.check()
            await self._lead()
            group.start_soon(self._decide)
            group.start_soon(self._watch)
            group.start_soon(self._resend)
            group.start_soon(self._plan)

    async def _end_of_log(self) -> Sequence:
        """The last entry there is. Who begins while the log is away waits for it."""
        while True:
            try:
                return await self._log.last_seq()
            except LogUnreachable as error:
                log.warning("waiting for the log: %s", error)
                await self._clock.sleep(_RETRY_S)

    async def _follow(self) -> None:
        tail = self._log.read(1)
        try:
            async for recorded in tail:
                self._take(recorded)
        finally:
            with anyio.CancelScope(shield=True):
                await tail.aclose()

    def _take(self, recorded: Recorded) -> None:
        before = self.state
        self.state = fold(before, recorded)
        self._watchman.folded(before, self.state, recorded)
        self._unread.taken(recorded)
        self._chain = extend_chain(self._chain, recorded.seq, recorded.subject, recorded.data)
        if ".control." in recorded.subject:
            self._control_seq = recorded.seq
            self._resender.taken(recorded, self.state)
        envelope = recorded.envelope
        if envelope is not None and isinstance(envelope.body, PlanRequested):
            self._problems = {recorded.seq: problem_of(self.state)}
        if self._on_event is not None:
            self._on_event(self.state, recorded)
        if recorded.seq >= self._history:  # nobody waits for a part of it
            self._notify()

    def _notify(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def moved(self) -> None:
        """Wait for the next event to be folded, or for leadership."""
        await self._moved.wait()

    async def _folded(self, seq: Sequence) -> None:
        while self.state.seq < seq:
            await self._moved.wait()

    # --- leading --------------------------------------------------------------------------------

    async def _lead(self) -> None:
        body = LeadershipTaken(
            cluster=self._log.cluster,
            instance=self._instance,
            logic_version=LOGIC_VERSION,
            fold_version=FOLD_VERSION,
            version=self._version,
        )
        seq = await self._writer.write(body)
        assert seq is not None
        self._writer.term = Term(seq)
        self.monitor.grace(self._now_ms())
        self._timers.restart()
        self.leading = True
        self._notify()
        log.info("leading cluster %s since #%d", self._log.cluster, seq)

    def _basis(self) -> Basis:
        return Basis(
            decided_at=self.state.seq,
            chain=self._chain.hex(),
            state_digest=digest(self.state),
            logic_version=LOGIC_VERSION,
        )

    async def _decide(self) -> None:
        void = 0
        while True:
            moved = self._moved
            at = self.state
            verdict = decide(at)
            if verdict is None:
                self._watchman.rests(at)
                await moved.wait()
                continue
            self._watchman.decides(at, verdict)
            was_void = self.state.void
            await self._write(verdict, at)
            void = void + 1 if self.state.void > was_void else 0
            if void > _VOID_MAX:
                raise EngineStuck(
                    f"{type(verdict.body).__name__} was void {void} times in a row",
                    why="the decision doesn't apply to the state it was made on",
                    fix="report it with the log: this is a bug",
                )

    async def _write(self, verdict: Verdict, at: ClusterState) -> None:
        # Between deciding and holding the pen an input may have been written: decide again then.
        await self._writer.write(
            verdict.body,
            cause=verdict.cause,
            incident=verdict.incident,
            decided=self._basis,
            still=lambda: self.state is at or decide(self.state) == verdict,
        )

    async def submit(self, spec: TaskSpec, by: str) -> Sequence:
        """Hand in a task; its sequence once it is durable. ValueError if its name is taken."""
        seq = await self._writer.write(
            TaskSubmitted(spec=spec, by=by), still=lambda: spec.task not in self.state.tasks
        )
        if seq is None:
            raise ValueError(f"a task named {spec.task} is in the log already: choose another name")
        return seq

    async def give_back(self, node: NodeId, by: str, reason: str) -> Sequence:
        """An operator returns an isolated node; its sequence. ValueError if there is nothing that
        keeps it or one of its devices apart."""
        seq = await self._writer.write(
            NodeReturned(node=node, by=by, reason=reason), still=lambda: self._is_apart(node)
        )
        if seq is None:
            raise ValueError(f"nothing keeps {node} apart: there is nothing to give back")
        return seq

    def _is_apart(self, node: NodeId) -> bool:
        known = self.state.nodes.get(node)
        return known is not None and may_return(known)

    # --- limits, beats, orders, plans -----------------------------------------------------------

    async def _watch(self) -> None:
        """Turn silence and expired limits into events."""
        last = self._now_ms()
        while True:
            await self._clock.sleep(_TICK_S)
            now = self._now_ms()
            if now - last > 1000:  # we were stopped or blocked ourselves: blame nobody for it
                self.monitor.grace(now)
                self.progress.restart()
            last = now
            if (alarm := self._unread.due()) is not None:
                await self._writer.write(alarm)
            for opinion in self.monitor.opinions(self.state, now):
                await self._writer.write(opinion)
            for seen in self.progress.opinions(self.state, now):
                await self._writer.write(seen)
            self._timers.update(self._waits(), now)
            for key, limit in self._timers.due(now):
                await self._writer.write(
                    DeadlinePassed(key=key, limit_ms=limit),
                    still=lambda key=key: key in self._waits(),  # type: ignore[misc]
                )

    def _waits(self) -> dict[str, int]:
        """The limits of the newest state, worked out once for each."""
        if self._waited[0] is not self.state:
            self._waited = (self.state, deadlines(self.state))
        return self._waited[1]

    def _on_beat(self, beat: Beat) -> None:
        self.monitor.heard(beat, self._now_ms())
        self.progress.heard(beat, self._now_ms())
        self._resender.heard(beat, self.state, self._now_ms())

    def _on_lost(self) -> None:
        self.monitor.grace(self._now_ms())

    def _on_back(self) -> None:
        self.monitor.grace(self._now_ms())
        self.progress.restart()
        self._timers.restart()

    async def _resend(self) -> None:
        """Say again what may not have been heard."""
        while True:
            await self._clock.sleep(_TICK_S)
            for seq in self._resender.due(self.state, self._now_ms()):
                recorded = self._resender.recent(seq) or await self._from_log(seq)
                if recorded is not None:
                    await self._bus.resend(recorded)

    async def _from_log(self, seq: Sequence) -> Recorded | None:
        try:
            return await self._log.get(seq)
        except LogUnreachable:
            return None  # nobody could hear it either; a second later again

    async def _plan(self) -> None:
        """Have the solver answer each request, once."""
        await self._solver.warm()
        while True:
            moved = self._moved
            request = self.state.plan.request
            if not request or self.state.plan.answer or request not in self._problems:
                await moved.wait()
                continue
            problem = self._problems.pop(request)
            answer = await self._solve(request, problem)
            await self._writer.write(
                answer,
                cause=(request,),
                still=lambda: self.state.plan.request == request,  # noqa: B023
            )
            await self._solver.warm()

    async def _solve(self, request: Sequence, problem: PlanProblem) -> PlanSolved:
        start = self._clock.monotonic_ns()
        digested = problem_digest(problem)
        try:
            plan = await self._solver.solve(problem)
        except SolverFailed as error:
            log.warning("no plan for #%d: %s", request, error)
            return PlanSolved(
                request=request,
                problem_digest=digested,
                source="cpsat",
                value=0,
                waf_milli=0,
                allocations=(),
                error=str(error),
                took_ms=self._since_ms(start),
            )
        return PlanSolved(
            request=request,
            problem_digest=digested,
            source=plan.source,
            value=plan.value_gflops_milli,
            waf_milli=plan.waf_milli,
            allocations=allocations_of(plan),
            statistics=plan.statistics,
            explanation=explain(problem, plan),
            took_ms=self._since_ms(start),
        )

    def _since_ms(self, start_ns: int) -> int:
        return (self._clock.monotonic_ns() - start_ns) // 1_000_000

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000
