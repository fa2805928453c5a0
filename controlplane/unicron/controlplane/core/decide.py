"""decide(state) -> the next decision, or nothing. Level-triggered: it looks at what is, never at
what just happened, so a decision that was lost, void or late is simply decided again.

The rules stand in the order of their urgency: what survivors wait for comes first. Each is a
pure function of the state; the first that has an answer gives it.
"""

from collections.abc import Callable
from typing import Final

from unicron.controlplane.core import rules_incident as incident
from unicron.controlplane.core import rules_plan as plan
from unicron.controlplane.core import rules_transition as transition
from unicron.controlplane.core import rules_worker as worker
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.verdict import Verdict

RULES: Final[tuple[Callable[[ClusterState], Verdict | None], ...]] = (
    transition.refuse,
    incident.confirm_loss,
    incident.open_or_escalate,
    transition.close_generation,
    incident.isolate,
    plan.adopt_local,
    transition.fence,
    transition.order_after_fault,
    transition.complete,
    transition.finish_task,
    transition.give_up,
    incident.admit,
    plan.take_answer,
    transition.order_planned,
    transition.order_first,
    worker.renew,
    worker.start,
    worker.stop,
    plan.request,
    incident.resolve,
)


def decide(state: ClusterState) -> Verdict | None:
    """The most urgent open decision."""
    for rule in RULES:
        verdict = rule(state)
        if verdict is not None:
            return verdict
    return None
