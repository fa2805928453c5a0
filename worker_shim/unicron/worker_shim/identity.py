"""Who an agent or a worker is towards the log."""

import msgspec

from unicron.events.ids import ClusterId, Incarnation, NodeId, TaskId, WorkerId, node_of
from unicron.worker_shim.spool import Owner


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks. `who`: ``agent/<node>`` or ``worker/<worker>``. `orders`: the order subjects
    to hear as (kind, name); the names are also what it asks for on every connect."""

    cluster: ClusterId
    node: NodeId
    who: str
    incarnation: Incarnation
    orders: tuple[tuple[str, str], ...]

    @property
    def client(self) -> str:
        """Name of the connection, which the server's advisories carry."""
        return f"{self.who}/{self.incarnation}"

    @property
    def owner(self) -> Owner:
        """What its spool says about whose facts it holds."""
        return Owner(cluster=self.cluster, who=self.who, incarnation=self.incarnation)


def agent_identity(cluster: ClusterId, node: NodeId, incarnation: Incarnation) -> Identity:
    """An agent: hears its node's orders."""
    return Identity(
        cluster=cluster,
        node=node,
        who=f"agent/{node}",
        incarnation=incarnation,
        orders=(("node", node),),
    )


def worker_identity(
    cluster: ClusterId, worker: WorkerId, incarnation: Incarnation, task: TaskId
) -> Identity:
    """A worker: hears its task's orders and writes facts under its node."""
    return Identity(
        cluster=cluster,
        node=node_of(worker),
        who=f"worker/{worker}",
        incarnation=incarnation,
        orders=(("task", task),),
    )
