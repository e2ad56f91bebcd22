"""What a service sends to a collector of traces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_SECONDS = 60


class Span(NamedTuple):
    """A span as it was exported; ids in hexadecimal."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    service: str
    failed: bool


class Collector:
    """Keeps what it is sent."""

    address: str

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = attributes_of(resource.resource)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        *(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()),
                        *(attributes_of(span), service, span.status.code == 2),
                    )
                    for span in scope.spans
                ]

    def wait_for(self, wanted: Callable[[Span], bool]) -> Span:
        """The first span that is ``wanted``, once it has come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := next(filter(wanted, list(self.spans)), None)) is None:
            assert time.monotonic() < deadline, self.spans
            time.sleep(0.02)
        return found


def attributes_of(reported: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in reported.attributes
    }


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector()

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Requests) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        collector.address = f"http://127.0.0.1:{server.server_port}"
        yield collector
        server.shutdown()
        thread.join()
