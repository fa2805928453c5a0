"""Incidents: from the first evidence to resolution."""

from unicron.events.base import Decision
from unicron.events.ids import IncidentId, NodeId, TaskId, WorkerId


class IncidentOpened(Decision, frozen=True, kw_only=True, tag="incident.opened.v1"):
    """Something failed. `severity`: 1 isolate the node and reconfigure, 2 restart the process,
    3 reattempt in place. `task`, `node`, `worker`: whom it hit, as far as known."""

    incident: IncidentId
    severity: int
    what: str
    task: TaskId | None = None
    node: NodeId | None = None
    worker: WorkerId | None = None


class IncidentEscalated(Decision, frozen=True, kw_only=True, tag="incident.escalated.v1"):
    """Later evidence or a failed action made the incident more severe."""

    incident: IncidentId
    severity: int
    reason: str
    node: NodeId | None = None
    worker: WorkerId | None = None


class IncidentResolved(Decision, frozen=True, kw_only=True, tag="incident.resolved.v1"):
    """The incident is over; `outcome` is what the task was left with."""

    incident: IncidentId
    outcome: str
