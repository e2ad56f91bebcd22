"""Traces of a real service, as a collector receives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.service import Client, Service, TableClient

PATIENCE_SECONDS = 60
FIELDS = [{"id": 0, "name": "id", "type": "BIGINT NOT NULL"}, {"id": 1, "name": "n", "type": "BIGINT"}]
SCHEMA = {"fields": FIELDS, "primaryKeys": ["id"], "partitionKeys": [], "options": {"merge.max-staleness": "1 d"}}


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

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = attributes_of(resource.resource)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        *(one.name, one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex()),
                        *(attributes_of(one), service, one.status.code == 2),
                    )
                    for one in scope.spans
                ]

    def wait_for(self, wanted: Callable[[Span], bool]) -> Span:
        """The first span that is ``wanted``, once it has come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := next(filter(wanted, list(self.spans)), None)) is None:
            assert time.monotonic() < deadline, self.spans
            time.sleep(0.02)
        return found


def attributes_of(reported: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in reported.attributes}


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A collector, and its address."""
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
        yield collector, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_request_its_batch_a_merge_and_its_spark_job_are_spans(tmp_path: Path, spark_remote: str) -> None:
    with collecting() as (collector, address):
        environment = {"KEYFOLD_SPARK_REMOTE": spark_remote, "KEYFOLD_PROCESSES": "2"}
        exported = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "100", "NO_PROXY": "*"}
        service = Service(tmp_path, environment | exported)
        try:
            with Client(base_url=service.url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
                client.wait_ready()
                check_spans(collector, client)
        finally:
            service.stop()


def check_spans(collector: Collector, client: Client) -> None:
    client.create_database("shop")
    client.create_table("shop", "wide", SCHEMA).raise_for_status()
    table = TableClient(client, "shop", "wide")
    caller, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    posted = table.post_batch([{"id": 1, "n": 1}], traceparent=f"00-{caller}-{parent}-01").json()
    refused = table.post_batch([{"id": 7, "n": "secret"}])
    merge = table.merge()
    assert (refused.status_code, merge["state"]) == (400, "succeeded")

    batch = collector.wait_for(lambda one: one.attributes.get("keyfold.batch") == posted["id"])
    request = collector.wait_for(lambda one: one.id == batch.parent)
    assert (batch.name, batch.trace, batch.service, batch.failed) == ("batch", caller, "keyfold", False)
    assert (request.trace, request.parent, request.attributes["http.response.status_code"]) == (caller, parent, 202)

    folded = collector.wait_for(lambda one: one.attributes.get("keyfold.merge") == merge["id"])
    together = collector.wait_for(lambda one: one.id == folded.parent)
    job = collector.wait_for(lambda one: one.name == "job" and one.parent == together.id)
    assert (together.name, together.parent, together.attributes["keyfold.merges"]) == ("round", "", 1)
    assert (folded.name, folded.attributes["keyfold.outcome"]) == ("merge", "succeeded")
    assert (job.name, job.attributes["keyfold.spark.tag"]) == ("job", f"keyfold-{folded.trace}")

    failed = collector.wait_for(lambda one: one.name == "batch" and one.failed)
    assert "secret" not in str(failed)


def test_without_the_variables_there_is_no_trace(tmp_path: Path) -> None:
    with collecting() as (collector, _):
        service = Service(tmp_path, {"KEYFOLD_WORKERS": "0"})
        try:
            with Client(base_url=service.url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
                client.create_database("shop")
        finally:
            service.stop()
        assert collector.spans == []
        assert [line for line in service.lines if "OTEL" in line] == []
