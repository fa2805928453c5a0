"""Members of a generation: what the shims answer during a transition."""

from unicron.events.base import Fact
from unicron.events.ids import Generation, Incarnation, TaskId, WorkerId


class MemberQuiesced(Fact, frozen=True, kw_only=True, tag="member.quiesced.v1"):
    """The member has left all collectives up to `generation` and keeps what it has.

    `iteration`: iterations it has committed, so the number of the one it works on (counted from
    0); -1 if it holds no training state yet. `kept`: ids of the micro-batches of that iteration
    whose gradients it holds. `reduced`: it holds the complete reduced gradient of that
    iteration. `voted`: the vote of that iteration came back to it.
    """

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    generation: Generation
    iteration: int
    phase: str
    kept: tuple[int, ...]
    reduced: bool
    voted: bool


class MemberReady(Fact, frozen=True, kw_only=True, tag="member.ready.v1"):
    """The member stands in the generation with its state and goes on from `iteration`.

    `unblock_ms`, `regroup_ms`, `transfer_ms`: what the steps took here, on its own clock.
    """

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    generation: Generation
    iteration: int
    received_bytes: int = 0
    unblock_ms: int = 0
    regroup_ms: int = 0
    transfer_ms: int = 0


class MemberCommitted(Fact, frozen=True, kw_only=True, tag="member.committed.v1"):
    """First iteration this member committed in the generation: training goes on. Not written
    for later iterations. `iteration`: iterations committed, counting this one."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    generation: Generation
    iteration: int


class MemberFinished(Fact, frozen=True, kw_only=True, tag="member.finished.v1"):
    """The member committed the task's last iteration. `state_digest`: sha256 (hex) of its
    parameters and optimizer state, in the order that unicron.worker_shim.megatron.state gives.
    """

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    generation: Generation
    iteration: int
    state_digest: str
