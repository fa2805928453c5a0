"""A row for each fault of a run: what it was, what was seen of it, what was decided and what it
cost, computed from the injector's notes, the log and the workers' journals. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf

import msgspec

from unicron import events as ev
from unicron.controlplane.core.state import ClusterState, IncidentState
from unicron.controlplane.local.faults import KINDS
from unicron.controlplane.local.injector import Shot
from unicron.controlplane.local.measure import Work
from unicron.controlplane.replay.belonging import events_of
from unicron.controlplane.replay.phrases import names, phrase
from unicron.events import AnyEvent, Recorded

#: What a fault is called that nobody told us of, by what was seen of it: the first that fits.
_KINDS_SEEN: dict[type[AnyEvent], str] = {
    ev.NodeLost: "node",
    ev.ExceptionReported: "exception",
    ev.TaskStalled: "hang",
    ev.WorkerExited: "worker",
    ev.PeerErrorReported: "connection",
}


_NO_WORK = Work(forwards={}, contributed={}, losses={}, commits=[])


class FaultRow(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, injected or found in the log, as it hit one task. Milliseconds; None where nobody
    knows.

    `at_ns`: wall clock just before it, None if it was found in the log. `incident` None: it opened
    none. `iteration`, `phase`, `done_microbatches`: where it hit. `seen`: the evidence in words;
    `decided`: the decisions, in order. `kept_microbatches` of the interrupted iteration had been
    done by survivors, `redone_microbatches` were computed again.

    `noticed_ms`: fault to the first fact about it in the log. `plan_ms`: from there to the order
    for the survivors. `resume_ms`: fault to the first iteration committed under that order.
    `restored_ms`: fault to the incident's resolution. Where `at_ns` is None, the last two count
    from the first fact.
    """

    kind: str
    worker: str
    task: str | None
    at_ns: int | None
    phase: str | None
    iteration: int | None
    done_microbatches: int | None
    incident: str | None
    severity: int | None
    seen: str | None
    decided: tuple[str, ...]
    kept_microbatches: int | None
    redone_microbatches: int | None
    noticed_ms: float | None
    plan_ms: float | None
    resume_ms: float | None
    restored_ms: float | None
    outcome: str

    @property
    def injected(self) -> bool:
        """We did it, so it is known when."""
        return self.at_ns is not None

    @property
    def what(self) -> str:
        """``SIGKILL to worker n2/1``."""
        words = KINDS[self.kind].words if self.injected else self.kind
        return f"{words} {self.worker}"


def batches(number: int | None) -> str:
    """``1 micro-batch``, ``2 micro-batches``."""
    return f"{'?' if number is None else number} micro-batch{'' if number == 1 else 'es'}"


def fault_rows(
    shots: list[Shot], state: ClusterState, events: list[Recorded], works: Mapping[str, Work]
) -> list[FaultRow]:
    """A row for each fault that was injected and each task it hit, then one for each other incident
    of the log. `works`: by task."""
    rows, seen = [], set()
    ends = [*(shot.seq for shot in shots[1:]), len(events)]
    for shot, until in zip(shots, ends, strict=False):
        harms = KINDS[shot.fault.kind].harms
        found = _incidents_after(state, shot, until) if harms else []
        mine = _task_of(shot, events)
        if not found:
            rows.append(_harmless(shot, events))
        for incident in sorted(found, key=lambda i: i.task != mine):
            seen.add(incident.incident)
            rows.append(_row(shot, incident, state, events, works))
    others = sorted(state.incidents.values(), key=lambda i: i.opened)
    rows += [
        _row(None, other, state, events, works) for other in others if other.incident not in seen
    ]
    return rows


def _incidents_after(state: ClusterState, shot: Shot, until: int) -> list[IncidentState]:
    """The incident that took in the first evidence after the shot; if that hit a whole node, those
    of all tasks that lost it. `until`: the next shot's sequence."""
    found = [
        (min(after), incident)
        for incident in state.incidents.values()
        if (after := [e for e in incident.evidence if shot.seq < e <= until])
    ]
    found.sort(key=lambda pair: pair[0])
    first = [incident for _, incident in found[:1]]
    if not KINDS[shot.fault.kind].whole_node:
        return first
    lost = [incident for _, incident in found if incident.node == shot.fault.target]
    return lost or first


