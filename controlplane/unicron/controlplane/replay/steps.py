"""The steps of an incident: what each took, by whom, and what led to it.

``detect``        first evidence .. the event that the incident was opened (or raised) for
``classify``      .. the incident is opened, or raised
``plan``          what the answer was made from .. the answer; a request .. what came of it
``quiesce``       a generation is closed .. its last member has stopped or is gone
``regroup``       the next one is ordered .. its last member is ready
``transfer``      state is handed over to those who lack it; part of the time above
``redistribute``  all are ready .. the first commit: micro-batches owed are computed and reduced
``resume``        first commit .. last member's first commit: training goes on

An incident has as many of each as it took. Times are the stream's in nanoseconds, and never go
back: where its clock did, the later of two stands.
"""

from collections.abc import Sequence as SequenceOf

import msgspec

from unicron.events import Generation, IncidentId, NodeId, Sequence, WorkerId

DETECT = "detect"
CLASSIFY = "classify"
PLAN = "plan"
QUIESCE = "quiesce"
REGROUP = "regroup"
TRANSFER = "transfer"
REDISTRIBUTE = "redistribute"
RESUME = "resume"

#: All steps, in the order of a recovery.
NAMES = (DETECT, CLASSIFY, PLAN, QUIESCE, REGROUP, TRANSFER, REDISTRIBUTE, RESUME)

#: What became of a step or of a transition. `CUT`: something else came first: its generation was
#: closed, or the incident ended.
DONE, OPEN, CUT = "done", "open", "cut"


class RankStep(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of a step, inside the step's time. `seq`: the event that ended it; None,
    as `end_ns` is, while nothing did, and if the step was cut.

    `rank`: None if it has none in this generation. `how`: ``quiesced``, ``exited``, ``lost``,
    ``ready``, ``committed``. Of quiesce, `kept` are micro-batches it stopped with, of redistribute
    those it goes on with; `owed`: those it computes; None where the order leaves it to the members.
    `state_from`: rank of who hands it the state, -1 for the initial one. `unblock_ms`,
    `regroup_ms`, `transfer_ms`: measured by the worker itself.
    """

    worker: WorkerId
    node: NodeId
    incarnation: int
    rank: int | None
    seq: Sequence | None
    start_ns: int
    end_ns: int | None
    how: str = ""
    iteration: int | None = None
    kept: int | None = None
    owed: int | None = None
    state_from: int | None = None
    received_bytes: int = 0
    unblock_ms: int = 0
    regroup_ms: int = 0
    transfer_ms: int = 0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step. `first_seq`: the event it began with, `last_seq`: the one it ended with; None, as
    `end_ns` is, while it is open. A step that was cut ends with what cut it.

    `transition`: which of the incident's it is part of, from 1; 0: of none. `generation`: the one
    that is closed (quiesce) or formed. `cause`: sequences that led to it. `what`: the event that
    tells what came of it, as `last_seq` counts only when it is over.
    """

    name: str
    state: str
    first_seq: Sequence
    last_seq: Sequence | None
    start_ns: int
    end_ns: int | None
    cause: tuple[Sequence, ...] = ()
    transition: int = 0
    generation: Generation | None = None
    what: str = ""
    ranks: tuple[RankStep, ...] = ()

    @property
    def duration_ns(self) -> int | None:
        """What it took; None while it is open."""
        return None if self.end_ns is None else self.end_ns - self.start_ns


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One change of generation. `number` counts from 1. `closed`, `ordered`: the generations, None
    if there is none; `planned`: nobody was stopped for it. `state`: ``done`` once all members
    have committed, ``cut`` if the generation was closed before, or the incident ended."""

    number: int
    state: str
    planned: bool
    closed: Generation | None
    ordered: Generation | None
    close_seq: Sequence | None
    order_seq: Sequence | None
    reason: str


class IncidentSteps(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of one incident, by the sequence they began with; `last_seq` and `end_ns`: None
    while it is open."""

    incident: IncidentId
    first_seq: Sequence
    last_seq: Sequence | None
    start_ns: int
    end_ns: int | None
    steps: tuple[Step, ...]
    transitions: tuple[Transition, ...]

    def named(self, name: str) -> tuple[Step, ...]:
        """Those with this name, in order."""
        return tuple(step for step in self.steps if step.name == name)


def in_order(steps: SequenceOf[Step]) -> tuple[Step, ...]:
    """By first sequence; steps that begin with the same event in the order of a recovery."""
    return tuple(sorted(steps, key=lambda s: (s.first_seq, NAMES.index(s.name), s.transition)))


def starting_at(step: Step, start_ns: int) -> Step:
    """The step, begun some time after its first event."""
    return msgspec.structs.replace(step, start_ns=start_ns)
