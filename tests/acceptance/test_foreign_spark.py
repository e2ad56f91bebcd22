"""``KEYFOLD_SPARK_REMOTE`` at a real server that speaks Spark's protocol and is another engine: Sail."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.service import START_SECONDS, Client, Service, TableClient

pytestmark = pytest.mark.slow(reason="serves, and tries servers")
SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}],
    "primaryKeys": ["id"],
    "options": {"merge.max-staleness": "0 s"},
}


@pytest.fixture(scope="module")
def sail() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("sail")), "spark", "server", "--ip", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_it_listens(port)
        yield f"sc://localhost:{port}"
    finally:
        server.kill()
        server.wait()


def until_it_listens(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError("Sail did not start")


def check_spark(folder: Path, remote: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", "check-spark", "--data", str(folder)]
    environment = {"PATH": "/usr/bin:/bin", "KEYFOLD_SPARK_REMOTE": remote}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


def test_check_spark_says_what_another_engine_does_otherwise(sail: str, tmp_path: Path) -> None:
    done = check_spark(tmp_path, sail)
    assert (done.returncode, done.stdout) == (1, "")
    assert "answers otherwise than Spark does" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("This Spark server is not compatible")
    assert "Traceback" not in done.stderr


def test_check_spark_finds_spark_well(spark_remote: str, tmp_path: Path) -> None:
    done = check_spark(tmp_path, spark_remote)
    assert (done.returncode, done.stdout) == (0, "Spark does what merges need\n"), done.stderr


@pytest.fixture
def service(sail: str, tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path, {"KEYFOLD_SPARK_REMOTE": sail, "KEYFOLD_SPARK_TRIAL": "true"})
    yield started
    started.stop()


def test_a_service_merges_nothing_on_another_engine_and_says_why(service: Service) -> None:
    with Client(base_url=service.url, timeout=120, trust_env=False) as client:
        client.create_database("shop")
        client.create_table("shop", "t", SCHEMA).raise_for_status()
        table = TableClient(client, "shop", "t")
        table.post_batch([{"id": 1}]).raise_for_status()
        deadline = time.monotonic() + START_SECONDS
        while not re.search(r'^keyfold_spark_state\{state="refused"\} 1.0$', client.get("/metrics").text, re.MULTILINE):
            assert time.monotonic() < deadline, service.lines
            time.sleep(0.2)
        assert any("is not compatible; merges are paused: " in line for line in service.lines)
        assert client.get("/readyz").json()["spark"] is False
        assert [batch["state"] for batch in client.get(f"{table.path}/batches").json()["batches"]] == ["staged"]
        assert table.get_row("1").json() == {"id": 1}