def _task_of(shot: Shot, events: list[Recorded]) -> str | None:
    """The task in whose step it hit."""
    life = next((life for life in shot.victims if life[0] == shot.fault.worker), None)
    for recorded in reversed(events[: shot.seq]):
        body = _body(recorded)
        if isinstance(body, ev.WorkerStartOrdered) and (body.worker, body.incarnation) == life:
            return body.task
    return None


def _harmless(shot: Shot, events: list[Recorded]) -> FaultRow:
    """A fault that opened no incident; at most it was named."""
    slow = [
        (r, body)
        for r in events[shot.seq :]
        if isinstance(body := _body(r), ev.WorkerSlow)
        and body.worker == shot.fault.target
        and body.percent > 100
    ]
    return FaultRow(
        kind=shot.fault.kind,
        worker=shot.fault.target,
        task=_task_of(shot, events),
        at_ns=shot.wall_ns,
        phase=shot.phase,
        iteration=shot.iteration,
        done_microbatches=shot.done,
        incident=None,
        severity=None,
        seen=phrase(slow[0][1]) if slow else None,
        decided=(),
        kept_microbatches=None,
        redone_microbatches=None,
        noticed_ms=_ms(shot.wall_ns, slow[0][0].at_ns) if slow else None,
        plan_ms=None,
        resume_ms=None,
        restored_ms=None,
        outcome="no incident",
    )


def _row(
    shot: Shot | None,
    incident: IncidentState,
    state: ClusterState,
    events: list[Recorded],
    works: Mapping[str, Work],
) -> FaultRow:
    after = shot.seq if shot is not None else 0
    evidence = [events[e - 1] for e in sorted(incident.evidence) if e > after]
    mine = _mine(incident, events, after)
    first = mine[0]  # a closed connection, maybe, which is no evidence by itself
    order = _order_after(events, first.seq, incident)
    work = works.get(incident.task or "", _NO_WORK)
    kept, redone = _cost(order, state, work)
    telling = _telling(evidence)
    here = shot if shot is not None and incident.task == _task_of(shot, events) else None
    iteration, phase = (here.iteration, here.phase) if here else _place(telling, order)
    resumed = _resume_ms(shot, first, order, events, work)
    over = events[incident.resolved - 1].at_ns if incident.resolved else None
    start_ns = shot.wall_ns if shot is not None else first.at_ns
    return FaultRow(
        kind=shot.fault.kind if shot is not None else _kind(telling),
        worker=shot.fault.target if shot is not None else _where(incident),
        task=incident.task,
        at_ns=shot.wall_ns if shot is not None else None,
        phase=phase,
        iteration=iteration,
        done_microbatches=here.done if here is not None else None,
        incident=incident.incident,
        severity=incident.severity,
        seen=_seen(telling) if telling is not None else incident.what,
        decided=tuple(words for r in mine if (words := _decision(_body(r)))),
        kept_microbatches=kept,
        redone_microbatches=redone,
        noticed_ms=_ms(shot.wall_ns, first.at_ns) if shot is not None else None,
        plan_ms=_ms(first.at_ns, order.at_ns) if order is not None else None,
        resume_ms=resumed,
        restored_ms=_ms(start_ns, over) if over is not None else None,
        outcome=incident.outcome,
    )


def _body(recorded: Recorded) -> AnyEvent | None:
    return recorded.envelope.body if recorded.envelope is not None else None


def _ms(start_ns: int, end_ns: int) -> float:
    return round((end_ns - start_ns) / 1e6, 1)


# --- What it was and what was seen ---------------------------------------------------------------


def _telling(evidence: SequenceOf[Recorded]) -> AnyEvent | None:
    """The piece of evidence that says most."""
    bodies = [body for r in evidence if (body := _body(r)) is not None]
    for kind in _KINDS_SEEN:
        for body in bodies:
            if isinstance(body, kind):
                return body
    return bodies[0] if bodies else None


def _kind(telling: AnyEvent | None) -> str:
    return _KINDS_SEEN.get(type(telling), "worker") if telling is not None else "worker"


def _where(incident: IncidentState) -> str:
    if incident.severity == 1 and incident.node is not None:
        return incident.node
    return str(incident.worker or incident.node or incident.task or "?")


