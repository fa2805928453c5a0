"""Traces and metrics of a real engine run, received over OTLP/HTTP and held against the log."""

import logging
import threading

import anyio
import pytest

from tests.replay.histories import night
from tests.runtime.cluster import Cluster
from tests.runtime.collectors import Collector, silent_collector, values
from unicron import events as ev
from unicron.controlplane.replay import span_names as names
from unicron.controlplane.replay.casefile import cases_of
from unicron.controlplane.replay.spans import spans_of
from unicron.controlplane.runtime import telemetry
from unicron.controlplane.runtime.memory import MemoryLog, MemoryStream
from unicron.controlplane.runtime.observer import Observer


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    """Only what a test sets."""
    import os

    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


def observer_of(stream, instance="a"):
    return Observer.configured(
        cluster=stream.cluster, birth=stream.birth, instance=instance, version="1"
    )


async def run(stream, story, instance="a", spool=0):
    """A control plane that exports, and what happens to it; its log and what it was."""
    cluster, observer = Cluster(stream), observer_of(stream, instance)
    engine = cluster.start(instance, observer)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run)
        group.start_soon(cluster.answer)
        group.start_soon(cluster.beat, spool)
        if observer is not None:
            group.start_soon(observer.run, engine, MemoryLog(stream))
        await story(cluster)
        group.cancel_scope.cancel()
    if observer is not None:
        await observer.aclose()
    return cluster


async def train_and_fail(cluster):
    await cluster.train()
    await cluster.hit("n1/1")
    await cluster.hit("n2/0")


def from_log(stream):
    return [
        span
        for case in cases_of(stream.entries)
        if case.incident.resolved
        for span in spans_of(case, cluster=stream.cluster, birth=stream.birth)
    ]


def same(received, span):
    """Is the received span the one that the log gives, in all that it says?"""
    assert received.trace_id.hex() == span.trace_id
    assert received.span_id.hex() == span.span_id
    assert received.parent_span_id.hex() == span.parent_id
    assert received.name == span.name
    assert (received.start_time_unix_nano, received.end_time_unix_nano) == (
        span.start_ns,
        span.end_ns,
    )
    assert values(received.attributes) == span.attributes
    assert [
        (link.trace_id.hex(), link.span_id.hex(), values(link.attributes))
        for link in received.links
    ] == [(span.trace_id, x.span_id, {names.SEQUENCE: x.sequence}) for x in span.links]
    assert [
        (event.name, event.time_unix_nano, values(event.attributes)) for event in received.events
    ] == [(e.name, e.at_ns, e.attributes) for e in span.events]
    assert received.status.message == span.error


async def test_a_collector_receives_the_spans_that_the_log_gives(monkeypatch):
    stream = MemoryStream("c")
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
        await run(stream, train_and_fail)
        received = collector.spans()
        resource = collector.resources()[0][0]
        headers = next(h for path, h, _ in collector.posts if path == "/v1/traces")
    expected = from_log(stream)
    assert [s.name for s in expected].count("incident") == 2
    assert len(received) == len(expected)
    for span, wanted in zip(received, expected, strict=True):
        same(span, wanted)
    assert resource["service.name"] == "unicron-controlplane"
    assert resource["service.instance.id"] == "a"
    assert resource[names.CLUSTER] == "c"
    assert headers["x-token"] == "secret"


async def test_times_and_attributes_stand_in_the_log(monkeypatch):
    """Not by the code that made the spans: by the entries that their sequences name."""
    stream = MemoryStream("c")
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
        await run(stream, train_and_fail)
        spans = collector.spans()
        assert collector.resources()[0][0]["service.name"] == "ours"
        assert not collector.metrics()  # only the endpoint for traces was given
    log = stream.entries
    parents = {s.span_id: s for s in spans}
    for span in spans:
        said = values(span.attributes)
        first, last = said[names.FIRST_SEQUENCE], said[names.LAST_SEQUENCE]
        assert span.end_time_unix_nano <= log[last - 1].at_ns
        if not span.name.startswith(("transfer", "regroup")):
            assert span.end_time_unix_nano == log[last - 1].at_ns
        if not span.name.endswith(".rank"):
            assert span.start_time_unix_nano == log[first - 1].at_ns
        body = log[last - 1].envelope.body
        if span.name == "incident":
            assert isinstance(body, ev.IncidentResolved)
            assert said[names.INCIDENT] == body.incident
        elif span.name.endswith(".rank"):
            assert parents[span.parent_span_id].name == span.name.removesuffix(".rank")
            assert body.task == "gpt"
            if span.name != "redistribute.rank":
                assert said[names.WORKER] == body.worker
        else:
            assert parents[span.parent_span_id].name == "incident"
    assert {s.name for s in spans} >= {"detect", "classify", "quiesce", "quiesce.rank", "resume"}


async def test_a_new_leader_exports_what_was_resolved_just_before(monkeypatch):
    stream = MemoryStream("c")
    await run(stream, train_and_fail)  # exports nothing: no variable is set
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)

        async def lead(cluster):
            await cluster.until(lambda s: cluster.engine.leading)

        await run(stream, lead, instance="b")
        received = collector.spans()
    assert [s.span_id.hex() for s in received] == [s.span_id for s in from_log(stream)] != []


async def test_a_new_leader_leaves_alone_what_was_resolved_long_before(monkeypatch):
    now = [1_790_000_000_000_000_000]

    def clock():
        now[0] += 1_000_000
        return now[0]

    stream = MemoryStream("c", clock_ns=clock)
    await run(stream, train_and_fail)
    now[0] += 61_000_000_000
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)

        async def lead(cluster):
            await cluster.until(lambda s: cluster.engine.leading)
            await anyio.sleep(0.6)  # it has looked whether it leads

        await run(stream, lead, instance="b")
        assert collector.spans() == []
    assert len(from_log(stream)) > 2


