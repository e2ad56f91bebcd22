"""Clients that offer another protocol with each request, as Java's does (``Upgrade: h2c``): the offer is ignored, and
the body is read whatever way it comes.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.api.openapi import served
from tests.service import Client, Service

OFFER = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
TABLE = "/v1/catalog/databases/shop/tables/orders"
WITH_BODIES = [
    (path, method)
    for path, item in served()["paths"].items()
    for method, operation in item.items()
    if isinstance(operation, dict) and "requestBody" in operation
]
POST = """
import java.net.URI;
import java.net.http.*;

public class Post {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 1; i <= 20; i++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\\"records\\": [{\\"id\\": " + i + "}]}")).build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.body());
        }
    }
}
"""


@pytest.fixture(scope="module")
def service(opened: tuple[Service, Client]) -> Service:
    service, client = opened
    client.create_database("shop")
    fields = [{"name": "id", "type": "BIGINT"}, {"name": "n", "type": "BIGINT"}]
    client.create_table("shop", "orders", {"fields": fields, "primaryKeys": ["id"]}).raise_for_status()
    return service


def connect(service: Service) -> socket.socket:
    address = urlsplit(service.url)
    connection = socket.create_connection((address.hostname, address.port), timeout=20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def head(path: str, body: bytes, *, method: str = "POST", offer: str = OFFER) -> bytes:
    kind = "Content-Type: application/json\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{offer}{kind}Content-Length: {len(body)}\r\n\r\n".encode()


def answer(connection: socket.socket) -> tuple[int, Any]:
    response = HTTPResponse(connection)
    response.begin()
    text = response.read()
    return response.status, json.loads(text) if text else None


def records(*ids: int) -> bytes:
    return json.dumps({"records": [{"id": i} for i in ids]}).encode()


@pytest.mark.parametrize("gap_seconds", [0, 0.0005, 0.002, 0.05])
def test_a_body_behind_an_offer_is_read_in_whatever_segments_it_comes(service: Service, gap_seconds: float) -> None:
    body = records(1, 2, 3)
    for pieces in ([head(f"{TABLE}/batches", body) + body], [head(f"{TABLE}/batches", body), body]):
        with connect(service) as connection:
            for _ in range(2):
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(gap_seconds)
                status, found = answer(connection)
                assert (status, found["records"]) == (202, 3)


def test_a_head_that_comes_byte_by_byte_is_read_as_a_whole(service: Service) -> None:
    body = records(4)
    with connect(service) as connection:
        for byte in head(f"{TABLE}/batches", body) + body:
            connection.sendall(bytes([byte]))
        status, found = answer(connection)
        assert (status, found["records"]) == (202, 1)


def test_requests_behind_one_with_an_offer_are_answered_in_order(service: Service) -> None:
    body = records(5)
    with connect(service) as connection:
        connection.sendall(head(f"{TABLE}/batches", body) + body + head(f"{TABLE}/rows", b"", method="GET", offer=""))
        received = b""  # both answers may come at once: a reader of the first would hold the second
        while received.count(b"HTTP/1.1 ") < 2:
            piece = connection.recv(65536)
            assert piece, received
            received += piece
        assert re.findall(rb"HTTP/1\.1 (\d+)", received) == [b"202", b"400"]  # a lookup without a key


def test_a_chunked_body_behind_an_offer_is_read(service: Service) -> None:
    body = records(6, 7)
    sent = head(f"{TABLE}/batches", body).replace(
        f"Content-Length: {len(body)}".encode(), b"Transfer-Encoding: chunked"
    )
    with connect(service) as connection:
        connection.sendall(sent + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        status, found = answer(connection)
        assert (status, found["records"]) == (202, 2)


@pytest.mark.parametrize(("path", "method"), WITH_BODIES)
def test_every_route_reads_the_body_of_a_request_with_an_offer(service: Service, path: str, method: str) -> None:
    """What is no JSON is refused with its place, so that an answer says whether the body was read."""
    asked = path.replace("{database}", "shop").replace("{table}", "orders")
    body = b'{"cut": '
    answers = []
    for offer in ("", OFFER):
        with connect(service) as connection:
            connection.sendall(head(asked, body, method=method.upper(), offer=offer))
            time.sleep(0.002)
            connection.sendall(body)
            status, found = answer(connection)
            answers.append((status, found["detail"], found.get("errors")))
    assert answers[0] == answers[1]


def test_a_body_that_ends_too_soon_is_never_accepted(service: Service) -> None:
    body = records(8)
    with connect(service) as connection:
        connection.sendall(head(f"{TABLE}/batches", body) + body[:-1])
        connection.shutdown(socket.SHUT_WR)
        assert not connection.recv(1000).startswith(b"HTTP/1.1 2")


@pytest.mark.parametrize(
    "kind", ["application/json", "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"]
)
def test_an_empty_body_is_refused(service: Service, kind: str) -> None:
    with Client(base_url=service.url, trust_env=False) as client:
        found = client.post(f"{TABLE}/batches", content=b"", headers={"Content-Type": kind})
    assert (found.status_code, found.json()["errors"][0]["detail"]) == (400, "the body is empty")


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a Java compiler: a JDK on the path")
def test_what_javas_own_client_posts_is_stored(service: Service, tmp_path: Path) -> None:
    program = tmp_path / "Post.java"
    program.write_text(POST)
    done = subprocess.run(
        ["java", str(program), f"{service.url}{TABLE}/batches"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["202"] * 20, done.stdout + done.stderr
    assert all('"records":1' in line for line in lines)
