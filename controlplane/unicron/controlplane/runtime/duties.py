"""What the leader does: decide, turn silence and expired limits into events, say orders again, have
plans made. All of it ends with the leadership."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from unicron.controlplane.core.configuration import digest_of
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.problem import allocations_of
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.runtime.clock import now_ms
from unicron.controlplane.runtime.following import Follower
from unicron.controlplane.runtime.monitor import Monitor
from unicron.controlplane.runtime.ports import Bus, Clock, EventLog, Solver, SolverFailed
from unicron.controlplane.runtime.progress import ProgressWatch
from unicron.controlplane.runtime.timers import Timers
from unicron.controlplane.runtime.writer import NotLeading, Writer
from unicron.events import (
    ClusterConfigured,
    DeadlinePassed,
    LogUnreachable,
    Planning,
    PlanSolved,
    Recorded,
    Sequence,
    UnicronError,
)
from unicron.planner.problem import PlanProblem

log = logging.getLogger(__name__)

_TICK_S = 0.05
#: Who comes to its next look so late was stopped or blocked.
STOPPED_MS = 1000
#: Decisions in a row that left everything as it was: a bug of ours, not to be repeated for ever.
_VOID_MAX = 20
#: Who begins from a snapshot may not know the state that an open request is about.
_UNKNOWN = "this instance began after the request, and doesn't know the state that it is about"


class EngineStuck(UnicronError):
    """The same decision was void again and again."""

    default_code = "E-ENGINE-STUCK"


class Duties:
    """Of one leadership, in the writer's term. `run` until it ends."""

    def __init__(
        self,
        who: str,
        follower: Follower,
        writer: Writer,
        event_log: EventLog,
        bus: Bus,
        solver: Solver,
        monitor: Monitor,
        progress: ProgressWatch,
        clock: Clock,
        planning: Planning | None = None,
    ) -> None:
        self._who = who
        self._follower = follower
        self._writer = writer
        self._log = event_log
        self._bus = bus
        self._solver = solver
        self._monitor = monitor
        self._progress = progress
        self._clock = clock
        self._planning = planning
        self.timers = Timers()

    async def run(self, refused: Callable[[], None]) -> None:
        """Until cancelled. `refused` is called when the fence shows that another instance writes.

        Raises:
            EngineStuck, InvariantViolated: a bug of ours.
            LogError: the log takes something for other reasons.
        """
        await _until_refused(self._configure, refused)
        async with anyio.create_task_group() as group:
            for duty in (self._decide, self._watch, self._resend, self._plan):
                group.start_soon(_until_refused, duty, refused)

    @property
    def _state(self) -> ClusterState:
        return self._follower.state

    async def _configure(self) -> None:
        """What this instance was given is in force before anything is planned."""
        planning = self._planning
        if planning is not None and planning != self._state.planning:
            await self._writer.write(configured(planning, self._who))

    async def _decide(self) -> None:
        void = 0
        while True:
            moved = self._follower.moved
            at = self._state
            verdict = decide(at)
            if verdict is None:
                self._follower.watchman.rests(at)
                await moved.wait()
                continue
            self._follower.watchman.decides(at, verdict)
            was_void = self._state.void
            await self._write(verdict, at)
            void = void + 1 if self._state.void > was_void else 0
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
            decided=self._follower.basis,
            still=lambda: self._state is at or decide(self._state) == verdict,
        )

    # --- Limits and beats -----------------------------------------------------------------------

    async def _watch(self) -> None:
        """Turn silence and expired limits into events."""
        last = now_ms(self._clock)
        while True:
            await self._clock.sleep(_TICK_S)
            now = now_ms(self._clock)
            if now - last > STOPPED_MS:  # blame nobody for it
                self._monitor.grace(now)
                self._progress.restart()
            last = now
            if (alarm := self._follower.unread.due()) is not None:
                await self._writer.write(alarm)
            for opinion in self._monitor.opinions(self._state, now):
                await self._writer.write(opinion)
            for seen in self._progress.opinions(self._state, now):
                await self._writer.write(seen)
            self.timers.update(self._follower.waits(), now)
            for key, limit in self.timers.due(now):
                await self._writer.write(
                    DeadlinePassed(key=key, limit_ms=limit),
                    still=lambda key=key: key in self._follower.waits(),  # type: ignore[misc]
                )

    # --- Orders ---------------------------------------------------------------------------------

    async def _resend(self) -> None:
        """Say again what may not have been heard."""
        resender = self._follower.resender
        while True:
            await self._clock.sleep(_TICK_S)
            for seq in resender.due(self._state, now_ms(self._clock)):
                recorded = resender.recent(seq) or await self._from_log(seq)
                if recorded is not None:
                    await self._bus.resend(recorded)

    async def _from_log(self, seq: Sequence) -> Recorded | None:
        try:
            return await self._log.get(seq)
        except LogUnreachable:
            return None  # nobody could hear it either; a second later again

    # --- Plans ----------------------------------------------------------------------------------

    async def _plan(self) -> None:
        """Have the solver answer each request, once."""
        await self._solver.warm()
        while True:
            moved = self._follower.moved
            problems = self._follower.problems
            request = self._state.plan.request
            if not request or self._state.plan.answer:
                await moved.wait()
                continue
            problem = problems.get(request)
            if problem is None:
                answer = _unanswered(request, _UNKNOWN, None)
            else:
                answer = await self._solve(request, problem)
            await self._writer.write(
                answer,
                cause=(request,),
                still=lambda: self._state.plan.request == request,  # noqa: B023
            )
            problems.pop(request, None)
            await self._solver.warm()

    async def _solve(self, request: Sequence, problem: PlanProblem) -> PlanSolved:
        start = self._clock.monotonic_ns()
        try:
            plan, explanation = await self._solver.solve(problem)
        except SolverFailed as error:
            log.warning("no plan for #%d: %s", request, error)
            return _unanswered(request, str(error), self._since_ms(start))
        return PlanSolved(
            request=request,
            problem_digest=plan.problem_digest,
            source=plan.source,
            value=plan.value_gflops_milli,
            waf_milli=plan.waf_milli,
            allocations=allocations_of(plan),
            statistics=plan.statistics,
            explanation=explanation,
            took_ms=self._since_ms(start),
        )

    def _since_ms(self, start_ns: int) -> int:
        return (self._clock.monotonic_ns() - start_ns) // 1_000_000


def _unanswered(request: Sequence, why: str, took_ms: int | None) -> PlanSolved:
    """There is no plan: it is asked for once more, or left at the local answer."""
    return PlanSolved(
        request=request,
        problem_digest="",
        source="",
        value=0,
        waf_milli=0,
        allocations=(),
        error=why,
        took_ms=took_ms,
    )


def configured(planning: Planning, by: str) -> ClusterConfigured:
    """The event that says so. It must make sense: see core.configuration."""
    return ClusterConfigured(planning=planning, by=by, digest=digest_of(planning))


async def _until_refused(duty: Callable[[], Awaitable[None]], refused: Callable[[], None]) -> None:
    try:
        await duty()
    except NotLeading:
        refused()
