"""What reaches a real port before anybody has shown a token: nothing of it is read, kept, or left without an answer."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.catalog.database import CatalogDatabase
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.service import Client, Service, serving

EIGHT_MIB = 8 * 2**20
CHUNK = b"10000\r\n" + b"[" * 65536 + b"\r\n"
JSON_TYPE = "Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Client]]:
    """A service with a token that nobody here has."""
    data = tmp_path_factory.mktemp("closed")
    database = CatalogDatabase(Settings(KEYFOLD_DATA=data).catalog_url)
    database.migrate()
    create_token(database, "till")
    database.close()
    with serving(data, workers="0") as service:
        yield service


def resident_bytes(service: Service) -> int:
    """The memory of the serving process."""
    pages = Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def operations(client: Client) -> list[tuple[str, str]]:
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    return [(method.upper(), re.sub(r"{\w+}", "x", path)) for path, methods in paths.items() for method in methods]


@contextmanager
def connected(client: Client) -> Iterator[socket.socket]:
    target = urlsplit(str(client.base_url))
    with socket.create_connection((target.hostname, target.port), timeout=30) as connection:
        yield connection


def head(method: str, path: str, *headers: str, host: str = "localhost", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", f"Host: {host}", *headers, "", ""]).encode()


def answer_of(connection: socket.socket) -> tuple[int, bytes]:
    """(status, body) of the next response, which must come whole."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def sent_whole(connection: socket.socket, method: str, path: str, *, chunked: bool) -> int:
    """The status that a client sees that sends all of its eight MiB before it reads."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {EIGHT_MIB}"
    connection.sendall(head(method, path, "Content-Type: application/json", length))
    piece = CHUNK if chunked else CHUNK[7:-2]
    for _ in range(EIGHT_MIB // 65536):
        connection.sendall(piece)
    connection.sendall(b"0\r\n\r\n" if chunked else b"")
    return answer_of(connection)[0]


@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
def test_eight_mib_without_a_token_are_refused_by_every_route_in_flat_memory(
    closed: tuple[Service, Client], chunked: bool
) -> None:
    service, client = closed
    asked = operations(client)
    assert len(asked) > 30
    before = resident_bytes(service)
    for method, path in asked:
        with connected(client) as connection:
            status = sent_whole(connection, method, path, chunked=chunked)
        assert status == (413 if path in {"/healthz", "/readyz"} else 401), f"{method} {path}"
        assert resident_bytes(service) - before < EIGHT_MIB, f"{method} {path}"
    assert client.get("/healthz").status_code == 200


LARGER = {"postBatch", "postDatabaseBatches", "simulateRows", "simulateMerge"}


@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
def test_eight_mib_are_too_large_for_all_but_batches_and_simulations(
    opened: tuple[Service, Client], chunked: bool
) -> None:
    _, client = opened
    paths = client.get("/openapi.json").json()["paths"]
    larger = {
        (method.upper(), re.sub(r"{\w+}", "x", path))
        for path, methods in paths.items()
        for method, operation in methods.items()
        if operation["operationId"] in LARGER
    }
    assert len(larger) == len(LARGER)
    taken = set()
    for method, path in operations(client):
        with connected(client) as connection:
            if sent_whole(connection, method, path, chunked=chunked) != 413:
                taken.add((method, path))
    assert taken == larger


def test_who_sends_slowly_is_answered_before_the_body_and_let_go(closed: tuple[Service, Client]) -> None:
    _, client = closed
    for length in ("Content-Length: 1000000", "Transfer-Encoding: chunked"):
        with connected(client) as connection:
            connection.sendall(head("POST", "/v1/catalog/databases", length) + b"1\r\n{")
            assert answer_of(connection)[0] == 401
            assert ended(connection)
            assert client.get("/healthz").status_code == 200


def ended(connection: socket.socket) -> bool:
    """Whether the service ends the connection although the client goes on sending, now and then a byte."""
    connection.settimeout(0.5)
    for _ in range(120):
        try:
            connection.sendall(b"1")
            if connection.recv(1000) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_curl_sees_the_refusal_of_what_it_still_sends(closed: tuple[Service, Client], tmp_path: Path) -> None:
    _, client = closed
    body = tmp_path / "body"
    body.write_bytes(b" " * 2 * EIGHT_MIB)
    for extra in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect:"]):
        command = ["curl", "-sS", "--data-binary", f"@{body}", "-H", "Content-Type: application/json", *extra]
        done = subprocess.run(
            [*command, f"{client.base_url}/v1/catalog/databases"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert '"errorCode":"unauthorized"' in done.stdout, done.stderr


def test_headers_without_end_are_refused_before_they_fill_the_memory(opened: tuple[Service, Client]) -> None:
    _, client = opened
    with connected(client) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"x-more: " + b"x" * 8192 + b"\r\n")
                time.sleep(0.001)
        answer = b""
        with suppress(ConnectionResetError):  # closed with bytes unread, the answer may be lost
            answer = connection.recv(12)
        assert answer in (b"HTTP/1.1 400", b"")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head("GET", "/v1/config", host="localhost"), 200),
        (head("GET", "/v1/config", host="evil.example"), 403),
        (head("GET", "/v1/config", host="localhost:1"), 403),
        (head("GET", "/v1/config", host="127.0.0.1.evil.example"), 403),
        (head("GET", "/v1/config", "Sec-Fetch-Site: cross-site"), 403),
        (head("GET", "/v1/config", "Origin: null"), 403),
        (b"GET /v1/config HTTP/1.0\r\n\r\n", 403),
        (b"GET /v1/config HTTP/1.1\r\n\r\n", 400),
        (head("GET", "/v1/config", "Host: localhost"), 400),
        (head("GET", "http://localhost/v1/config"), 200),  # RFC 9112 §3.2.2: a server takes the absolute form
        (head("GET", "/v1/config", "Connection: Upgrade", "Upgrade: websocket", host="evil.example"), 403),
    ],
)
def test_hosts_and_pages_are_judged_as_they_come_over_the_wire(
    opened: tuple[Service, Client], request_head: bytes, status: int
) -> None:
    _, client = opened
    with connected(client) as connection:
        connection.sendall(request_head)
        assert answer_of(connection)[0] == status


def test_the_port_that_was_bound_is_the_port_of_the_host(opened: tuple[Service, Client]) -> None:
    _, client = opened
    assert client.get("/v1/config").status_code == 200
    assert client.get("/v1/config", headers={"Host": f"localhost:{urlsplit(str(client.base_url)).port}"}).is_success


def test_a_kept_alive_connection_waits_for_no_acknowledgement(opened: tuple[Service, Client]) -> None:
    _, client = opened
    target = urlsplit(str(client.base_url))
    connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=30)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    began = time.monotonic()
    for _ in range(20):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
    # Each took 44 ms while the answer's second packet waited for the acknowledgement of its first.
    assert time.monotonic() - began < 20 * 0.020
    connection.close()
