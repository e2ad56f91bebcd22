"""How long a fresh service takes: to answer, to be ready, to merge first, to merge a smallest batch after that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

STARTS = 5
LATER_MERGES = 5
PATIENCE_SECONDS = 120
TABLES = "/v1/catalog/databases/bench/tables"
TABLE = {
    "identifier": {"database": "bench", "object": "t"},
    "schema": {
        "fields": [{"name": "k", "type": "BIGINT NOT NULL"}, {"name": "v", "type": "BIGINT"}],
        "primaryKeys": ["k"],
        "options": {"merge-engine": "partial-update"},
    },
}

Timings = Mapping[str, list[float]]


def measure_startup() -> Timings:
    """Seconds by step, of ``STARTS`` services started one after the other, each in an empty folder."""
    timings: dict[str, list[float]] = {
        "start to /healthz": [],
        "start to /readyz": [],
        "first merge": [],
        "later smallest merge": [],
    }
    for _ in range(STARTS):
        with TemporaryDirectory(prefix="keyfold-bench-") as folder:
            for step, seconds in _one_start(Path(folder)):
                timings[step].append(seconds)
    return timings


def _one_start(folder: Path) -> Iterator[tuple[str, float]]:
    began = time.monotonic()
    with _serving(folder) as url, httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        _wait_ok(client, "/healthz")
        yield "start to /healthz", time.monotonic() - began
        _wait_ok(client, "/readyz")
        yield "start to /readyz", time.monotonic() - began
        client.post("/v1/catalog/databases", json={"name": "bench"}).raise_for_status()
        client.post(TABLES, json=TABLE).raise_for_status()
        yield "first merge", _merge_seconds(client, 0)
        for number in range(1, LATER_MERGES + 1):
            yield "later smallest merge", _merge_seconds(client, number)


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """A service that works in ``folder``: its URL."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data", str(folder / "data")]
    # Without its compiled modules Python would compile the whole service at every start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (
        open(folder / "log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, (folder / "log").read_text()
            yield found[0]
        finally:
            process.terminate()


def _wait_ok(client: httpx.Client, path: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if client.get(path).status_code == 200:
                return
        except httpx.ConnectError:
            pass
        time.sleep(0.01)
    raise TimeoutError(f"{path} did not answer 200 in {PATIENCE_SECONDS} s")


def _merge_seconds(client: httpx.Client, key: int) -> float:
    """From posting one record to the answer that it is merged."""
    began = time.monotonic()
    answer = client.post(f"{TABLES}/t/batches", json={"records": [{"k": key, "v": 1}]}, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began
