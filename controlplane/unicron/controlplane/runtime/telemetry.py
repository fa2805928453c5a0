"""OpenTelemetry: traces of incidents and metrics to whoever the OTEL_ variables name.

The one module that knows OpenTelemetry. Nothing here is ever waited for by the engine: what is to
be exported goes into a bounded queue that a thread empties; what doesn't fit is dropped and
counted. Spans are exported as replay/spans.py made them, with their own ids and times.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from unicron.controlplane.replay import span_names as names
from unicron.controlplane.replay.spans import Span

if TYPE_CHECKING:  # it takes long to import and is needed only by whoever exports
    from opentelemetry.metrics import CallbackOptions, Counter, Histogram
    from opentelemetry.sdk.metrics.export import (
        MetricExporter,
        MetricExportResult,
        MetricsData,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

#: Incidents that may wait for a slow collector, and how many spans go out in one request.
_WAITING_MAX = 64
_BATCH = 512
#: How long the end of the process may be held up by a collector.
CLOSE_LIMIT_S = 2.0
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

Attributes = Mapping[str, str | int | bool]


def wanted(environ: Mapping[str, str], signal: str) -> bool:
    """Do the OTEL_ variables ask for this signal (``TRACES`` or ``METRICS``) over OTLP/HTTP?"""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    named = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if not any(environ.get(name, "").strip() for name in named):
        return False
    if environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip() not in ("", "otlp"):
        return False
    special = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "").strip()
    protocol = special or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    if protocol not in ("", "http/protobuf"):
        log.warning("no %s are exported: %s isn't http/protobuf", signal.lower(), protocol)
        return False
    return True


class Telemetry:
    """What is exported, by the OTEL_ variables of this process. Its methods return at once and may
    be called from any thread; close() ends it."""

    def __init__(self, *, cluster: str, instance: str, version: str) -> None:
        """Whatever the variables say about headers, certificates, intervals, compression and the
        like is read by OpenTelemetry itself."""
        resource = _resource(cluster, instance, version)
        self._traces = _Traces(resource, export=wanted(os.environ, "TRACES"))
        self._metrics = _Metrics(resource) if wanted(os.environ, "METRICS") else None

    def trace(self, make: Callable[[], tuple[Span, ...]]) -> None:
        """Export what `make` gives, if traces are wanted. It is called in another thread, in any
        case; dropped if too many wait."""
        if not self._traces.take(make):
            log.warning("a trace was dropped: %d wait for the collector already", _WAITING_MAX)
            self.add(names.TRACES_DROPPED, 1, {})

    def add(self, name: str, amount: float, attributes: Attributes) -> None:
        """Count. The metric is in seconds unless it is one of dropped traces."""
        if self._metrics is not None:
            self._metrics.counter(name).add(amount, dict(attributes))

    def took(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Something took so long."""
        if self._metrics is not None:
            self._metrics.histogram(name).record(seconds, dict(attributes))

    def gauge(self, name: str, unit: str, read: Callable[[], int]) -> None:
        """Export what `read` gives, which is called in another thread."""
        if self._metrics is not None:
            self._metrics.gauge(name, unit, read)

    def close(self, limit_s: float | None = None) -> None:
        """Export what waits, but never longer than `limit_s` (CLOSE_LIMIT_S if not given)."""
        limit_s = CLOSE_LIMIT_S if limit_s is None else limit_s
        closer = threading.Thread(
            target=self._close, args=(limit_s,), daemon=True, name="unicron-telemetry-end"
        )
        closer.start()
        closer.join(limit_s)

    def _close(self, limit_s: float) -> None:
        """Traces first: what is counted on the way belongs to the last metrics."""
        end = time.monotonic() + limit_s
        self._traces.close(limit_s * 0.6)
        if self._metrics is not None:
            self._metrics.close(max(0.1, end - time.monotonic()))


def _resource(cluster: str, instance: str, version: str) -> "Resource":
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": names.SERVICE,
        "service.version": version,
        "service.instance.id": instance,
        names.CLUSTER: cluster,
    }
    said = OTELResourceDetector().detect().attributes  # the variables come first
    return Resource.create({key: value for key, value in ours.items() if key not in said})


