"""The engine: fold everything in stream order, decide when leading, carry out what follows.

The contract of one control-plane instance: it folds strictly in stream order, whether it leads or
not; decisions are appended under the fence, one at a time, and take effect only once they were
read back; limits, beats and the solver enter as events. Who leads is between `election` (the lease)
and the log (`LeadershipTaken`); what the leader does is in `duties`.
"""

import logging
from collections.abc import Callable

import anyio

from unicron.controlplane.core.configuration import fault_of
from unicron.controlplane.core.fold_node import may_return
from unicron.controlplane.core.snapshot import Snapshot
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.runtime.clock import SystemClock, now_ms
from unicron.controlplane.runtime.duties import STOPPED_MS, Duties, configured
from unicron.controlplane.runtime.election import Election
from unicron.controlplane.runtime.following import Follower
from unicron.controlplane.runtime.handed import as_read
from unicron.controlplane.runtime.leadership import Role
from unicron.controlplane.runtime.monitor import Monitor
from unicron.controlplane.runtime.ports import Bus, Clock, EventLog, Solver
from unicron.controlplane.runtime.progress import ProgressWatch
from unicron.controlplane.runtime.snapshots import SnapshotKeeper
from unicron.controlplane.runtime.watchman import Watchman
from unicron.controlplane.runtime.writer import NotLeading, Refused, Writer
from unicron.events import (
    AnyDecision,
    Beat,
    ClusterConfigured,
    Incarnation,
    LeadershipTaken,
    LogUnreachable,
    NodeId,
    NodeReturned,
    Planning,
    Recorded,
    Sequence,
    TaskSpec,
    TaskSubmitted,
    Term,
)

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_TAKE_AGAIN_S = 0.05
_LOOK_S = 0.25


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
        planning: Planning | None = None,
        snapshots: SnapshotKeeper | None = None,
        strict: bool = False,
    ) -> None:
        """`planning`: in force as soon as this instance leads; None leaves what the log says.
        `snapshots`: where it begins and leaves off; without, every event of the log is folded.
        `strict`: what merely waits without a limit stops it too, and whoever follows looks at
        every event as well (simulator, tests)."""
        self.monitor = Monitor()
        self.progress = ProgressWatch()
        self._log = event_log
        self._bus = bus
        self._instance = instance
        self._solver = solver
        self._version = version
        self._on_event = on_event
        self._clock = clock or SystemClock()
        self._planning = planning
        self._snapshots = snapshots
        self._caught_up = False
        self._strict = strict
        self._follower = Follower(event_log, Watchman(strict=strict), self._folded)
        self._life = Incarnation(self._clock.wall_ns())
        self._election = Election(event_log.lease(), instance, self._life, self._clock)
        self._pens = 0
        self._writer: Writer | None = None
        self._duties: Duties | None = None

    @property
    def state(self) -> ClusterState:
        """What the log says, up to the last event folded."""
        return self._follower.state

    @property
    def role(self) -> Role:
        """What this instance does."""
        return self._election.role

    @property
    def leading(self) -> bool:
        """It decides."""
        return self._election.role is Role.LEADER

    @property
    def follows(self) -> bool:
        """It has folded what there was when it began, and another instance is to lead."""
        return self._election.waits

    # --- Following --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the log, and lead the cluster whenever it is this instance's turn. Returns only by
        being cancelled or by raising.

        Raises:
            LogError: the log is broken, another one, or lacks what a snapshot was made of. Nothing
                was folded past that point.
            InvariantViolated: a bug of ours showed in the state; nothing was decided on it.
            NewerLog: a newer version led before; this one must not.
        """
        await self._bus.on_beats(self._on_beat)
        await self._bus.on_asks(self._on_ask)
        self._bus.on_connection(self._on_lost, self._on_back)
        follower = self._follower
        in_order = False
        try:
            if self._snapshots is not None:
                await self._begin_from(self._snapshots)
            async with anyio.create_task_group() as group:
                group.start_soon(follower.run)
                follower.history = await self._end_of_log()
                await follower.folded(follower.history)
                follower.watchman.on_duty = self._strict
                if self._snapshots is not None:
                    group.start_soon(self._snapshots.run)
                    self._caught_up = True
                    self._snapshot_if_due()
                group.start_soon(self._campaign)
        except anyio.get_cancelled_exc_class():
            in_order = True
            raise
        finally:
            await self._election.give_back()
            if in_order and self._snapshots is not None and self._snapshots.birth:
                await self._snapshots.finish(self._snapshot(self._snapshots.birth))

    async def _begin_from(self, snapshots: SnapshotKeeper) -> None:
        """From the newest good one, if there is any. Who begins while the log is away waits."""
        while True:
            try:
                found = await snapshots.newest(self._log)
            except LogUnreachable as error:
                log.warning("waiting for the log: %s", error)
                await self._clock.sleep(_RETRY_S)
                continue
            if found is not None:
                self._follower.resume(found)
                self._election.folded(self.state.term)
            return

    def _snapshot(self, birth: str) -> Snapshot:
        return self._follower.snapshot(birth=birth, version=self._version)

    def _snapshot_if_due(self) -> None:
        """Not while history is folded: that would write one after the other."""
        keeper = self._snapshots
        if keeper is not None and self._caught_up and keeper.due(self.state.seq):
            keeper.take(self._snapshot(keeper.birth))

    async def _end_of_log(self) -> Sequence:
        """The last entry there is. Who begins while the log is away waits for it."""
        while True:
            try:
                return await self._log.last_seq()
            except LogUnreachable as error:
                log.warning("waiting for the log: %s", error)
                await self._clock.sleep(_RETRY_S)

    def _folded(self, state: ClusterState, recorded: Recorded) -> None:
        self._election.folded(state.term)
        if self._on_event is not None:
            self._on_event(state, recorded)
        if self._snapshots is not None:
            self._snapshot_if_due()

    async def moved(self) -> None:
        """Wait for the next event to be folded, or for a change of leadership."""
        await self._follower.moved.wait()

    def _on_beat(self, beat: Beat) -> None:
        self.monitor.heard(beat, now_ms(self._clock))
        self.progress.heard(beat, now_ms(self._clock))
        if self.leading:
            self._follower.resender.heard(beat, self.state, now_ms(self._clock))

    def _on_ask(self, name: str) -> None:
        if self.leading:
            self._follower.resender.asked(name)

    def _on_lost(self) -> None:
        self.monitor.grace(now_ms(self._clock))

    def _on_back(self) -> None:
        self.monitor.grace(now_ms(self._clock))
        self.progress.restart()
        if self._duties is not None:
            self._duties.timers.restart()

    # --- Leading ----------------------------------------------------------------------------------

    async def _campaign(self) -> None:
        """Wait for our turn, lead, step down; again and again."""
        while True:
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(self._keep_warm)
                await self._election.won(self._follower.notify)
                waiting.cancel_scope.cancel()
            self._follower.unread.check()
            async with anyio.create_task_group() as group:
                group.start_soon(self._election.keep, group.cancel_scope.cancel)
                group.start_soon(self._lead)
            self._step_down()

    async def _keep_warm(self) -> None:
        """Whoever follows hears beats, too; but who was stopped has heard nobody meanwhile."""
        last = now_ms(self._clock)
        while True:
            await self._clock.sleep(_LOOK_S)
            now = now_ms(self._clock)
            if now - last > STOPPED_MS:
                self.progress.restart()
            last = now
            self.progress.forget(self.state)

    async def _lead(self) -> None:
        follower = self._follower
        follower.watchman.on_duty = True
        writer = await self._take_leadership()
        self._writer = writer
        self._duties = Duties(
            f"control/{self._instance}",
            follower,
            writer,
            self._log,
            self._bus,
            self._solver,
            self.monitor,
            self.progress,
            self._clock,
            self._planning,
        )
        self.monitor.grace(now_ms(self._clock))
        self.progress.begin()
        self._election.leads(writer.term)
        self._election.folded(self.state.term)  # another one may have come right after
        follower.notify()
        log.info("leading cluster %s since #%d", self._log.cluster, writer.term)
        await self._duties.run(self._election.refused)

    async def _take_leadership(self) -> Writer:
        """Write that we lead, and read it back. Whoever was quicker with something else is folded
        first: the lease is ours meanwhile, or this is cancelled."""
        body = LeadershipTaken(
            cluster=self._log.cluster,
            instance=self._instance,
            logic_version=LOGIC_VERSION,
            fold_version=FOLD_VERSION,
            version=self._version,
        )
        follower = self._follower
        while True:
            writer = self._pen()
            try:
                seq = await writer.write(body)
            except Refused as refused:
                await follower.folded(refused.seq)
                await self._clock.sleep(_TAKE_AGAIN_S)
                continue
            assert seq is not None
            writer.term = Term(seq)
            return writer

    def _pen(self) -> Writer:
        follower = self._follower
        self._pens += 1
        return Writer(
            self._log,
            self._instance,
            Incarnation(self._life if self._pens == 1 else self._clock.wall_ns()),
            lambda: follower.control_seq,
            lambda: follower.state.term,
            follower.folded,
            self._clock,
        )

    def _step_down(self) -> None:
        led, self._duties = self._duties, None
        self._writer = None
        self._follower.watchman.on_duty = self._strict
        if led is not None:
            state = self.state
            log.warning(
                "no longer leading cluster %s: %s leads since #%d, and this instance follows",
                self._log.cluster,
                state.leader,
                state.term,
            )
            self._follower.notify()

    # --- What operators ask -----------------------------------------------------------------------

    async def submit(self, spec: TaskSpec, by: str) -> Sequence:
        """Hand in a task; its sequence once it is durable. ValueError if its name is taken or a
        value has another type, NotLeading if another instance has to be asked."""
        body = as_read(TaskSubmitted(spec=spec, by=by), TaskSubmitted)
        seq = await self._write(body, lambda: body.spec.task not in self.state.tasks)
        if seq is None:
            raise ValueError(
                f"a task named {body.spec.task} is in the log already: choose another name"
            )
        return seq

    async def give_back(self, node: NodeId, by: str, reason: str) -> Sequence:
        """An operator returns an isolated node; its sequence. ValueError if there is nothing that
        keeps it or one of its devices apart, NotLeading if another instance has to be asked."""
        body = as_read(NodeReturned(node=node, by=by, reason=reason), NodeReturned)
        seq = await self._write(body, lambda: self._is_apart(node))
        if seq is None:
            raise ValueError(f"nothing keeps {node} apart: there is nothing to give back")
        return seq

    async def configure(self, planning: Planning, by: str) -> Sequence | None:
        """Plans rest on this from here on, also whenever this instance leads again; its sequence,
        None if it is in force already. ValueError if it makes no sense, NotLeading if another
        instance has to be asked."""
        planning = as_read(planning, Planning)
        if fault := fault_of(planning):
            raise ValueError(f"it can't be planned with: {fault}")
        body = as_read(configured(planning, by), ClusterConfigured)
        seq = await self._write(body, lambda: planning != self.state.planning)
        self._planning = planning
        return seq

    async def _write(self, body: AnyDecision, still: Callable[[], bool]) -> Sequence | None:
        if not self.leading or self._writer is None:
            state = self.state
            who = f"{state.leader} leads since #{state.term}" if state.term else "nobody leads yet"
            raise NotLeading(
                f"this instance of cluster {self._log.cluster}'s control plane doesn't lead",
                why=who,
                fix="ask the one that leads, or wait until this one does",
            )
        return await self._writer.write(body, still=still)

    def _is_apart(self, node: NodeId) -> bool:
        known = self.state.nodes.get(node)
        return known is not None and may_return(known)
