"""The identifiers every event uses, as distinct types so that a checker sees a mix-up.

A name alone never identifies a process: identity is always (name, incarnation).
"""

from typing import NewType

ClusterId = NewType("ClusterId", str)
NodeId = NewType("NodeId", str)
TaskId = NewType("TaskId", str)

#: A worker's name is the device slot it trains on, ``<node>/<device>``; it outlives processes.
WorkerId = NewType("WorkerId", str)

#: Derived from the log: ``inc-<sequence of the first evidence>``.
IncidentId = NewType("IncidentId", str)

#: Position of an event in the stream, counted from 1.
Sequence = NewType("Sequence", int)

#: Version of a task's membership and collectives; only the log assigns it. 0 = none yet.
Generation = NewType("Generation", int)

#: Sequence of the ``LeadershipTaken`` that started a leadership.
Term = NewType("Term", int)

#: One life of a node, agent or worker. Compared for equality with the newest in the log.
Incarnation = NewType("Incarnation", int)


def worker_id(node: NodeId, device: int) -> WorkerId:
    """Name of the worker on `device` of `node`."""
    return WorkerId(f"{node}/{device}")


def node_of(worker: WorkerId) -> NodeId:
    """Node part of a worker's name."""
    return NodeId(worker.rpartition("/")[0])
