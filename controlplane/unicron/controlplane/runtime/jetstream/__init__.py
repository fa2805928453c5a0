"""The event log on NATS JetStream: the one adapter of nats-py, with `natsbus` beside it.

connection = await connect("nats://…", name="control/a")
log = await JetStreamLog.open(connection, "prod")
"""

from unicron.controlplane.runtime.jetstream.connection import (
    ApiRefused,
    Connection,
    NoAnswer,
    connect,
)
from unicron.controlplane.runtime.jetstream.lease import JetStreamLease
from unicron.controlplane.runtime.jetstream.log import JetStreamLog
from unicron.controlplane.runtime.jetstream.objects import JetStreamSnapshots
from unicron.controlplane.runtime.jetstream.tail import JetStreamTail

__all__ = [
    "ApiRefused",
    "Connection",
    "JetStreamLease",
    "JetStreamLog",
    "JetStreamSnapshots",
    "JetStreamTail",
    "NoAnswer",
    "connect",
]
