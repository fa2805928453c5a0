"""What holds of evidence, incidents and the planner's desk after every event.

Each predicate is an invariant of its name; its docstring is the sentence for people.
"""

from collections.abc import Iterator
from typing import Final

from unicron.controlplane.core import tables
from unicron.controlplane.core.state import Cause, IncidentState
from unicron.controlplane.core.step import Step


def evidence_belongs_to_one_incident(step: Step) -> Iterator[str]:
    """No evidence belongs to two incidents of the same task, or of the same node without one."""
    for old, new in step.incidents:
        if old is not None and old.evidence is new.evidence:
            continue
        fresh = {*new.evidence} - {*(old.evidence if old is not None else ())}
        first = min(fresh, default=0)
        for other in step.after.incidents.values():
            if other is new or not _same(other, new.task, new.node):
                continue
            if (not other.resolved or other.resolved > first) and fresh & {*other.evidence}:
                seqs = sorted(fresh & {*other.evidence})
                yield f"{seqs} belong to {new.incident} and to {other.incident}"


def evidence_comes_from_the_log(step: Step) -> Iterator[str]:
    """An incident takes in only evidence that waited for it, or the event that is folded now."""
    for cause in step.after.causes:
        if cause.at == step.recorded.seq:
            continue
        if cause not in step.before.causes:
            yield f"evidence #{cause.at} appears at #{step.recorded.seq}"
    for old, new in step.incidents:
        if old is not None and old.evidence is new.evidence:
            continue
        fresh = {*new.evidence} - {*(old.evidence if old is not None else ())}
        waited = {c.at for c in step.before.causes if _is_for(c, new)}
        if strange := fresh - waited - {step.recorded.seq}:
            yield f"{new.incident} takes in {sorted(strange)}, which nobody reported for it"


def no_evidence_is_dropped(step: Step) -> Iterator[str]:
    """Evidence waits until an incident takes it in, or until its task has ended."""
    if step.before.causes is step.after.causes:
        return
    for cause in step.before.causes:
        if cause in step.after.causes:
            continue
        task = step.after.tasks.get(cause.task) if cause.task is not None else None
        ended = task is not None and task.phase in tables.ENDED
        taken = any(_is_for(cause, new) and cause.at in new.evidence for _, new in step.incidents)
        if not ended and not taken:
            yield f"evidence #{cause.at} of {cause.task or cause.node} was dropped: {cause.what}"


def _same(incident: IncidentState, task: str | None, node: str | None) -> bool:
    return incident.task == task and (task is not None or incident.node == node)


def _is_for(cause: Cause, incident: IncidentState) -> bool:
    return _same(incident, cause.task, cause.node)


def incidents_have_one_life(step: Step) -> Iterator[str]:
    """An incident opens once, with evidence; it only becomes more severe and only gains evidence;
    it ends once, and nothing about it changes after that."""
    for old, new in step.incidents:
        if old is None:
            if not new.evidence or new.resolved or new.opened != step.recorded.seq:
                yield f"{new.incident} opens without evidence, or is over"
            continue
        if old.resolved:
            yield f"{new.incident} was over at #{old.resolved} and changes at #{step.recorded.seq}"
        if new.severity > old.severity:
            yield f"{new.incident} goes from SEV{old.severity} to SEV{new.severity}"
        if new.evidence[: len(old.evidence)] != old.evidence or new.opened != old.opened:
            yield f"{new.incident} loses evidence"


def one_open_incident_per_task(step: Step) -> Iterator[str]:
    """A task has at most one open incident, and knows it."""
    for old, new in step.tasks:
        if new.incident is None or (old is not None and old.incident == new.incident):
            continue
        found = step.after.incidents.get(new.incident)
        if found is None or found.resolved or found.task != new.spec.task:
            yield f"task {new.spec.task} names {new.incident}, which isn't an open one of it"
    for _, incident in step.incidents:
        task = step.after.tasks.get(incident.task) if incident.task is not None else None
        if incident.task is None:
            continue
        if task is None:
            yield f"{incident.incident} belongs to {incident.task}, which doesn't exist"
        elif (task.incident == incident.incident) == bool(incident.resolved):
            over = "is over" if incident.resolved else "is open"
            yield f"{incident.incident} {over}, its task {incident.task} knows {task.incident}"


def answers_are_to_the_open_request(step: Step) -> Iterator[str]:
    """On the planner's desk lies an answer only if it is one to the open request."""
    plan = step.after.plan
    if plan is step.before.plan:
        return
    if plan.answer and (not plan.request or plan.answer < plan.request):
        yield f"answer #{plan.answer} lies there for request #{plan.request}"
    if plan.answered and not plan.answer:
        yield f"an allocation for {[a.task for a in plan.answered]} lies there unasked"
    if max(plan.request, plan.wanted, plan.answer) > step.after.seq:
        yield f"the desk names #{max(plan.request, plan.wanted, plan.answer)}, yet to come"


INCIDENT_CHECKS: Final = (
    evidence_belongs_to_one_incident,
    evidence_comes_from_the_log,
    no_evidence_is_dropped,
    incidents_have_one_life,
    one_open_incident_per_task,
    answers_are_to_the_open_request,
)
