"""What came about in a run, counted: a test demands that rare things did, over many seeds."""

from unicron.controlplane.testing.outcome import Outcome
from unicron.events import Envelope, TransitionOrdered, WorkerStopOrdered


def marks(outcome: Outcome) -> dict[str, int]:
    """Events by the name of their type, and what deserves a name beside that."""
    found: dict[str, int] = {
        "overtaken": 0,
        "void": outcome.state.void,
        "repeated": outcome.state.duplicates,
        "unknown": outcome.state.unknown,
    }
    for recorded in outcome.log:
        envelope = recorded.envelope
        if envelope is None:
            continue
        names = [type(envelope.body).__name__]
        if envelope.basis is not None and envelope.basis.decided_at < recorded.seq - 1:
            names.append("overtaken")
        if isinstance(envelope.body, TransitionOrdered):
            names += _of_order(envelope)
        if isinstance(envelope.body, WorkerStopOrdered) and "gives it to" in envelope.body.reason:
            names.append("released")  # to another task
        for name in names:
            found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))


def _of_order(envelope: Envelope) -> list[str]:
    """What an order asks of its members."""
    order = envelope.body
    assert isinstance(order, TransitionOrdered)
    names = ["planned" if order.planned else "after a fault"]
    if any(m.keeps for m in order.members):
        names.append("keeps")
    if any(m.step_forward for m in order.members):
        names.append("step forward")
    if any(m.state_from == -1 for m in order.members):
        names.append("from nothing")
    if any(m.state_from not in (None, -1) for m in order.members):
        names.append("transfer")
    return names
