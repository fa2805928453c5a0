"""Who decides, and time and surprises as events."""

from unicron.events.base import Decision


class LeadershipTaken(Decision, frozen=True, kw_only=True, tag="leadership.taken.v1"):
    """An instance leads from here on; this event's sequence is its term."""

    cluster: str
    instance: str
    logic_version: int
    fold_version: int
    version: str


class DeadlinePassed(Decision, frozen=True, kw_only=True, tag="deadline.passed.v1"):
    """A wait reached its limit. `key` names the wait as core.deadlines does."""

    key: str
    limit_ms: int


class AlarmRaised(Decision, frozen=True, kw_only=True, tag="alarm.raised.v1"):
    """Something a person should look at; nothing was done about it. `code` is documented."""

    code: str
    message: str
