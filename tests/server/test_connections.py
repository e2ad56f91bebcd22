"""Clients that connect, and then are slow, silent, or too many: each is told so, and others do not notice."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.middleware.limits import BodyLimit
from app.api.middleware.observed import Observed
from app.server.connections import MOST_FIELDS, MOST_HEAD_BYTES, ConnectionBounds
from app.server.serving import StoppingServer
from app.telemetry.metrics import Metrics
from tests.builders import settings_with

pytestmark = pytest.mark.slow(reason="clients are slow here")
PATIENCE_SECONDS = 20
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = GET.replace(b"/ ", b"/healthz ")
WAIT = GET.replace(b"/ ", b"/wait ")
ENDLESS = GET.replace(b"/ ", b"/endless ")


@dataclass
class Served:
    """A small application on a port; ``arrived`` counts requests that wait until ``go``."""

    server: StoppingServer
    address: tuple[str, int]
    go: threading.Event
    arrived: threading.Semaphore
    ended: threading.Event
    thread: threading.Thread
    sockets: list[socket.socket] = field(default_factory=list)

    def connect(self, first: bytes = b"") -> socket.socket:
        connection = socket.create_connection(self.address, timeout=PATIENCE_SECONDS)
        connection.sendall(first)
        self.sockets.append(connection)
        return connection

    def busy(self, count: int) -> None:
        """So many connections with a request under way."""
        for _ in range(count):
            self.connect(WAIT)
        for _ in range(count):
            assert self.arrived.acquire(timeout=PATIENCE_SECONDS)


def application(folder: Path, served: Any, **settings: Any) -> FastAPI:
    app = FastAPI()
    app.state.parts = SimpleNamespace(heads=SimpleNamespace(stop=lambda: None))
    app.add_middleware(BodyLimit, settings=settings_with(KEYFOLD_DATA=folder, **settings))
    app.add_middleware(Observed, metrics=Metrics())

    @app.get("/")
    @app.get("/healthz")
    @app.post("/")
    async def answer() -> str:
        return "ok"

    @app.get("/wait")
    async def wait() -> str:
        served.arrived.release()
        while not served.go.is_set():
            await asyncio.sleep(0.01)
        return "ok"

    class Endless(StreamingResponse):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await super().__call__(scope, receive, send)
            finally:
                served.ended.set()

    @app.get("/endless")
    async def endless() -> Endless:
        return Endless(repeat(b"x" * 2**20))

    return app


@contextmanager
def serving(folder: Path, bounds: ConnectionBounds, **settings: Any) -> Iterator[Served]:
    waiting = SimpleNamespace(go=threading.Event(), arrived=threading.Semaphore(0), ended=threading.Event())
    server = StoppingServer(application(folder, waiting, **settings), bounds, stop_seconds=1)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        served = Served(server, listener.getsockname(), thread=thread, **vars(waiting))
        thread.start()
        try:
            yield served
        finally:
            waiting.go.set()
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)
            for connection in served.sockets:
                connection.close()
            assert not thread.is_alive()


def rest(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def answer(connection: socket.socket) -> bytes:
    """The beginning of an answer."""
    return connection.recv(65536)


def problem(response: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(response[response.index(b"\r\n\r\n") :])
    return body


QUICK = ConnectionBounds(connections=4, head_seconds=0.3, silence_seconds=0.5)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without patience."""
    with serving(tmp_path_factory.mktemp("quick"), QUICK, silence_seconds=0.5) as served:
        yield served


@pytest.mark.parametrize("before", [b"", GET])
@pytest.mark.parametrize("head", [b"G", b"GET / HTTP/1.1\r\nHost: local", b"\r\nGET / HTTP/1.1\r\n"])
def test_a_head_that_does_not_end_is_answered_408(quick: Served, before: bytes, head: bytes) -> None:
    connection = quick.connect(before)
    if before:
        assert answer(connection).startswith(b"HTTP/1.1 200")
    connection.sendall(head)
    reported = rest(connection)
    assert reported.startswith(b"HTTP/1.1 408")
    assert problem(reported)["errors"][0]["code"] == "too_slow"
    assert "did not come within 0.3 seconds" in problem(reported)["detail"]


@pytest.mark.parametrize("said", [b"", b"\r\n\r\n"])
def test_a_connection_without_a_request_is_closed(quick: Served, said: bytes) -> None:
    assert rest(quick.connect(said)) == b""


