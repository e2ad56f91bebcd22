"""The log of a real service: a JSON object a line, with ids; and clients that hang up leave one line at DEBUG."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.acceptance.processes import Several
from tests.api.conftest import fields_of
from tests.service import Client, Service, TableClient, serving

PATIENCE_SECONDS = 30
ROWS = 20_000  # of 200 bytes: more than the buffers between two sockets hold
SCHEMA = {
    "fields": fields_of(id="BIGINT NOT NULL", n="BIGINT", note="STRING"),
    "primaryKeys": ["id"],
    "partitionKeys": [],
    "options": {"merge.max-staleness": "1 d"},
}
Opened = tuple[Service, TableClient]


@pytest.fixture(scope="module")
def debugging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A service that logs all it can, and a table with so many rows that a scan does not end by itself."""
    folder = tmp_path_factory.mktemp("logs")
    with serving(folder, workers="0", log_level="DEBUG", log_format="json") as (service, client):
        table = make_table(client)
        records = [{"id": number, "n": 1, "note": "x" * 200} for number in range(ROWS)]
        table.post_batch(records).raise_for_status()
        yield service, table


def make_table(client: Client) -> TableClient:
    client.create_database("shop")
    client.create_table("shop", "wide", SCHEMA).raise_for_status()
    return TableClient(client, "shop", "wide")


def lines_of(service: Service) -> list[dict[str, Any]]:
    """What was logged, from the first line on."""
    return [json.loads(line) for line in service.lines]


def wait_for(service: Service, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first line that is ``wanted``, once it is logged."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = next((line for line in lines_of(service) if wanted(line)), None)
        if found is not None:
            return found
        assert time.monotonic() < deadline, service.lines
        time.sleep(0.02)


def connected(table: TableClient) -> socket.socket:
    target = urlsplit(str(table.client.base_url))
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((target.hostname, target.port))
    return connection


def hang_up(connection: socket.socket, *, reset: bool) -> None:
    """End the connection, politely or as the system does it of a process that was killed with bytes unread."""
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def head(method: str, path: str, request_id: str, *headers: str) -> bytes:
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: localhost", f"X-Request-Id: {request_id}", *headers, "", ""]
    ).encode()


JSON_BODY = ("Content-Type: application/json", "Content-Length: 1000")
CHUNKED = ("Content-Type: application/json", "Transfer-Encoding: chunked")


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "answered"),
    [
        ("GET", "/rows:scan", (), b"", True),
        ("GET", "/changelog", ("Accept: text/event-stream",), b"", True),
        ("POST", "/batches", JSON_BODY, b'{"records": [', False),
        ("POST", "/batches", CHUNKED, b"1\r\n{\r\n", False),
        ("POST", "/rows:simulate", JSON_BODY, b"{", False),
        ("PUT", "/rows/1", JSON_BODY, b"{", False),
    ],
    ids=["scan", "events", "batch", "chunk", "simulation", "row"],
)
def test_a_client_that_hangs_up_is_one_line_at_debug(
    debugging: Opened, method: str, path: str, headers: tuple[str, ...], body: bytes, answered: bool, reset: bool
) -> None:
    service, table = debugging
    request_id = f"{method}{path.replace(':', '.')}-{len(headers)}{len(body)}-{reset}"
    connection = connected(table)
    connection.sendall(head(method, table.path + path, request_id, *headers) + body)
    if answered:
        assert connection.recv(12) == b"HTTP/1.1 200"
    else:
        assert table.client.get("/healthz").status_code == 200  # what came before is read by then
    hang_up(connection, reset=reset)
    line = wait_for(service, lambda one: one.get("request") == request_id)
    assert line["level"] == "DEBUG"
    assert "the client disconnected before its answer was complete" in line["message"]
    assert table.client.get("/healthz").status_code == 200
    mine = [line for line in lines_of(service) if line.get("request") == request_id]
    assert mine == [line]
    assert [line for line in lines_of(service) if "exc_info" in line or line["level"] in ("WARNING", "ERROR")] == []


def test_a_stop_is_one_line_of_who_stalls_and_ends_who_follows(tmp_path: Path) -> None:
    with serving(tmp_path, workers="0", log_format="json") as (service, client):
        table = make_table(client)
        connection = connected(table)
        connection.sendall(head("POST", f"{table.path}/batches", "stalled", *JSON_BODY) + b"{")
        assert client.get("/healthz").status_code == 200
        with client.stream("GET", f"{table.path}/changelog", headers={"Accept": "text/event-stream"}) as answer:
            received = answer.iter_lines()
            assert next(received) == ": follows"
            service.stop()
            assert [line for line in received if line] == []
        connection.settimeout(PATIENCE_SECONDS)
        assert connection.recv(12) == b"HTTP/1.1 503"
        connection.close()
    assert service.process.returncode == 0
    assert [line["message"] for line in lines_of(service) if line.get("request") == "stalled"] == [
        f"POST {table.path}/batches: cut off, for the service stops"
    ]
    assert [line for line in lines_of(service) if "exc_info" in line] == []


def test_merges_have_a_line_each_and_requests_where_a_setting_says_so(working: Several) -> None:
    service, table = working.service, working.make_table("logged")
    client = table.client
    client.get(f"{table.path}/rows/5", headers={"X-Request-Id": "looked-up"})
    line = wait_for(service, lambda one: one.get("request") == "looked-up")
    assert {name: line[name] for name in ("method", "path", "status", "operation", "level")} == {
        "method": "GET",
        "path": f"{table.path}/rows/5",
        "status": 404,
        "operation": "getRowByPath",
        "level": "INFO",
    }
    assert 0 < line["seconds"] < PATIENCE_SECONDS
    details = client.get(table.path).json()
    table.post_batch([{"id": 1, "n": 1}, {"id": 2, "n": 1}]).raise_for_status()
    merge = table.merge()
    line = wait_for(service, lambda one: one.get("merge") == merge["id"])
    assert (line["table"], line["outcome"], line["records"], line["rows"]) == (details["id"], "succeeded", 2, 2)
    assert line["seconds"] > 0
    compaction = table.finished(client.post(f"{table.path}/compact").json())
    reported = wait_for(service, lambda one: one.get("compaction") == compaction["id"])
    assert reported["outcome"] == "succeeded"
    assert [line for line in lines_of(service) if line.get("merge") == merge["id"]] == [line]
