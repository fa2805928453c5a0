"""One trace per incident, as plain values: a function of the log alone.

The incident is the root; its steps are the children, and who acted in a step is a child of that.
Ids follow from the cluster, the birth of its log, the incident and sequences, so whoever exports an
incident again exports the same spans. What led to a step is linked: to the spans that the causing
events ended, with the sequence. The decisions and the evidence stand as events on the root.
"""

import hashlib
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from unicron import events as ev
from unicron.controlplane.replay import span_names as names
from unicron.controlplane.replay import steps as st
from unicron.controlplane.replay.casefile import CaseFile
from unicron.controlplane.replay.phrases import kind, one_line, phrase
from unicron.events import Recorded, Sequence

AttributeValue: TypeAlias = str | int | bool | tuple[int, ...]
Attributes: TypeAlias = dict[str, AttributeValue]

#: Longest text, most causes and most events of the root that go into a trace.
_TEXT_MAX = 1000
_CAUSES_MAX = 64
_EVENTS_MAX = 500


class SpanLink(msgspec.Struct, frozen=True, kw_only=True):
    """To the span of the same trace that the event `sequence` ended."""

    span_id: str
    sequence: Sequence


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment of a span; `name` is the event's tag."""

    name: str
    at_ns: int
    attributes: Attributes


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span. Ids are hex, 32 and 16 digits; `parent_id` is "" for the root. Times are the
    stream's. `error`: why it didn't do what it was for, or ""."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    links: tuple[SpanLink, ...] = ()
    events: tuple[SpanEvent, ...] = ()
    error: str = ""


def trace_id(cluster: str, birth: str, incident: str) -> str:
    """Id of the incident's trace: 32 hex digits."""
    return _digest("trace", cluster, birth, incident)[:32]


def spans_of(case: CaseFile, *, cluster: str, birth: str) -> tuple[Span, ...]:
    """The trace of one incident: the root first, parents before their children."""
    return tuple(_Trace(case, cluster, birth).spans())


def _digest(*parts: str) -> str:
    encoded = [part.encode(errors="replace") for part in parts]
    return hashlib.sha256(b"".join(len(e).to_bytes(4, "big") + e for e in encoded)).hexdigest()


def _text(text: str) -> str:
    """What the log says is hostile: one line, printable, not endless."""
    return one_line(text)[:_TEXT_MAX]


