"""Which events of a log belong to an incident.

Decisions say it themselves. Facts don't: they belong by whom they are about (the incident's node,
the workers it lost or started), by the generations the incident closed and ordered, and as the
evidence that the fold joined to it.
"""

from collections.abc import Sequence as SequenceOf
from typing import TypeAlias

from unicron import events as ev
from unicron.controlplane.core.state import IncidentState
from unicron.controlplane.replay.tracing import confirms, foreboding, process_on
from unicron.events import Envelope, Recorded, Sequence, WorkerId

#: What is told about a node itself.
_ABOUT_NODE: TypeAlias = (
    ev.AgentStarted
    | ev.AgentStopped
    | ev.StoreBound
    | ev.NodeSuspected
    | ev.NodeRecovered
    | ev.NodeLost
    | ev.NodeIsolated
    | ev.NodeReturned
)


def events_of(
    log: SequenceOf[Recorded], incident: IncidentState, named: SequenceOf[Recorded]
) -> tuple[Recorded, ...]:
    """Every event that belongs to `incident`, in order.

    `log` begins with #1, `incident` is what the state after all of it says, and `named` are the
    decisions in it that name the incident.
    """
    claim = _Claim(log, incident, named)
    return tuple(log[seq - 1] for seq in sorted(claim.collect()))


class _Claim:
    """What is known to belong, growing."""

    def __init__(
        self, log: SequenceOf[Recorded], incident: IncidentState, named: SequenceOf[Recorded]
    ) -> None:
        self._log = log
        self._incident = incident
        self._mine: set[int] = set(incident.evidence)
        self._closed: set[int] = set()
        self._ordered: set[int] = set()
        self._started: set[tuple[WorkerId, int]] = set()
        self._requests: set[int] = set()
        for recorded in named:
            if recorded.envelope is not None:
                self._decided(recorded.seq, recorded.envelope)

    def collect(self) -> set[int]:
        for seq in sorted(self._mine):
            self._mine.update(foreboding(self._log, seq))
        first, last = min(self._mine), self._incident.resolved or len(self._log)
        for recorded in self._log[first - 1 : last]:
            if recorded.envelope is not None and self._is_mine(recorded.envelope.body):
                self._mine.add(recorded.seq)
        return self._mine

    def _decided(self, seq: Sequence, envelope: Envelope) -> None:
        self._mine.add(seq)
        match envelope.body:
            case ev.GenerationClosed(generation=generation):
                self._closed.add(generation)
            case ev.TransitionOrdered(generation=generation):
                self._ordered.add(generation)
            case ev.WorkerStartOrdered(worker=worker, incarnation=incarnation):
                self._started.add((worker, incarnation))
            case ev.PlanRequested():
                self._requests.add(seq)
            case _:
                pass

    # --- What happened until it was over ---------------------------------------------------------

    def _is_mine(self, body: ev.AnyEvent) -> bool:
        task = self._incident.task
        match body:
            case ev.MemberQuiesced():
                return body.task == task and body.generation in self._closed
            case ev.MemberReady() | ev.MemberCommitted():
                return body.task == task and body.generation in self._ordered
            case ev.LeadershipTaken() | ev.AlarmRaised():
                return True
            case ev.DeadlinePassed(key=key):
                return self._waited_for(key)
            case ev.PlanSolved(request=request) | ev.PlanDropped(request=request):
                return request in self._requests
            case ev.PlanDecided(allocations=allocations):
                return any(a.task == task for a in allocations)
            case ev.ConnectionClosed(client=client) | ev.ConnectionOpened(client=client):
                return self._connected(client)
            case ev.WorkerStarted() | ev.WorkerPrepared() | ev.WorkerStartFailed():
                return body.task == task and (body.worker, body.incarnation) in self._started
            case ev.PeerErrorReported() | ev.ExceptionReported() | ev.WorkerExited():
                return body.task == task
            case ev.MemberFinished():
                return body.task == task
            case _:
                return self._about_my_node(body)

    def _about_my_node(self, body: ev.AnyEvent) -> bool:
        if self._incident.severity != 1 or not isinstance(body, _ABOUT_NODE):
            return False
        return body.node == self._incident.node

    def _connected(self, client: str) -> bool:
        node = self._incident.node
        if self._incident.severity == 1 and node is not None and process_on(node, client):
            return True
        lives = {f"worker/{worker}/{incarnation}" for worker, incarnation in self._started}
        return client in lives or client.startswith(f"worker/{self._incident.worker}/")

    def _waited_for(self, key: str) -> bool:
        wait, _, name = key.partition(":")
        subject, _, number = name.rpartition(":")
        match wait:
            case "quiesce" | "ready":
                generations = {str(g) for g in self._closed | self._ordered}
                return subject == self._incident.task and number in generations
            case "start" | "stop" | "release":
                started = {(str(worker), str(life)) for worker, life in self._started}
                return (subject, number) in started or subject == self._incident.worker
            case "solve":
                return name in {str(r) for r in self._requests}
            case _:
                return self._incident.node is not None and confirms(key, self._incident.node)
