"""Spans as OTLP in JSON: what collectors and tracing tools read from a file."""

from collections.abc import Iterable

import msgspec

from unicron.controlplane.replay import span_names as names
from unicron.controlplane.replay.spans import Attributes, AttributeValue, Span

_INTERNAL = 1
_STATUS_ERROR = 2
#: Trace flags of what was sampled, in spans and links.
_SAMPLED = 1


def otlp_json(spans: Iterable[Span]) -> bytes:
    """One ExportTraceServiceRequest as JSON (OTLP 1.x: ids in hex, 64-bit integers as strings).
    The same spans give the same bytes."""
    request = {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": names.SERVICE})},
                "scopeSpans": [
                    {"scope": {"name": names.SCOPE}, "spans": [_span(span) for span in spans]}
                ],
            }
        ]
    }
    return msgspec.json.encode(request) + b"\n"


def _span(span: Span) -> dict[str, object]:
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "flags": _SAMPLED,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
        "events": [
            {
                "timeUnixNano": str(event.at_ns),
                "name": event.name,
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ],
        "links": [
            {
                "traceId": span.trace_id,
                "spanId": link.span_id,
                "flags": _SAMPLED,
                "attributes": _attributes({names.SEQUENCE: link.sequence}),
            }
            for link in span.links
        ],
        "status": {"code": _STATUS_ERROR, "message": span.error} if span.error else {},
    }


def _attributes(attributes: Attributes) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: AttributeValue) -> dict[str, object]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(item) for item in value]}}
