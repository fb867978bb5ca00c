"""A collector of OpenTelemetry's protocol over HTTP, as the exporters of real processes know it."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collected:
    """The spans that came in, each with the name of the service that sent it."""

    def __init__(self) -> None:
        self._spans: list[tuple[str, Span]] = []

    def add(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            (service,) = (one.value.string_value for one in resource.resource.attributes if one.key == "service.name")
            self._spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]

    def __call__(self, service: str, name: str) -> list[Span]:
        return [span for of, span in self._spans if (of, span.name) == (service, name)]

    def ancestors(self, span: Span) -> list[bytes]:
        """Ids of the spans above it, nearest first; the last is of a process that exports nothing here."""
        above, by_id = [], {one.span_id: one for _, one in self._spans}
        while span.parent_span_id:
            above.append(span.parent_span_id)
            if span.parent_span_id not in by_id:
                break
            span = by_id[span.parent_span_id]
        return above


@contextlib.contextmanager
def collecting() -> Iterator[tuple[str, Collected]]:
    """Its address, and what it got."""
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers.get("content-encoding", "identity") == "identity"
            collected.add(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", collected
        finally:
            server.shutdown()
            thread.join()
