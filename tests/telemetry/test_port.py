"""The port of a worker's metrics: this machine may read it, and nobody else may have it read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial

import httpx
import pytest

from app.telemetry.entries import Counted
from app.telemetry.exposition import exposed
from app.telemetry.metrics import Metrics
from app.telemetry.port import metrics_port
from tests.telemetry.test_metrics import OPENMETRICS


@pytest.fixture
def port() -> Iterator[int]:
    metrics = Metrics(processes=("worker",))
    metrics.take("worker")
    metrics.count(Counted.ACCEPTED_RECORDS, amount=3)
    with metrics_port(0, partial(exposed, metrics, ())) as taken:
        yield taken


def get(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> httpx.Response:
    return httpx.request(method, f"http://127.0.0.1:{port}{path}", headers=headers, trust_env=False)


def test_what_the_process_counted_is_there_in_both_formats(port: int) -> None:
    plain, other = get(port), get(port, accept=OPENMETRICS)
    assert "keyfold_accepted_records_total 3.0" in plain.text
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert other.headers["content-type"].startswith("application/openmetrics-text")
    assert other.text.endswith("# EOF\n")


@pytest.mark.parametrize("host", ["rebound.example", "rebound.example:9100", ""])
def test_who_does_not_name_this_machine_is_refused(port: int, host: str) -> None:
    refused = get(port, host=host)
    assert (refused.status_code, "keyfold" in refused.text) == (403, False)
    assert "localhost" in refused.text


def test_there_is_nothing_else(port: int) -> None:
    assert get(port, host=f"localhost:{port}").status_code == 200
    assert get(port, "/").status_code == 404
    assert get(port, method="POST").status_code == 405
    head = get(port, method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 1000


def test_a_client_that_says_nothing_keeps_nobody_waiting(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)):
        assert get(port).status_code == 200


def test_a_port_that_is_taken_is_reported(port: int) -> None:
    with pytest.raises(OSError, match="in use"), metrics_port(port, lambda _: (b"", "")):
        raise AssertionError("it is taken")
