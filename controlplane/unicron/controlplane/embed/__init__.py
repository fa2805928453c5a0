"""The control plane inside another program: its log, its engine, and the host's own scheduler.

Importing this starts nothing and loads neither nats nor ortools; both come when they are used.
"""

from unicron.controlplane.embed.change import PlannedChange, TaskChange
from unicron.controlplane.embed.plane import ControlPlane, Leadership
from unicron.controlplane.embed.scheduler import (
    NodeChange,
    NodeOffered,
    NodeWithdrawn,
    NotApproved,
    Scheduler,
)
from unicron.controlplane.embed.stream import EventStream
from unicron.controlplane.embed.worker import HostedWorker

__all__ = [
    "ControlPlane",
    "EventStream",
    "HostedWorker",
    "Leadership",
    "NodeChange",
    "NodeOffered",
    "NodeWithdrawn",
    "NotApproved",
    "PlannedChange",
    "Scheduler",
    "TaskChange",
]