class _Outage:
    """Tells once that the collector takes nothing of a signal any more, and once that it does."""

    def __init__(self, signal: str) -> None:
        self._signal = signal
        self._out = False

    def came(self, result: "SpanExportResult | MetricExportResult") -> None:
        """Such was the end of an export, after whatever it was tried again."""
        out = result.name != "SUCCESS"
        if out and not self._out:
            log.warning(
                "no %s reach the collector that the OTEL_ variables name; these are lost, later "
                "ones are sent as they come",
                self._signal,
            )
        elif self._out and not out:
            log.warning("%s reach the collector again", self._signal)
        self._out = out


# --- Traces --------------------------------------------------------------------------------------


class _Traces:
    """A thread that makes, and exports, what is in a bounded queue."""

    def __init__(self, resource: "Resource", *, export: bool) -> None:
        self._resource = resource
        self._exporter: SpanExporter | None = _span_exporter() if export else None
        self._outage = _Outage("traces")
        self._waiting: queue.Queue[Callable[[], tuple[Span, ...]] | None]
        self._waiting = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="unicron-traces", daemon=True)
        self._thread.start()

    def take(self, make: Callable[[], tuple[Span, ...]]) -> bool:
        """False: too many wait already."""
        try:
            self._waiting.put_nowait(make)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        while (make := self._waiting.get()) is not None:
            try:
                self._export(make())
            except Exception:
                log.exception("a trace could not be exported")

    def _export(self, spans: tuple[Span, ...]) -> None:
        if self._exporter is None:
            return
        made = [_readable(span, self._resource) for span in spans]
        for start in range(0, len(made), _BATCH):
            self._outage.came(self._exporter.export(made[start : start + _BATCH]))

    def close(self, limit_s: float) -> None:
        """Let the thread finish within the limit, then interrupt it."""
        end = time.monotonic() + limit_s
        try:
            self._waiting.put(None, timeout=limit_s)
        except queue.Full:
            log.warning("%d traces were not exported", self._waiting.qsize())
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._exporter is not None:
            self._exporter.shutdown()


def _span_exporter() -> "SpanExporter":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _readable(span: Span, resource: "Resource") -> "ReadableSpan":
    """The span for OpenTelemetry's exporter: nothing is generated, not an id and not a time."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

    def context(span_id: str) -> SpanContext:
        return SpanContext(
            int(span.trace_id, 16),
            int(span_id, 16),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )

    return ReadableSpan(
        name=span.name,
        context=context(span.span_id),
        parent=context(span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(e.name, e.attributes, e.at_ns) for e in span.events],
        links=[Link(context(x.span_id), {names.SEQUENCE: x.sequence}) for x in span.links],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=InstrumentationScope(names.SCOPE),
    )


# --- Metrics -------------------------------------------------------------------------------------


class _Metrics:
    """Instruments by name, made when they are first needed."""

    def __init__(self, resource: "Resource") -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        reader = PeriodicExportingMetricReader(_metric_exporter())
        # Its end at exit isn't bounded; ours is.
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter(names.SCOPE)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._making = threading.Lock()

    def counter(self, name: str) -> "Counter":
        with self._making:
            if name not in self._counters:
                unit = "{trace}" if name == names.TRACES_DROPPED else "s"
                self._counters[name] = self._meter.create_counter(name, unit=unit)
            return self._counters[name]

    def histogram(self, name: str) -> "Histogram":
        with self._making:
            if name not in self._histograms:
                self._histograms[name] = self._meter.create_histogram(
                    name, unit="s", explicit_bucket_boundaries_advisory=_SECONDS
                )
            return self._histograms[name]

    def gauge(self, name: str, unit: str, read: Callable[[], int]) -> None:
        from opentelemetry.metrics import Observation

        def observe(options: "CallbackOptions") -> list[Observation]:
            return [Observation(read())]

        self._meter.create_observable_gauge(name, callbacks=[observe], unit=unit)

    def close(self, limit_s: float) -> None:
        self._provider.shutdown(timeout_millis=limit_s * 1000)


def _metric_exporter() -> "MetricExporter":
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    outage = _Outage("metrics")

    class Told(OTLPMetricExporter):
        """Notes how each export ended; nobody else sees it."""

        def export(
            self, metrics_data: "MetricsData", timeout_millis: float | None = 10_000, **more: object
        ) -> "MetricExportResult":
            result = super().export(metrics_data, timeout_millis, **more)
            outage.came(result)
            return result

    return Told()
