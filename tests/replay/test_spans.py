"""Traces: what the spans of an incident are, and that they follow from the log alone."""

import json
import re

import pytest

from tests.core.story import running
from tests.replay.histories import killed, night, powered_off, restless
from unicron import events as ev
from unicron.controlplane.replay import span_names as names
from unicron.controlplane.replay import steps as st
from unicron.controlplane.replay.casefile import cases_of
from unicron.controlplane.replay.otlp import otlp_json
from unicron.controlplane.replay.spans import spans_of, trace_id
from unicron.controlplane.testing import seeds, simulation


def traces(log, birth="b1"):
    return [spans_of(case, cluster="c", birth=birth) for case in cases_of(log)]


def only(log):
    (trace,) = traces(log)
    return trace


def named(trace, name):
    return [span for span in trace if span.name == name]


def test_the_incident_is_the_root_and_its_steps_are_the_children():
    log = powered_off().log
    (case,) = cases_of(log)
    root, *others = spans_of(case, cluster="c", birth="b1")
    assert (root.name, root.parent_id) == ("incident", "")
    assert (root.start_ns, root.end_ns) == (case.steps.start_ns, case.steps.end_ns)
    assert root.attributes[names.INCIDENT] == case.incident.incident
    assert root.attributes[names.FIRST_SEQUENCE] == case.steps.first_seq
    assert root.attributes[names.LAST_SEQUENCE] == case.incident.resolved
    assert root.attributes[names.SEVERITY] == 1
    children = [s for s in others if s.parent_id == root.span_id]
    assert [(c.name, c.attributes[names.FIRST_SEQUENCE], c.start_ns) for c in children] == [
        (s.name, s.first_seq, s.start_ns) for s in case.steps.steps
    ]
    ranks = [s for s in others if s.parent_id != root.span_id]
    assert len(ranks) == sum(len(s.ranks) for s in case.steps.steps) > 0
    steps = {c.span_id: c for c in children}
    assert all(r.name == f"{steps[r.parent_id].name}.rank" for r in ranks)


def test_a_killed_worker_has_every_step_and_a_span_for_each_rank():
    trace = only(killed().log)
    assert {s.name for s in trace if not s.name.endswith(".rank")} == {"incident", *st.NAMES}
    stopped = named(trace, "quiesce.rank")
    assert [(s.attributes[names.WORKER], s.attributes[names.RANK]) for s in stopped] == [
        ("n1/0", 0),
        ("n2/0", 1),
        ("n2/1", 3),
    ]
    assert {s.attributes[names.HOW] for s in stopped} == {"quiesced"}


def test_links_lead_to_what_caused_a_step():
    """The close to the detection, the answer to what members said when they stopped."""
    log = killed().log
    trace = only(log)
    ids = {s.span_id: s for s in trace}
    (quiesce,), (plan,) = named(trace, "quiesce"), named(trace, "plan")
    (exited,) = {link.sequence for link in quiesce.links}
    assert isinstance(log[exited - 1].envelope.body, ev.WorkerExited)
    assert [ids[link.span_id].name for link in quiesce.links] == ["detect"]
    stopped = [link for link in plan.links if ids[link.span_id].name == "quiesce.rank"]
    assert len(stopped) == 3
    for link in stopped:
        body = log[link.sequence - 1].envelope.body
        assert isinstance(body, ev.MemberQuiesced)
        assert ids[link.span_id].attributes[names.WORKER] == body.worker


def test_evidence_and_decisions_are_events_of_the_root():
    log = powered_off().log
    root = only(log)[0]
    told = [e.name for e in root.events]
    assert told[:3] == ["connection.closed.v1"] * 3
    lost = told.index("node.lost.v1")
    assert told[lost + 1] == "incident.opened.v1"
    assert told[-1] == "incident.resolved.v1"
    for event in root.events:
        recorded = log[event.attributes[names.SEQUENCE] - 1]
        assert event.at_ns == recorded.at_ns
        assert event.name == recorded.envelope.body.__struct_config__.tag


