"""An incident as a reader wants it: in short, and event by event."""

import msgspec

from unicron.events import IncidentId, NodeId, Sequence, TaskId, WorkerId


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """When the steps of a recovery were reached, in ms of stream time since the first evidence;
    None: not reached, or there is no such step.

    `detect`: the incident was opened. `close`: its first generation was. Of the first generation
    in which training went on: `order`, `ready` (its last member), `commit` (first iteration).
    """

    detect_ms: int | None = None
    close_ms: int | None = None
    order_ms: int | None = None
    ready_ms: int | None = None
    commit_ms: int | None = None
    resolve_ms: int | None = None


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One incident in short. `severity` is its highest (1 is worst); times are the stream's.

    `first_evidence_seq`: the first event that belongs to it. `duration_ms`: from there to its
    resolution; None while it is open.
    """

    id: IncidentId
    severity: int
    what: str
    outcome: str
    is_open: bool
    task: TaskId | None
    node: NodeId | None
    worker: WorkerId | None
    first_evidence_seq: Sequence
    first_evidence_at_ns: int
    opened_seq: Sequence
    resolved_seq: Sequence | None
    duration_ms: int | None
    marks: Marks


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a story. `t_plus_ms`: stream time since the first evidence. `kind`:
    ``observed``, ``decided`` or ``done``. `cause`: sequences that led to it, as recorded.
    `void`: the decision no longer applied when it reached the log."""

    seq: Sequence
    at_ns: int
    t_plus_ms: int
    kind: str
    who: str
    type: str
    what: str
    cause: tuple[Sequence, ...]
    void: bool


class IncidentStory(msgspec.Struct, frozen=True, kw_only=True):
    """One incident and every event that belongs to it, in the order of the log."""

    incident: Incident
    events: tuple[StoryEvent, ...]