async def test_metrics_of_a_run(monkeypatch):
    stream = MemoryStream("c")
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{collector.url}/v1/metrics")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")

        async def story(cluster):
            await train_and_fail(cluster)
            await anyio.sleep(0.7)

        await run(stream, story, spool=3)
        metrics = collector.metrics()
        assert collector.spans() == []  # only the endpoint for metrics was given

    def gauge(name):
        (point,) = metrics[name].gauge.data_points
        return point.as_int

    assert gauge(names.WAF_NOW) == gauge(names.WAF_BEST) > 0
    assert gauge(names.LOG_LAG) == 0
    assert (gauge(names.SPOOL_DEPTH), gauge(names.SPOOL_DEEPEST)) == (6, 3)
    (down,) = metrics[names.DOWNTIME].sum.data_points
    about = {names.SEVERITY: 2, names.CAUSE_TYPE: "worker.exited.v1"}
    assert values(down.attributes) == about
    closes = [s for s in from_log(stream) if s.name == "quiesce"]
    resumes = [s for s in from_log(stream) if s.name == "resume"]
    planned = {s.attributes[names.TRANSITION] for s in closes}
    stood = sum(
        next(
            r.start_ns
            for r in resumes
            if r.trace_id == c.trace_id
            and r.attributes[names.TRANSITION] == c.attributes[names.TRANSITION]
        )
        - c.start_ns
        for c in closes
    )
    assert planned == {1}
    assert down.as_double == pytest.approx(stood / 1e9)
    (detected,) = metrics[names.DETECT_TIME].histogram.data_points
    assert detected.count == 2
    transitions = {
        values(p.attributes)[names.PLANNED]: p.count
        for p in metrics[names.TRANSITION_TIME].histogram.data_points
    }
    assert transitions == {False: 2, True: 2}
    assert sum(p.count for p in metrics[names.PLAN_TIME].histogram.data_points) >= 2
    (solver,) = metrics[names.SOLVER_TIME].histogram.data_points
    assert solver.count >= 1
    assert metrics[names.LOOP_LAG].histogram.data_points[0].count >= 1


# --- Collectors that don't work ------------------------------------------------------------------


async def test_a_collector_that_never_answers_holds_up_nothing(monkeypatch):
    """Decisions go on while the export hangs, and the end waits no longer than its limit."""
    monkeypatch.setattr(telemetry, "CLOSE_LIMIT_S", 0.3)
    stream = MemoryStream("c")
    with silent_collector() as (url, connections):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")

        async def story(cluster):
            await train_and_fail(cluster)
            with anyio.fail_after(10):
                while not connections:
                    await anyio.sleep(0.01)
            await cluster.hit("n1/0")  # the exporter hangs in its request meanwhile
            assert any(t.name == "unicron-traces" for t in threading.enumerate())

        with anyio.fail_after(30):  # the time-out of the request is ten minutes
            cluster = await run(stream, story)
    assert len(cluster.state.incidents) == 3
    assert all(i.resolved for i in cluster.state.incidents.values())


def test_traces_beyond_the_queue_are_dropped_and_told(monkeypatch, caplog):
    going, taken = threading.Event(), []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    sink = telemetry.Telemetry(cluster="c", instance="a", version="1")

    def make():
        going.wait(20)
        taken.append(1)
        return ()

    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            sink.trace(make)
    dropped = caplog.text.count("a trace was dropped")
    going.set()
    sink.close(10)
    assert dropped > 0
    assert len(taken) + dropped == 200


async def test_a_trace_that_cannot_be_made_does_not_end_the_export(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    sink, made = telemetry.Telemetry(cluster="c", instance="a", version="1"), []

    def broken():
        raise ValueError("no trace of this one")

    sink.trace(broken)
    sink.trace(lambda: made.append(1) or ())
    sink.close(10)
    assert made == [1]
    assert "a trace could not be exported" in caplog.text


async def test_an_outage_is_told_once_and_so_is_its_end(monkeypatch, caplog):
    story = night()
    spans = tuple(
        span for case in cases_of(story.log) for span in spans_of(case, cluster="c", birth="told")
    )
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    said = "reach the collector"
    with Collector() as collector, caplog.at_level(logging.WARNING, telemetry.__name__):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sink = telemetry.Telemetry(cluster="c", instance="a", version="1")
        sink.add(names.DOWNTIME, 1.0, {})
        for status, lines in ((400, 2), (200, 4), (400, 6)):
            collector.status = status
            for _ in range(3):
                before = len(collector.posts)
                sink.trace(lambda: spans)
                with anyio.fail_after(20):
                    while len(collector.posts) < before + 4:
                        await anyio.sleep(0.01)
                    while caplog.text.count(said) < lines:
                        await anyio.sleep(0.01)
        assert caplog.text.count("no traces reach the collector") == 2
        assert caplog.text.count("no metrics reach the collector") == 2
        assert caplog.text.count("traces reach the collector again") == 1
        assert caplog.text.count("metrics reach the collector again") == 1
        sink.close(5)


# --- What the variables say ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables,traces,metrics",
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_SDK_DISABLED": "true"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, False),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "x",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            True,
            False,
        ),
    ],
)
def test_what_is_exported_is_up_to_the_variables(variables, traces, metrics):
    assert telemetry.wanted(variables, "TRACES") is traces
    assert telemetry.wanted(variables, "METRICS") is metrics


def test_without_variables_nobody_observes():
    assert observer_of(MemoryStream("c")) is None
