"""What a control plane tells OpenTelemetry while it follows the log.

Whoever leads exports the trace of an incident when it is resolved. Whoever comes to lead also
exports those that were resolved within a minute before: the one before it may have died with them
in its queue. Ids follow from the log, so a trace that arrives twice is the same one.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial

import anyio
import anyio.to_thread

from unicron.controlplane.core.state import ClusterState, IncidentState
from unicron.controlplane.replay import measures
from unicron.controlplane.replay import span_names as names
from unicron.controlplane.replay.casefile import CaseFile, case_of
from unicron.controlplane.replay.spans import Span, spans_of
from unicron.controlplane.replay.window import LogPart, LogWindow
from unicron.controlplane.runtime import looplag
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.ports import EventLog
from unicron.controlplane.runtime.telemetry import Telemetry, wanted
from unicron.events import IncidentId, IncidentResolved, LogUnreachable, PlanSolved, Recorded

log = logging.getLogger(__name__)

#: Entries of the log that are kept for traces; an incident that began before is left out.
_KEEP = 20_000
#: How long before its leadership a leader takes care of incidents, in stream time.
_BEFORE_NS = 60_000_000_000
_LOG_LOOK_S = 5.0


class Observer:
    """Give `see` to the engine as `on_event`, and `run` beside it; `aclose` at the end."""

    def __init__(self, telemetry: Telemetry, *, cluster: str, birth: str) -> None:
        self._telemetry = telemetry
        self._cluster, self._birth = cluster, birth
        self._state = ClusterState()
        self._window = LogWindow(_KEEP)
        #: Resolved, with the time, until this instance leads.
        self._resolved: deque[tuple[int, IncidentId]] = deque(maxlen=1000)
        self._engine: Engine | None = None
        self._leading = False
        self._log_lag = 0

    @classmethod
    def configured(
        cls, *, cluster: str, birth: str, instance: str, version: str
    ) -> "Observer | None":
        """By the OTEL_ variables of this process; None if they name no endpoint."""
        if not any(wanted(os.environ, signal) for signal in ("TRACES", "METRICS")):
            return None
        telemetry = Telemetry(cluster=cluster, instance=instance, version=version)
        return cls(telemetry, cluster=cluster, birth=birth)

    # --- What the engine folds -------------------------------------------------------------------

    def see(self, state: ClusterState, recorded: Recorded) -> None:
        """The entry made the state what it is. Takes microseconds."""
        follows = recorded.seq == self._state.seq + 1  # else what stands before is in a snapshot
        before, self._state = self._state if follows else state, state
        self._notice()
        self._window.add(
            recorded,
            void=state.void > before.void,
            twice=state.duplicates > before.duplicates,
        )
        match recorded.envelope.body if recorded.envelope else None:
            case IncidentResolved(incident=incident) if _is_over(before, state, incident):
                if self._leading:
                    self._tell(incident)
                else:
                    self._resolved.append((recorded.at_ns, incident))
            case PlanSolved(took_ms=int(ms), source=source) if self._leading:
                self._telemetry.took(names.SOLVER_TIME, ms / 1000, {names.PLAN_SOURCE: source})
            case _:
                pass

    def _lead(self) -> None:
        """From here on this instance tells; it begins with what was resolved just before."""
        self._leading = True
        since = self._led_since() - _BEFORE_NS
        for at_ns, incident in self._resolved:
            if at_ns >= since:
                self._tell(incident)
        self._resolved.clear()

    def _led_since(self) -> int:
        part, _, _ = self._window.part()
        term = self._state.term
        return part[term - 1].at_ns if term >= part.first else 0

    def _tell(self, incident: IncidentId) -> None:
        known = self._state.incidents[incident]
        part, void, twice = self._window.part()
        if min(known.evidence) < part.first:
            log.warning(
                "no trace of %s: it began before #%d, the oldest event that is kept; "
                "unicron audit %s --trace writes it",
                known.incident,
                part.first,
                known.incident,
            )
            return
        self._telemetry.trace(partial(self._trace, known, part, void, twice))

    def _trace(
        self,
        incident: IncidentState,
        part: LogPart,
        void: frozenset[int],
        twice: frozenset[int],
    ) -> tuple[Span, ...]:
        """Not in the event loop."""
        named = [r for r in part if r.envelope and r.envelope.incident == incident.incident]
        case = case_of(part, incident, named, void=void, twice=twice)  # type: ignore[arg-type]
        self._measure(case)
        return spans_of(case, cluster=self._cluster, birth=self._birth)

    def _measure(self, case: CaseFile) -> None:
        told = measures.measures_of(case)
        about: dict[str, str | int | bool] = {
            names.SEVERITY: told.severity,
            names.CAUSE_TYPE: told.cause,
        }
        telemetry = self._telemetry
        telemetry.add(names.DOWNTIME, told.down_ns / 1e9, about)
        telemetry.took(names.DETECT_TIME, told.detect_ns / 1e9, about)
        for took_ns, what in told.plans:
            telemetry.took(names.PLAN_TIME, took_ns / 1e9, {names.RESULT: what})
        for took_ns, planned in told.transitions:
            telemetry.took(names.TRANSITION_TIME, took_ns / 1e9, {names.PLANNED: planned})

    # --- Beside the engine -----------------------------------------------------------------------

    async def run(self, engine: Engine, event_log: EventLog) -> None:
        """Look at the engine until cancelled."""
        self._engine = engine
        self._gauges(engine)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(looplag.watch, self._looked)
                group.start_soon(self._look_at_log, engine, event_log)
        finally:
            self._notice()

    def _notice(self) -> None:
        """Does this instance lead by now?"""
        if self._engine is None or self._engine.leading == self._leading:
            return
        if self._engine.leading:
            self._lead()
        else:
            self._leading = False

    def _looked(self, lag_s: float) -> None:
        """The event loop came so late. Does this instance lead?"""
        self._telemetry.took(names.LOOP_LAG, lag_s, {})
        self._notice()

    async def _look_at_log(self, engine: Engine, event_log: EventLog) -> None:
        """How many entries stand in the log that weren't folded yet."""
        while True:
            try:
                last = await event_log.last_seq()
                self._log_lag = max(0, last - engine.state.seq)
            except LogUnreachable:
                pass  # nobody knows; the last known number stands
            await anyio.sleep(_LOG_LOOK_S)

    def _gauges(self, engine: Engine) -> None:
        def spools() -> list[int]:
            return [beat.spool for beat in list(engine.monitor.beats.values())]

        gauges: dict[str, tuple[str, Callable[[], int]]] = {
            names.WAF_NOW: ("GFLOP/s", lambda: measures.waf_now(engine.state)),
            names.WAF_BEST: ("GFLOP/s", lambda: measures.waf_best(engine.state)),
            names.LEADING: ("1", lambda: int(engine.leading)),
            names.LOG_LAG: ("{event}", lambda: self._log_lag),
            names.SPOOL_DEPTH: ("{fact}", lambda: sum(spools())),
            names.SPOOL_DEEPEST: ("{fact}", lambda: max(spools(), default=0)),
        }
        for name, (unit, read) in gauges.items():
            self._telemetry.gauge(name, unit, read)

    async def aclose(self) -> None:
        """Export what waits, within the limit."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._telemetry.close)


def _is_over(before: ClusterState, after: ClusterState, incident: IncidentId) -> bool:
    was, now = before.incidents.get(incident), after.incidents.get(incident)
    return was is not None and now is not None and not was.resolved and bool(now.resolved)
