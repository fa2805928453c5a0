"""Collectors for tests: one that takes what is sent over OTLP/HTTP, and one that never answers."""

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """`spans()` and `metrics()` give what has arrived; `url` is its base endpoint; `status` is what
    it answers."""

    def __init__(self):
        self.posts: list[tuple[str, dict, bytes]] = []
        self.status = 200
        posts, collector = self.posts, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posts.append((self.path, dict(self.headers), body))
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def resources(self):
        """(resource attributes, spans) of every request, in the order of arrival."""
        found = []
        for path, _, body in list(self.posts):
            if path == "/v1/traces":
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    spans = [span for scope in resource.scope_spans for span in scope.spans]
                    found.append((values(resource.resource.attributes), spans))
        return found

    def spans(self):
        return [span for _, spans in self.resources() for span in spans]

    def metrics(self):
        """Newest data points by the metric's name."""
        found = {}
        for path, _, body in list(self.posts):
            if path == "/v1/metrics":
                request = ExportMetricsServiceRequest.FromString(body)
                for resource in request.resource_metrics:
                    for scope in resource.scope_metrics:
                        found |= {metric.name: metric for metric in scope.metrics}
        return found


def values(attributes):
    """OTLP attributes as a dict of plain values."""

    def plain(value):
        kind = value.WhichOneof("value")
        content = getattr(value, kind)
        return tuple(plain(v) for v in content.values) if kind == "array_value" else content

    return {a.key: plain(a.value) for a in attributes}


@contextlib.contextmanager
def silent_collector():
    """Its base endpoint and the list of who connected: it accepts and never answers."""
    connections: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.05)
    over = threading.Event()

    def accept():
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                connections.append(server.accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", connections
    finally:
        over.set()
        thread.join()
        server.close()
        for connection in connections:
            connection.close()