def test_a_body_that_stalls_is_answered_408(quick: Served) -> None:
    reported = rest(quick.connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"))
    assert reported.startswith(b"HTTP/1.1 408")
    assert "1 bytes" in problem(reported)["detail"]


def test_a_body_that_trickles_is_answered_408(tmp_path: Path) -> None:
    with serving(tmp_path, ConnectionBounds(), silence_seconds=0.5, body_bytes_per_second=10**6) as served:
        connection = served.connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n")
        connection.settimeout(0.01)
        reported = b""
        while not reported:  # it is never silent
            try:
                connection.sendall(b"x")
                reported = answer(connection)
            except TimeoutError:
                continue
        assert reported.startswith(b"HTTP/1.1 408")


def test_fields_are_bounded(quick: Served) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    assert answer(quick.connect(head + b"a: b\r\n" * (MOST_FIELDS - 1) + b"\r\n")).startswith(b"HTTP/1.1 200")
    reported = rest(quick.connect(head + b"a: b\r\n" * MOST_FIELDS + b"\r\n"))
    assert reported.startswith(b"HTTP/1.1 400")
    assert f"at most {MOST_FIELDS} header fields" in problem(reported)["detail"]


CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("end", [b"0\r\nx: ", b"1;"])
def test_the_text_between_two_chunks_is_bounded(quick: Served, end: bytes) -> None:
    connection = quick.connect(CHUNKED + end)
    with pytest.raises(OSError):  # reset, or a broken pipe
        for _ in range(100):
            connection.sendall(b"y" * MOST_HEAD_BYTES)


def test_fields_behind_a_body_count_with_the_others(quick: Served) -> None:
    reported = rest(quick.connect(CHUNKED + b"0\r\n" + b"a: b\r\n" * MOST_FIELDS + b"\r\n"))
    assert reported.startswith(b"HTTP/1.1 400")


def test_an_unread_answer_is_given_up(quick: Served) -> None:
    quick.ended.clear()
    quick.connect(ENDLESS)
    assert quick.ended.wait(PATIENCE_SECONDS)


def test_the_longest_idle_connection_is_closed_for_a_new_one(tmp_path: Path) -> None:
    with serving(tmp_path, ConnectionBounds(connections=3)) as served:
        served.busy(1)
        first, second = served.connect(GET), served.connect(GET)
        assert answer(first)
        assert answer(second)
        first.sendall(GET)
        assert answer(first).startswith(b"HTTP/1.1 200")  # the second has waited longer now
        assert answer(served.connect(GET)).startswith(b"HTTP/1.1 200")
        assert rest(second) == b""
        first.sendall(GET)
        assert answer(first).startswith(b"HTTP/1.1 200")


def test_with_all_connections_busy_health_is_answered_and_others_get_503_with_retry_after(tmp_path: Path) -> None:
    with serving(tmp_path, ConnectionBounds(connections=3)) as served:
        served.busy(3)
        reported = rest(served.connect(GET))
        assert reported.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in reported.lower()
        assert problem(reported)["errors"][0]["code"] == "too_many"
        healthy = rest(served.connect(HEALTH))
        assert healthy.startswith(b"HTTP/1.1 200")
        assert healthy.endswith(b'"ok"')
        served.go.set()
        for connection in served.sockets[:3]:
            assert answer(connection).startswith(b"HTTP/1.1 200")
        assert answer(served.connect(GET)).startswith(b"HTTP/1.1 200")


def test_far_too_many_connections_are_closed_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, ConnectionBounds(connections=2)) as served:
        served.busy(2)
        silent = [served.connect() for _ in range(100)]
        assert [rest(connection) for connection in silent[:36]] == [b""] * 36
        assert rest(served.connect(HEALTH)).startswith(b"HTTP/1.1 200")
        served.go.set()
        for connection in served.sockets[:2]:
            assert answer(connection).startswith(b"HTTP/1.1 200")
        assert answer(served.connect(GET)).startswith(b"HTTP/1.1 200")


def test_a_process_that_may_open_few_files_logs_what_it_takes_and_what_it_needs() -> None:
    program = (
        "import logging, resource; from app.server.connections import ConnectionBounds, Connections;"
        " logging.basicConfig(); resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400));"
        " Connections(ConnectionBounds())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "may open 400 files, so it takes 80 connections at a time; let it open 1320 (ulimit -n" in ended.stderr


def test_requests_that_a_stop_cuts_off_get_503(tmp_path: Path) -> None:
    with serving(tmp_path, ConnectionBounds()) as served:
        body = served.connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        served.busy(1)
        head, idle = served.connect(b"GET / HT"), served.connect()
        served.server.should_exit = True
        served.thread.join(PATIENCE_SECONDS)
        assert not served.thread.is_alive()
        for connection in (body, served.sockets[1]):
            reported = rest(connection)
            assert reported.startswith(b"HTTP/1.1 503")
            assert "did not finish the request; retry" in problem(reported)["detail"]
        assert rest(head) == rest(idle) == b""
