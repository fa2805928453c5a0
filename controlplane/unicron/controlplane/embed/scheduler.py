"""What the host does for an embedded control plane, and what it tells it."""

import logging
from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias

import msgspec

from unicron.controlplane.embed.change import PlannedChange
from unicron.controlplane.embed.worker import HostedWorker
from unicron.events import NodeId

log = logging.getLogger(__name__)


class NodeOffered(msgspec.Struct, frozen=True, kw_only=True):
    """The host gives a node to the cluster. `devices`: how many, counted from 0.

    `address` and `store_port`: where workers of the task find the rendezvous store that the host
    runs on this node (``unicron.worker_shim.store``); pretended workers need none.
    """

    node: NodeId
    devices: int
    device_kind: str = "cpu"
    address: str = "127.0.0.1"
    store_port: int = 0
    rack: str = ""


class NodeWithdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """The host takes a node back.

    Its workers are stopped first, with `grace_ms`. `lost`: it is gone with all that was on it, and
    nobody stops anything; the control plane notices by its silence, within about 3 s, and that is
    an incident.
    """

    node: NodeId
    reason: str
    grace_ms: int = 3000
    lost: bool = False


NodeChange: TypeAlias = NodeOffered | NodeWithdrawn


class NotApproved(Exception):
    """Raised by Scheduler.approve; the message is the reason, and goes into the log."""


class Scheduler(Protocol):
    """What the host implements. Everything is called in the event loop of the control plane.

    What the host does and reports is written to the log as the facts of an agent: numbered for
    each node, repeated until the log has them, and counted once.
    """

    def nodes(self) -> AsyncIterator[NodeChange]:
        """Nodes as they are offered and withdrawn, for as long as the control plane runs. What it
        raises ends the control plane; if it ends, the nodes stay."""
        ...

    async def launch(self, worker: HostedWorker) -> int:
        """Start the worker's process; its pid, 0 if it has none. Whatever it raises is recorded as
        a failed start. Once the process is gone, call ``worker.exited(...)``."""
        ...

    async def stop(self, worker: HostedWorker, grace_ms: int) -> None:
        """End the process, by force after `grace_ms` (0: at once); ``worker.exited(...)`` confirms
        it. May be called again. A process that isn't gone 10 s later costs its node."""
        ...

    async def approve(self, change: PlannedChange) -> None:
        """Asked before a plan takes devices from tasks that nothing has happened to. Raise
        NotApproved to refuse; what else it raises refuses too, and so does the limit.

        Never asked on the path of a failure: what a failure costs its own task is not planned.
        A refused plan is asked for again: twice at once, then every minute. A scheduler that
        derives from this class and leaves it as it is approves of everything.
        """
        log.debug("approved by default: %s", change)