def _place(telling: AnyEvent | None, order: Recorded | None) -> tuple[int | None, str | None]:
    """(iteration, phase) it hit, as far as the evidence or the survivors' order say."""
    match telling:
        case ev.WorkerExited(iteration=iteration, phase=phase) if iteration >= 0:
            return iteration, phase or None
        case ev.ExceptionReported() | ev.PeerErrorReported():
            return telling.iteration, telling.phase or None
        case _:
            body = _body(order) if order is not None else None
            return (body.iteration if isinstance(body, ev.TransitionOrdered) else None), None


def _seen(body: AnyEvent) -> str:
    match body:
        case ev.ExceptionReported():
            return f"{body.worker} raised {body.message}; classified as {body.kind}"
        case ev.TaskStalled():
            who = f"all wait for {names(body.behind)}" if body.behind else "all at the same place"
            return f"{body.task} makes no progress for {body.stalled_ms} ms, {who}"
        case _:
            return phrase(body)


# --- What was decided ----------------------------------------------------------------------------


def _mine(incident: IncidentState, events: list[Recorded], after: int) -> list[Recorded]:
    """The incident's events, from the first sign of it on, as the audit has them."""
    named = [r for r in events if r.envelope and r.envelope.incident == incident.incident]
    return [r for r in events_of(events, incident, named) if r.seq > after]


def _decision(body: AnyEvent | None) -> str:
    match body:
        case ev.WorkerStopOrdered(grace_ms=0):
            return f"kill {body.worker}"
        case ev.WorkerStartOrdered():
            return f"start {body.worker}: {body.reason}"
        case ev.NodeIsolated():
            return f"isolate {body.node}"
        case ev.IncidentEscalated():
            return f"raised to SEV{body.severity}: {body.reason}"
        case ev.TransitionOrdered(planned=False):
            return f"generation {body.generation} at once: {body.reason}"
        case ev.TransitionOrdered():
            return f"generation {body.generation} at an iteration boundary: {body.reason}"
        case ev.PlanRequested():
            return "plan the whole cluster anew"
        case ev.PlanDecided():
            return f"take the {body.source} plan: {body.reason}"
        case ev.TaskFailed():
            return f"give {body.task} up: {body.reason}"
        case _:
            return ""


# --- What it cost --------------------------------------------------------------------------------


def _order_after(events: list[Recorded], seq: int, incident: IncidentState) -> Recorded | None:
    """The order to the survivors of the incident's task."""
    for recorded in events[seq:]:
        body = _body(recorded)
        if not isinstance(body, ev.TransitionOrdered) or body.planned:
            continue
        if body.task == incident.task:
            return recorded
    return None


def _cost(order: Recorded | None, state: ClusterState, work: Work) -> tuple[int | None, int | None]:
    """Micro-batches kept and computed again."""
    body = _body(order) if order is not None else None
    if not isinstance(body, ev.TransitionOrdered):
        return None, None
    kept = sum(len(m.keeps) for m in body.members)
    if any(m.step_forward for m in body.members) and not kept:
        return state.tasks[body.task].spec.micro_batches, _redone(work, body.iteration - 1)
    return kept, _redone(work, body.iteration)


def _resume_ms(
    shot: Shot | None,
    first: Recorded,
    order: Recorded | None,
    events: list[Recorded],
    work: Work,
) -> float | None:
    """To the first commit under the order: by the journals' clock from the signal, or else by the
    log's from the first fact."""
    body = _body(order) if order is not None else None
    if not isinstance(body, ev.TransitionOrdered):
        return None
    if shot is not None:
        commits = (
            mono_ns
            for mono_ns, _, generation in work.commits
            if mono_ns > shot.mono_ns and generation >= body.generation
        )
        commit = next(commits, None)
        return _ms(shot.mono_ns, commit) if commit is not None else None
    for recorded in events[first.seq :]:
        commit_of = _body(recorded)
        if not isinstance(commit_of, ev.MemberCommitted) or commit_of.task != body.task:
            continue
        if commit_of.generation >= body.generation:
            return _ms(first.at_ns, recorded.at_ns)
    return None


def _redone(work: Work, iteration: int) -> int:
    """Forward passes of the iteration beyond one for each micro-batch."""
    return sum(len(who) - 1 for (i, _), who in work.forwards.items() if i == iteration)
