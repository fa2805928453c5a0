"""Devices that passed from one task to another: how far each has come, and what it cost.

A trade begins with the plan that gives a device away while a worker of another task stands on it.
It is over when the other task has committed an iteration with it, or another plan came between.
"""

import msgspec

from unicron import events as ev
from unicron.controlplane.core.leases import leases
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.replay.story import PASSED_ON, RELEASED, WAITS, WITHDRAWN, Trade
from unicron.controlplane.replay.units import duration
from unicron.events import Recorded, Sequence, TaskId, WorkerId

_MS = 1_000_000


class _Switch(msgspec.Struct, kw_only=True):
    """The change of one task's membership for the trade. `closed_ns`: its generation was broken off
    before. `stall_ms` holds once it is `over`."""

    task: TaskId
    closed_ns: int | None = None
    generation: int = 0
    staying: frozenset[WorkerId] = frozenset()
    stall_ms: int | None = None
    over: bool = False

    def see(self, body: ev.AnyEvent, at_ns: int, device: WorkerId, *, wants: bool) -> None:
        """`wants`: the device's worker is to be a member, or else to be none."""
        if self.over or getattr(body, "task", None) != self.task:
            return
        match body:
            case ev.GenerationClosed():
                self.closed_ns = self.closed_ns or at_ns
                self.generation, self.stall_ms = 0, None
            case ev.TransitionOrdered() if not self.generation:
                if (device in {m.worker for m in body.members}) == wants:
                    self.generation = body.generation
                    self.staying = frozenset(m.worker for m in body.members if m.state_from is None)
                    self.closed_ns = None if body.planned else self.closed_ns
            case ev.MemberReady(generation=generation) if generation == self.generation:
                if self.closed_ns is None and body.worker in self.staying:
                    stood = body.regroup_ms + body.transfer_ms
                    self.stall_ms = max(self.stall_ms or 0, stood)
            case ev.MemberCommitted(generation=generation) if generation == self.generation:
                if self.closed_ns is not None:
                    self.stall_ms = (at_ns - self.closed_ns) // _MS
                self.over = True
            case _:
                pass


class _Course(msgspec.Struct, kw_only=True):
    """A trade that may still go on."""

    device: WorkerId
    life: int
    planned: Recorded
    donor: _Switch
    receiver: _Switch
    released: Recorded | None = None
    started: Recorded | None = None
    trains: Recorded | None = None
    withdrawn: bool = False

    @property
    def is_open(self) -> bool:
        done = self.trains is not None and self.donor.over
        return not done and not self.withdrawn


class TradeBook:
    """Give it every entry, in order."""

    def __init__(self) -> None:
        self._courses: list[_Course] = []
        self._open: list[_Course] = []

    def see(self, before: ClusterState, after: ClusterState, recorded: Recorded) -> None:
        """The entry made the one state the other."""
        body = recorded.envelope.body if recorded.envelope is not None else None
        if body is None or after.void > before.void:
            return
        for course in self._open:
            _follow(course, after, recorded, body)
        if isinstance(body, ev.PlanDecided):
            self._begin(after, recorded)
        if self._open:
            self._open = [course for course in self._open if course.is_open]

    def of(self, plan: int) -> tuple[Trade, ...]:
        """Those that the plan with this sequence began."""
        return tuple(_trade(c) for c in self._courses if c.planned.seq == plan)

    @property
    def trades(self) -> tuple[Trade, ...]:
        """All of them, oldest first."""
        return tuple(_trade(course) for course in self._courses)

    def _begin(self, state: ClusterState, recorded: Recorded) -> None:
        found = {(lease.holder.worker, lease.to): lease.holder for lease in leases(state)}
        for course in self._open:
            if course.released is None and (course.device, course.receiver.task) not in found:
                course.withdrawn = True
        known = {(c.device, c.receiver.task) for c in self._open if c.is_open}
        for (device, to), holder in found.items():
            if (device, to) in known:
                continue
            course = _Course(
                device=device,
                life=holder.incarnation,
                planned=recorded,
                donor=_Switch(task=holder.task),
                receiver=_Switch(task=to),
            )
            self._courses.append(course)
            self._open.append(course)


def _follow(course: _Course, state: ClusterState, recorded: Recorded, body: ev.AnyEvent) -> None:
    """What the entry means for a trade that is open."""
    at_ns = recorded.at_ns
    course.donor.see(body, at_ns, course.device, wants=False)
    course.receiver.see(body, at_ns, course.device, wants=True)
    worker = state.workers[course.device]
    gone = worker.incarnation != course.life or worker.status in ("exited", "lost")
    if course.released is None and gone:
        course.released = recorded
    match body:
        case ev.WorkerStartOrdered(worker=name) if name == course.device and gone:
            course.started = course.started or recorded
            course.withdrawn = body.task != course.receiver.task
        case ev.MemberCommitted(worker=name, task=task) if name == course.device:
            if task == course.receiver.task:
                course.trains = course.trains or recorded
        case ev.TaskCompleted(task=task) | ev.TaskFailed(task=task):
            course.withdrawn |= task == course.receiver.task
        case _:
            pass


def _trade(course: _Course) -> Trade:
    released, trains = course.released, course.trains
    state = PASSED_ON if trains is not None else RELEASED if released is not None else WAITS
    return Trade(
        device=course.device,
        donor=course.donor.task,
        receiver=course.receiver.task,
        state=WITHDRAWN if course.withdrawn else state,
        planned_seq=course.planned.seq,
        released_seq=_seq(released),
        started_seq=_seq(course.started),
        trains_seq=_seq(trains),
        wait_ms=_ms(course.planned, released),
        idle_ms=_ms(released, trains),
        donor_stall_ms=course.donor.stall_ms,
        receiver_stall_ms=course.receiver.stall_ms,
    )


def _seq(recorded: Recorded | None) -> Sequence | None:
    return recorded.seq if recorded is not None else None


def _ms(start: Recorded | None, end: Recorded | None) -> int | None:
    if start is None or end is None:
        return None
    return (end.at_ns - start.at_ns) // _MS


def in_words(trade: Trade) -> str:
    """``n1/3 from light to gpt``, then how far it has come and what it cost."""
    parts = [f"{trade.device} from {trade.donor} to {trade.receiver}"]
    if trade.wait_ms is None:
        parts.append("not released" if trade.state == WITHDRAWN else "still held")
    else:
        parts.append(f"released after {duration(trade.wait_ms)}{_stood(trade, trade.donor)}")
    if trade.idle_ms is not None:
        idle = f"idle for {duration(trade.idle_ms)} until it trained"
        parts.append(f"{idle}{_stood(trade, trade.receiver)}")
    elif trade.state == WITHDRAWN:
        parts.append("withdrawn")
    elif trade.state == RELEASED:
        parts.append("not used yet")
    return ", ".join(parts)


def _stood(trade: Trade, task: TaskId) -> str:
    stall = trade.donor_stall_ms if task == trade.donor else trade.receiver_stall_ms
    return f" ({task} stood still for {duration(stall)})" if stall is not None else ""