class _Trace:
    """The trace of one incident in the making."""

    def __init__(self, case: CaseFile, cluster: str, birth: str) -> None:
        self._case = case
        self._cluster, self._birth = cluster, birth
        self._id = trace_id(cluster, birth, case.incident.incident)
        self._root = self._span_id("root")
        self._end_ns = case.steps.end_ns or max(case.until_ns, case.steps.start_ns)
        #: Sequence -> the first span that the event ended.
        self._ended: dict[Sequence, str] = {}
        self._seen: dict[str, int] = {}
        self._told = [r for r in case.events if r.seq not in case.void and _is_told(r)]

    def _span_id(self, *key: object) -> str:
        return _digest(self._id, *map(str, key))[:16]

    def spans(self) -> Iterator[Span]:
        yield self._incident()
        steps = [(step, self._step_id(step)) for step in self._case.steps.steps]
        for step, span_id in steps:
            for part in step.ranks:
                if part.seq is not None and step.name in (st.QUIESCE, st.REGROUP, st.RESUME):
                    self._ended.setdefault(part.seq, self._rank_id(span_id, part))
        for step, span_id in steps:
            if step.last_seq is not None and step.state == st.DONE:
                self._ended.setdefault(step.last_seq, span_id)
        for step, span_id in steps:
            yield self._step(step, span_id)
            for part in step.ranks:
                yield self._rank(step, span_id, part)

    # --- The incident ----------------------------------------------------------------------------

    def _incident(self) -> Span:
        incident, steps = self._case.incident, self._case.steps
        attributes: Attributes = {
            names.CLUSTER: self._cluster,
            names.LOG_BIRTH: self._birth,
            names.INCIDENT: _text(incident.incident),
            names.SEVERITY: incident.severity,
            names.WHAT: _text(incident.what),
            names.OPEN: steps.last_seq is None,
            names.FIRST_SEQUENCE: steps.first_seq,
        }
        if steps.last_seq is not None:
            attributes[names.LAST_SEQUENCE] = steps.last_seq
            attributes[names.OUTCOME] = _text(incident.outcome)
        about = {
            names.TASK: incident.task,
            names.NODE: incident.node,
            names.WORKER: incident.worker,
        }
        attributes |= {name: _text(value) for name, value in about.items() if value}
        told = self._told
        if len(told) > _EVENTS_MAX:
            attributes[names.EVENTS_LEFT_OUT] = len(told) - _EVENTS_MAX
        failed = any(
            isinstance(r.envelope.body, ev.TaskFailed) for r in told if r.envelope is not None
        )
        return Span(
            trace_id=self._id,
            span_id=self._root,
            parent_id="",
            name=names.ROOT,
            start_ns=steps.start_ns,
            end_ns=self._end_ns,
            attributes=attributes,
            events=tuple(self._as_event(r) for r in told[:_EVENTS_MAX]),
            error=_text(incident.outcome) if failed else "",
        )

    def _as_event(self, recorded: Recorded) -> SpanEvent:
        envelope = recorded.envelope
        assert envelope is not None, "what can't be read belongs to no incident"
        attributes: Attributes = {
            names.SEQUENCE: recorded.seq,
            names.WHO: _text(envelope.source.who),
            names.PHRASE: phrase(envelope.body)[:_TEXT_MAX],
        }
        if envelope.cause:
            attributes[names.CAUSES] = tuple(envelope.cause[:_CAUSES_MAX])
        return SpanEvent(
            name=str(envelope.body.__struct_config__.tag),
            at_ns=min(max(recorded.at_ns, self._case.steps.start_ns), self._end_ns),
            attributes=attributes,
        )

    # --- Steps and their ranks -------------------------------------------------------------------

    def _step_id(self, step: st.Step) -> str:
        """Stays the same while the step goes on. Two of one name that began with one event differ
        by their transition, or by which came first."""
        key = f"{step.name} {step.first_seq} {step.transition}"
        number = self._seen[key] = self._seen.get(key, 0) + 1
        return self._span_id("step", key, number)

    def _rank_id(self, step_id: str, part: st.RankStep) -> str:
        return self._span_id("rank", step_id, part.worker, part.incarnation)

    def _step(self, step: st.Step, span_id: str) -> Span:
        attributes: Attributes = {
            names.STEP: step.name,
            names.STATE: step.state,
            names.FIRST_SEQUENCE: step.first_seq,
        }
        if step.last_seq is not None:
            attributes[names.LAST_SEQUENCE] = step.last_seq
        if step.what:
            attributes[names.RESULT] = step.what
        if step.cause:
            attributes[names.CAUSES] = tuple(step.cause[:_CAUSES_MAX])
        if step.generation is not None:
            attributes[names.GENERATION] = step.generation
        if step.transition:
            attributes[names.TRANSITION] = step.transition
            transition = self._case.steps.transitions[step.transition - 1]
            attributes[names.PLANNED] = transition.planned
        cut = step.state == st.CUT
        return Span(
            trace_id=self._id,
            span_id=span_id,
            parent_id=self._root,
            name=step.name,
            start_ns=step.start_ns,
            end_ns=max(step.start_ns, step.end_ns or self._end_ns),
            attributes=attributes,
            links=self._links(step.cause, span_id),
            error=f"cut short by #{step.last_seq}" if cut else "",
        )

    def _links(self, causes: tuple[Sequence, ...], own: str) -> tuple[SpanLink, ...]:
        """To the spans that the causes ended, or to the root if they stand there. What came
        before the incident is named by its sequence alone."""
        linked = []
        on_root = {r.seq for r in self._told[:_EVENTS_MAX]}
        for cause in causes[:_CAUSES_MAX]:
            span_id = self._ended.get(cause) or (self._root if cause in on_root else own)
            if span_id != own:
                linked.append(SpanLink(span_id=span_id, sequence=cause))
        return tuple(linked)

    def _rank(self, step: st.Step, step_id: str, part: st.RankStep) -> Span:
        attributes: Attributes = {
            names.STEP: step.name,
            names.WORKER: _text(part.worker),
            names.NODE: _text(part.node),
            names.INCARNATION: part.incarnation,
            names.FIRST_SEQUENCE: step.first_seq,
        }
        optional: dict[str, int | str | None] = {
            names.RANK: part.rank,
            names.LAST_SEQUENCE: part.seq,
            names.GENERATION: step.generation,
            names.HOW: part.how or None,
            names.ITERATION: part.iteration,
            names.KEPT: part.kept,
            names.OWED: part.owed,
            names.STATE_FROM: part.state_from,
            names.RECEIVED: part.received_bytes or None,
            names.UNBLOCK_MS: part.unblock_ms or None,
            names.REGROUP_MS: part.regroup_ms or None,
            names.TRANSFER_MS: part.transfer_ms or None,
        }
        attributes |= {name: value for name, value in optional.items() if value is not None}
        end = part.end_ns if part.end_ns is not None else step.end_ns or self._end_ns
        return Span(
            trace_id=self._id,
            span_id=self._rank_id(step_id, part),
            parent_id=step_id,
            name=step.name + names.RANK_SUFFIX,
            start_ns=part.start_ns,
            end_ns=max(part.start_ns, end),
            attributes=attributes,
            error=_unfinished(step) if part.seq is None else "",
        )


def _unfinished(step: st.Step) -> str:
    return f"cut short by #{step.last_seq}" if step.state == st.CUT else ""


def _is_told(recorded: Recorded) -> bool:
    """Does it stand on the root? What ranks did has spans of its own."""
    return recorded.envelope is not None and kind(recorded.envelope.body) != "done"
