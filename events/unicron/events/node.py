"""Nodes and their agents: facts by the agent, opinions of the monitor, decisions about a node."""

from unicron.events.base import Decision, Fact
from unicron.events.ids import Incarnation, NodeId, Sequence


class AgentStarted(Fact, frozen=True, kw_only=True, tag="agent.started.v1"):
    """An agent is up and offers its node. The envelope's incarnation is the agent's.

    `store_port`: TCP port of the rendezvous store this agent hosts at `address`.
    """

    node: NodeId
    address: str
    store_port: int
    devices: int
    device_kind: str
    rack: str = ""
    version: str = ""


class AgentStopped(Fact, frozen=True, kw_only=True, tag="agent.stopped.v1"):
    """An agent ended on request, after its workers."""

    node: NodeId
    reason: str


class StoreBound(Fact, frozen=True, kw_only=True, tag="store.bound.v1"):
    """The agent's rendezvous store was started anew (its process had died) on another port."""

    node: NodeId
    address: str
    store_port: int


class NodeSuspected(Decision, frozen=True, kw_only=True, tag="node.suspected.v1"):
    """The monitor's opinion: the node may be gone. Void if a fact of `incarnation` with a
    sequence above `newest_fact` stands before it in the log."""

    node: NodeId
    incarnation: Incarnation
    newest_fact: Sequence
    evidence: str


class NodeRecovered(Decision, frozen=True, kw_only=True, tag="node.recovered.v1"):
    """The monitor's opinion: a suspected node beats again; nothing had been done about it."""

    node: NodeId
    incarnation: Incarnation
    evidence: str


class NodeLost(Decision, frozen=True, kw_only=True, tag="node.lost.v1"):
    """Suspicion was confirmed by a second path: the node and all its workers are gone."""

    node: NodeId
    incarnation: Incarnation
    evidence: str


class NodeIsolated(Decision, frozen=True, kw_only=True, tag="node.isolated.v1"):
    """SEV1: the node takes no part in plans until it returns."""

    node: NodeId
    reason: str


class NodeAdmitted(Decision, frozen=True, kw_only=True, tag="node.admitted.v1"):
    """The node may be used by plans from here on."""

    node: NodeId
    incarnation: Incarnation


class NodeReturned(Decision, frozen=True, kw_only=True, tag="node.returned.v1"):
    """An operator gave an isolated node back."""

    node: NodeId
    by: str
    reason: str