def test_ids_follow_from_cluster_log_and_incident():
    log = night().log
    first, second = traces(log)
    assert {s.trace_id for s in first} == {first[0].trace_id} != {s.trace_id for s in second}
    assert traces(log)[0] == first
    assert traces(log, birth="b2")[0][0].trace_id != first[0].trace_id
    assert first[0].trace_id == trace_id("c", "b1", first[0].attributes[names.INCIDENT])


def test_spans_of_an_open_incident_keep_their_ids_until_it_is_over():
    log = killed().log
    whole = only(log)
    final = {s.span_id: s for s in whole}
    opened = next(r.seq for r in log if isinstance(r.envelope.body, ev.IncidentOpened))
    for until in range(opened, len(log)):
        trace = only(log[:until])
        assert {s.span_id for s in trace} <= {*final}
        for span in trace:
            assert span.name == final[span.span_id].name
            assert span.end_ns <= final[span.span_id].end_ns


def check(trace):
    assert len({s.span_id for s in trace}) == len(trace)
    by_id = {s.span_id: s for s in trace}
    for number, span in enumerate(trace):
        assert re.fullmatch(r"[0-9a-f]{32}", span.trace_id)
        assert re.fullmatch(r"[0-9a-f]{16}", span.span_id)
        assert span.start_ns <= span.end_ns
        assert bool(span.parent_id) == bool(number)
        if span.parent_id:
            parent = by_id[span.parent_id]
            assert parent.start_ns <= span.start_ns
            assert span.end_ns <= parent.end_ns
        assert all(link.span_id in by_id and link.span_id != span.span_id for link in span.links)


@pytest.mark.parametrize("seed", [1, 4])
def test_traces_of_any_log_hang_together(seed):
    log = simulation.run(seeds.options_of(seed)).log
    found = traces(log)
    assert len(found) > 1
    assert any(s.error for trace in found for s in trace)
    for trace in [*found, *traces(restless(seed).log), *traces(log[: len(log) // 2])]:
        check(trace)


# --- OTLP JSON -----------------------------------------------------------------------------------


def values(attributes):
    def value(v):
        ((kind, content),) = v.items()
        if kind == "arrayValue":
            return tuple(value(item) for item in content["values"])
        return int(content) if kind == "intValue" else content

    return {a["key"]: value(a["value"]) for a in attributes}


def test_otlp_json_says_what_the_spans_say():
    trace = only(powered_off().log)
    (resource,) = json.loads(otlp_json(trace))["resourceSpans"]
    assert values(resource["resource"]["attributes"]) == {"service.name": "unicron-controlplane"}
    (scope,) = resource["scopeSpans"]
    assert len(scope["spans"]) == len(trace)
    for written, span in zip(scope["spans"], trace, strict=True):
        assert (written["traceId"], written["spanId"]) == (span.trace_id, span.span_id)
        assert written["parentSpanId"] == span.parent_id
        assert (written["startTimeUnixNano"], written["endTimeUnixNano"]) == (
            str(span.start_ns),
            str(span.end_ns),
        )
        assert values(written["attributes"]) == span.attributes
        assert [link["spanId"] for link in written["links"]] == [x.span_id for x in span.links]
        assert [int(e["timeUnixNano"]) for e in written["events"]] == [e.at_ns for e in span.events]


HOSTILE = '</script>"\\\n\x00\x1b[31m\u2028' + "x" * 5000


def test_hostile_text_stays_inert():
    story = running(2)
    worker = story.state.workers["n1/1"]
    story.fact(
        "worker/n1/1",
        worker.incarnation,
        ev.ExceptionReported(
            task="gpt",
            worker="n1/1",
            incarnation=worker.incarnation,
            generation=1,
            iteration=3,
            phase="forward",
            kind="RuntimeError",
            message=HOSTILE,
        ),
    )
    story.settle()
    written = otlp_json(only(story.log)).decode()
    json.loads(written)
    assert written.count("\n") == 1
    texts = re.findall(r'"stringValue":"((?:[^"\\]|\\.)*)"', written)
    assert any("</script>" in text for text in texts)
    for text in texts:
        plain = json.loads(f'"{text}"')
        assert plain.isprintable()
        assert len(plain) <= 1000
