"""The heartbeat an agent sends for its node and all its workers. Not an event: never stored."""

import msgspec

from unicron.events.ids import Incarnation, NodeId, WorkerId


class WorkerBeat(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's progress page as the agent read it.

    `iteration`: iterations committed; `collectives`: collectives entered; `phase` as in
    unicron.worker_shim.page; `alive`: the process exists. `micro_batch_us`: what it took to
    compute a micro-batch of the last committed iteration, on average; `section_ms`: limit of the
    section it declared, 0 outside of one.
    """

    worker: WorkerId
    incarnation: Incarnation
    alive: bool
    generation: int
    iteration: int
    micro_batches_done: int
    phase: str
    collectives: int
    micro_batch_us: int = 0
    section_ms: int = 0


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Sent every 200 ms by each agent; judged by the receiver's monotonic clock only.

    `spool`: facts of the node that the log hasn't acknowledged yet, in memory or on its disk: of
    the agent, of its workers, and of those that died before they could deliver them.
    """

    node: NodeId
    incarnation: Incarnation
    number: int
    workers: tuple[WorkerBeat, ...] = ()
    spool: int = 0
