"""A service that stops waits for no request that waits itself."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.server.serving import StoppingServer
from tests.api.conftest import TABLES

BATCHES = f"{TABLES}/wide/batches"
PATIENCE_SECONDS = 20  # less than the requests would wait


def test_who_waits_for_a_merge_is_answered_202_when_the_service_stops(
    app: FastAPI, wide: object, shop: TestClient
) -> None:
    parts: Parts = app.state.parts
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shop.post, BATCHES, json={"records": [{"id": 1}]}, headers={"Prefer": "wait=60"})
        while not shop.get(f"{TABLES}/wide/merges").json()["merges"]:  # the waiting request asks for one
            pass
        assert shop.portal is not None
        shop.portal.call(parts.heads.stop)
        answer = waiting.result(PATIENCE_SECONDS)
    assert (answer.status_code, answer.json()["state"]) == (202, "staged")


class Waiters:
    """Nobody waits for a snapshot."""

    def stop(self) -> None:
        """Ends nothing."""


@pytest.mark.slow(reason="waits as long as a stop may take")
def test_a_request_that_does_not_end_is_cut_when_the_service_stops() -> None:
    asked, cut = threading.Event(), threading.Event()
    endless = FastAPI()
    endless.state.parts = SimpleNamespace(heads=Waiters())

    @endless.get("/")
    async def wait() -> None:
        asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cut.set()
            raise

    server = StoppingServer(endless, stop_seconds=1)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        serving = threading.Thread(target=server.run, args=([listener],), daemon=True)
        serving.start()
        client.connect(listener.getsockname())
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked.wait(PATIENCE_SECONDS)
        server.should_exit = True
        assert cut.wait(PATIENCE_SECONDS)
        serving.join(PATIENCE_SECONDS)
    assert not serving.is_alive()


def test_the_program_gives_requests_seconds_to_end() -> None:
    assert StoppingServer(FastAPI()).config.timeout_graceful_shutdown == 5
