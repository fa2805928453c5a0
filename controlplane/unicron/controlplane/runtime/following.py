"""Following the log: every instance folds everything, in strict order, whether it leads or not."""

from collections.abc import Callable

import anyio

from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.problem import problem_of
from unicron.controlplane.core.snapshot import Snapshot, entry_hash, vocabulary
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.runtime.ports import EventLog
from unicron.controlplane.runtime.resend import Resender
from unicron.controlplane.runtime.unread import Unread
from unicron.controlplane.runtime.watchman import Watchman
from unicron.events import (
    EMPTY_CHAIN,
    Basis,
    LeadershipTaken,
    PlanRequested,
    Recorded,
    Sequence,
    extend_chain,
)
from unicron.planner.problem import PlanProblem

#: In a cluster of more nodes than this an entry takes so long that no more are folded in a row.
_MANY_NODES = 500
_IN_A_ROW = 16


class Follower:
    """What one instance knows of the log, and waits for. `on_event` is called after each fold."""

    def __init__(
        self,
        event_log: EventLog,
        watchman: Watchman,
        on_event: Callable[[ClusterState, Recorded], None],
    ) -> None:
        self.state = ClusterState()
        #: Sequence of the last event of the control tree: the fence.
        self.control_seq = 0
        #: The last entry that stood in the log when this instance began.
        self.history = Sequence(0)
        self.watchman = watchman
        self.unread = Unread()
        self.resender = Resender()
        #: What the open request is about, by its sequence.
        self.problems: dict[Sequence, PlanProblem] = {}
        self._log = event_log
        self._on_event = on_event
        self._chain = EMPTY_CHAIN
        self._newest: Recorded | None = None
        self._entry = ""  # hash of the last one, if nothing was folded since resume()
        self._leadership: LeadershipTaken | None = None
        self._waited = (self.state, deadlines(self.state))
        self._moved = anyio.Event()

    async def run(self) -> None:
        """Fold until cancelled. Raises LogError: nothing was folded past that point."""
        tail = self._log.read(self.state.seq + 1)
        try:
            async for recorded in tail:
                self._take(recorded)
                if len(self.state.nodes) > _MANY_NODES and recorded.seq % _IN_A_ROW == 0:
                    await anyio.lowlevel.checkpoint()  # beats and the lease can't wait
        finally:
            with anyio.CancelScope(shield=True):
                await tail.aclose()

    def _take(self, recorded: Recorded) -> None:
        before = self.state
        self.state = fold(before, recorded)
        self.watchman.folded(before, self.state, recorded)
        self.unread.taken(recorded)
        self._chain = extend_chain(self._chain, recorded.seq, recorded.subject, recorded.data)
        self._newest = recorded
        if ".control." in recorded.subject:
            self.control_seq = recorded.seq
            self.resender.taken(recorded, self.state)
        envelope = recorded.envelope
        if envelope is not None and isinstance(envelope.body, PlanRequested):
            self.problems = {recorded.seq: problem_of(self.state)}
        if self.state.term != before.term and envelope is not None:
            assert isinstance(envelope.body, LeadershipTaken), "nothing else begins a term"
            self._leadership = envelope.body
        self._on_event(self.state, recorded)
        if recorded.seq >= self.history:  # nobody waits for a part of it
            self.notify()

    # --- Snapshots --------------------------------------------------------------------------------

    def snapshot(self, *, birth: str, version: str) -> Snapshot:
        """All that this instance has made of the log so far and needs to go on, but for what can be
        read from it again. Takes no time: it is encoded elsewhere."""
        state, plan = self.state, self.state.plan
        return Snapshot(
            cluster=self._log.cluster,
            birth=birth,
            seq=state.seq,
            entry=entry_hash(self._newest) if self._newest is not None else self._entry,
            fold_version=FOLD_VERSION,
            vocabulary=vocabulary(),
            version=version,
            chain=self._chain.hex(),
            control_seq=Sequence(self.control_seq),
            leadership=self._leadership,
            problem=None if plan.answer else self.problems.get(plan.request),
            losses=self.resender.losses,
            unread=self.unread.so_far(),
            state=state,
        )

    def resume(self, snapshot: Snapshot) -> None:
        """Know what whoever made it did; before run()."""
        self.state = snapshot.state
        self.control_seq = snapshot.control_seq
        self.problems = {}
        if snapshot.problem is not None:
            self.problems[snapshot.state.plan.request] = snapshot.problem
        self.resender.resume(snapshot.losses)
        self.unread.resume(snapshot.unread)
        self._chain = bytes.fromhex(snapshot.chain)
        self._leadership = snapshot.leadership
        self._entry = snapshot.entry

    # --- Waiting ----------------------------------------------------------------------------------

    def notify(self) -> None:
        """Something has changed that others wait for."""
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    @property
    def moved(self) -> anyio.Event:
        """Is set with the next event that is folded, or with the next change of leadership."""
        return self._moved

    async def folded(self, seq: Sequence) -> None:
        """Wait until this entry is folded."""
        while self.state.seq < seq:
            await self._moved.wait()

    def basis(self) -> Basis:
        """What a decision made now is made on."""
        return Basis(
            decided_at=self.state.seq,
            chain=self._chain.hex(),
            state_digest=digest(self.state),
            logic_version=LOGIC_VERSION,
        )

    def waits(self) -> dict[str, int]:
        """The limits of the newest state, worked out once for each."""
        if self._waited[0] is not self.state:
            self._waited = (self.state, deadlines(self.state))
        return self._waited[1]
