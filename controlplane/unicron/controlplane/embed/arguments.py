"""What a ControlPlane may be given."""

from pathlib import Path

from unicron.controlplane.core.configuration import fault_of
from unicron.controlplane.embed.approval import APPROVAL_LIMIT_MAX_S
from unicron.controlplane.runtime.handed import as_read
from unicron.controlplane.runtime.ports import EventLog
from unicron.events import ConfigError, Planning, subjects


def check_arguments(
    cluster: str,
    *,
    nats: str | None,
    data: Path | None,
    log: EventLog | None,
    planning: Planning | None,
    approval_limit_s: float,
) -> Planning | None:
    """What was given for `planning`, as the log will have it.

    Raises ConfigError: the arguments contradict each other, or one makes no sense.
    """
    subjects.check_cluster(cluster)
    if log is not None and (nats is not None or log.cluster != cluster):
        raise ConfigError(
            f"the log given to the control plane of {cluster} doesn't fit",
            why="it has an address too" if nats else f"it is the log of {log.cluster}",
            fix="give one log, of this cluster: log=..., nats=... or neither",
        )
    if data is not None and (log is not None or nats is not None):
        raise ConfigError(
            "data is the folder of a private server, but there is another log",
            fix="leave out data, or nats and log",
        )
    if not 0 < approval_limit_s <= APPROVAL_LIMIT_MAX_S:
        raise ConfigError(
            f"approval_limit_s is {approval_limit_s:g}",
            why="a plan that is solved later is dropped anyway",
            fix=f"give at most {APPROVAL_LIMIT_MAX_S:g}",
        )
    if planning is None:
        return None
    try:
        checked = as_read(planning, Planning)
    except ValueError as error:
        why = f"planning has {error}"
    else:
        fault = fault_of(checked)
        if not fault:
            return checked
        why = f"planning.{fault}"
    raise ConfigError(
        f"the control plane of {cluster} can't plan with what it is given",
        why=why,
        fix="correct it, or leave out planning",
    )
