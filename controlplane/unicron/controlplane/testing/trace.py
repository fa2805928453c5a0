"""One line for each event, in fixed columns: time, who, event, status, generation, plan."""

from unicron.controlplane.core.state import ClusterState
from unicron.events import LeadershipTaken, Recorded, TaskFailed
from unicron.events.base import Event

#: Width of each column but the last.
WIDTHS = (10, 18, 26, 34, 12)
HEADER = ("time", "who", "event", "status", "generation", "plan")
_COLUMNS = "".join(f"{{:<{width}}}" for width in WIDTHS) + "{}"
_STATUS_MAX = WIDTHS[3] - 2


def header() -> str:
    """The line above."""
    return _row(HEADER)


def line(at_s: float, recorded: Recorded, before: ClusterState, after: ClusterState) -> str:
    """What was stored, and how it left what it is about."""
    envelope = recorded.envelope
    who = envelope.source.who if envelope is not None else "server"
    body = envelope.body if envelope is not None else None
    if isinstance(body, LeadershipTaken):
        who = f"{who}#{recorded.seq}"  # a term is named after the entry that begins it
    elif envelope is not None and who.startswith("control/"):
        who = f"{who}#{envelope.term}"
    elif envelope is not None:
        who = f"{who}:{envelope.source.incarnation}"
    event = type(body).__name__ if body is not None else "?"
    if after.duplicates > before.duplicates:
        status = "repeated: no effect"
    elif after.void > before.void:
        status = "void"
    else:
        status = "not understood" if body is None else _status(body, after)
    generation, plan = _where(body, after)
    return _row((clock(at_s), who, event, status, generation, plan))


def note(at_s: float, who: str, what: str) -> str:
    """Something that isn't in the log: a fault, the end of a process."""
    return f"{clock(at_s):<{WIDTHS[0]}}{who:<{WIDTHS[1]}}{what}"


def clock(at_s: float) -> str:
    """Seconds with three decimals, in a column."""
    return f"{at_s:8.3f}"


def _row(cells: tuple[str, ...]) -> str:
    return _COLUMNS.format(*cells).rstrip()


def _status(body: Event, state: ClusterState) -> str:
    """What the event is about, and how that stands now."""
    task = state.tasks.get(getattr(body, "task", None) or "")
    worker = state.workers.get(getattr(body, "worker", ""))
    node = state.nodes.get(getattr(body, "node", None) or "")
    found = []
    if worker is not None:
        found.append(f"{worker.worker} {worker.status}")
    if node is not None and worker is None:
        found.append(f"{node.node} {node.status}")
    if task is not None:
        why = f": {body.reason}" if isinstance(body, TaskFailed) else ""
        found.append(f"{task.spec.task} {task.phase}{why}")
    client = getattr(body, "client", "")
    return _short(", ".join(found) or client or getattr(body, "key", ""))


def _where(body: Event | None, state: ClusterState) -> tuple[str, str]:
    """Generation of the task that the event is about, and the sequence of its plan."""
    spec = getattr(body, "spec", None)
    task = state.tasks.get(str(getattr(body, "task", None) or getattr(spec, "task", "")))
    if task is None:
        plan = state.plan.request
        return "", f"#{plan} asked" if plan else ""
    plan = task.planned_at
    return f"g{task.generation}", f"#{plan}" if plan else ""


def _short(text: str) -> str:
    return text if len(text) <= _STATUS_MAX else f"{text[: _STATUS_MAX - 1]}…"
