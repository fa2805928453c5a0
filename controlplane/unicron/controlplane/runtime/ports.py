"""What the runtime needs from the world: a clock, an event log with a lease and a bus beside it, a
planner.

`clock`, `memory`, `jetstream`, `natsbus` and `solver` provide it; the simulator has its own.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

from unicron.controlplane.runtime.outcomes import Outcome
from unicron.events import Beat, Recorded, Sequence
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem


class Clock(Protocol):
    """Time. Expiry is judged by the monotonic clock alone; wall time is for people."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back and knows no other host's."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SolverFailed(Exception):
    """There is no plan; the message says why. The local answer stays in force."""


class Solved(NamedTuple):
    """A plan, with lines for people that explain it, if the solver has any."""

    plan: Plan
    explanation: tuple[str, ...] = ()


class Solver(Protocol):
    """The planner: it may be late, wrong or dead, and nobody waits for it."""

    async def warm(self) -> None:
        """Get ready for a problem."""
        ...

    async def solve(self, problem: PlanProblem) -> Solved:
        """The best plan for the problem. It is called in the event loop, and whatever it computes
        must not hold that up. Raises SolverFailed if there is none in time."""
        ...


class Tail(Protocol):
    """Entries in strict order without a gap, as they come; waits for the next one.

    Ends when it or its log is closed. Raises LogBroken if the log has a hole, was cut off or does
    not reach where reading was to begin, LogMismatch if the stream was born anew meanwhile. What
    the transport loses is fetched again and not seen here.
    """

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Recorded: ...

    async def aclose(self) -> None:
        """End it; whoever waits for an entry gets StopAsyncIteration."""
        ...


class Hold(NamedTuple):
    """The lease as its keeper shows it. `holder`: "" if it was given back, or nobody ever had it.
    `revision`: another one after every change; 0 if there is none."""

    holder: str = ""
    revision: int = 0


class Lease(Protocol):
    """Says who should lead the cluster. Only a hint: the fence of the log decides.

    Its keeper knows no time. Whoever looks and sees nothing change for `limit_ms` of its own clock
    may take it. All raise LogUnreachable if there is no answer; what was asked for may have been
    done or not.
    """

    @property
    def limit_ms(self) -> int:
        """How long a holder may be silent."""
        ...

    async def look(self) -> Hold:
        """As it is now."""
        ...

    async def put(self, holder: str, after: Hold) -> Hold | None:
        """It is `holder`'s from now on ("": nobody's), unless it isn't as `after` says any more:
        None then. The holder itself renews it with this."""
        ...


class EventLog(Protocol):
    """One cluster's log. Cancelling an append leaves its outcome unknown; everything else can be
    cancelled freely. All but append and resolve raise LogUnreachable if there is no answer."""

    @property
    def cluster(self) -> str:
        """Name of the cluster whose log this is."""
        ...

    async def append(
        self, subject: str, data: bytes, event_id: str, *, fence: int | None
    ) -> Outcome:
        """Append one event, trying again under the same id until the log's limit.

        `fence`: the last sequence of the whole control tree as the writer knows it; the append is
        refused if any other stands there now. Required under ``control``, None for facts. Raises
        LogError if it is refused for another reason (too large, not permitted).
        """
        ...

    async def resolve(self, event_id: str, subject: str, *, after: int) -> Outcome:
        """What became of an append whose outcome is unknown, by reading back.

        Control subjects, with `after` the fence it was tried with: Accepted if the first event of
        the control tree after `after` is this one, Conflict if it is another, Unknown if there is
        none, so that it may still arrive. Facts, with `after` any sequence before the first try:
        Accepted or Unknown.
        """
        ...

    def read(self, from_seq: int) -> Tail:
        """All entries from `from_seq` (counted from 1) on, then those to come."""
        ...

    async def get(self, seq: int) -> Recorded | None:
        """The entry at `seq`, or None if there is none."""
        ...

    async def last_seq(self) -> Sequence:
        """Sequence of the last entry; 0 if the log is empty."""
        ...

    async def last_control_seq(self) -> Sequence:
        """Sequence of the last entry of the control tree, 0 if there is none: the next fence."""
        ...

    async def first_missing(self, upto: int) -> Sequence:
        """The first entry up to `upto` that isn't in the log any more; 0 if all are. What holds
        nothing back need not look."""
        ...

    async def birth(self) -> str:
        """What tells this log from any other, also from a later one of the same name."""
        ...

    def lease(self) -> Lease:
        """The lease of the cluster, kept where the log is."""
        ...

    async def close(self) -> None:
        """End all tails and let go of the connection if it is the log's own."""
        ...


class Snapshots(Protocol):
    """Keeps the newest few snapshots of one cluster, each under the sequence it is of. A cache: it
    may lose or refuse any. All but the names raise OSError or LogError if it can't be used."""

    @property
    def name(self) -> str:
        """What kind of place it is, in a word or two."""
        ...

    @property
    def where(self) -> str:
        """Where a person finds it."""
        ...

    async def known(self) -> list[Sequence]:
        """Of which entries there are snapshots, in any order."""
        ...

    async def load(self, seq: Sequence) -> bytes | None:
        """One of them, or None if it is gone."""
        ...

    async def save(self, seq: Sequence, data: bytes) -> None:
        """Keep one, whole or not at all, unless another one makes it superfluous."""
        ...


class Bus(Protocol):
    """Messages beside the log. They may be lost, and nobody waits for them. Handlers are called in
    the event loop and must return at once."""

    async def on_beats(self, handler: Callable[[Beat], None]) -> None:
        """Call `handler` with every heartbeat that can be read, as it arrives."""
        ...

    async def on_asks(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with the name of the task or node whose orders are asked for."""
        ...

    def on_connection(self, lost: Callable[[], None], back: Callable[[], None]) -> None:
        """Call `lost` when the connection breaks and `back` when it is up again: all nodes get
        their full grace then."""
        ...

    async def resend(self, decision: Recorded) -> bool:
        """Say a decision, as it was read from the log, again to whom it concerns. Whether it went
        out; the next one a second later is as good."""
        ...
