"""A real ``keyfold serve`` process on a free port, and a client that speaks its HTTP."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

START_SECONDS = 120
_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Service:
    """One serving process; ``url`` is where it listens, at a free port if ``port`` is 0. It has the umask of this
    process, or another one.
    """

    def __init__(self, data: Path, environment: Mapping[str, str], umask: int = -1, port: int = 0) -> None:
        self.data = data
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--data", str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # One, which tests can freeze, kill and measure; processes.py has several.
            # Spark is a real one here: who tests its trial asks for it.
            env={
                **os.environ,
                "KEYFOLD_PROCESSES": "1",
                "KEYFOLD_SPARK_TRIAL": "false",
                **environment,
            },
            start_new_session=True,
            umask=umask,
        )
        self.url = self._listening()
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _listening(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"listens on (https?://\S+)", line)
            if found:
                return found[1]
        raise AssertionError(f"the service did not start: {''.join(self.lines)}")

    def _drain(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.lines.extend(output)

    def kill(self) -> None:
        """kill -9 of the service; its children must see to themselves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()

    def stop(self) -> None:
        """A polite end."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
            self._reader.join()


def keyfold(*words: str | Path, umask: int = -1, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of the terminal that has ended, in a process of its own."""
    command = [sys.executable, "-m", "app.cli", *map(str, words)]
    own = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=own, umask=umask)


def summed(**options: str) -> dict[str, Any]:
    """The schema of a table that adds up ``n`` by ``id``; in names of options ``_`` is ``-`` and ``__`` a dot."""
    given = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    return {
        "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": "BIGINT"}],
        "primaryKeys": ["id"],
        "options": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", **given},
    }


class Client(httpx.Client):
    """An HTTP client of one service. It trusts no authority: to read those of the machine takes longer than a test."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"verify": _NO_AUTHORITIES, **settings})

    def wait_ready(self) -> None:
        """Returns once catalog and Spark answer."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                if self.get("/readyz").json()["spark"]:
                    return
            except httpx.ConnectError:
                pass
            time.sleep(0.1)
        raise AssertionError("the service did not get ready")

    def create_database(self, name: str) -> None:
        """Creates a database."""
        self.post("/v1/catalog/databases", json={"name": name}).raise_for_status()

    def create_table(self, database: str, table: str, schema: Mapping[str, Any]) -> httpx.Response:
        """Asks for a table."""
        body = {"identifier": {"database": database, "object": table}, "schema": schema}
        return self.post(f"/v1/catalog/databases/{quote(database)}/tables", json=body)


class TableClient:
    """The routes of one table."""

    def __init__(self, client: Client, database: str, table: str) -> None:
        self.client = client
        self.name = f"{database}.{table}"
        self.path = f"/v1/catalog/databases/{quote(database)}/tables/{quote(table)}"

    def post_batch(self, records: Sequence[Mapping[str, Any]], *, wait: int = 0, **headers: str) -> httpx.Response:
        """Posts records; with ``wait`` answers once they are merged."""
        prefer = {"Prefer": f"wait={wait}"} if wait else {}
        return self.client.post(f"{self.path}/batches", json={"records": records}, headers={**prefer, **headers})

    def get_row(self, *key: str, **params: str) -> httpx.Response:
        """One row by key."""
        return self.client.get(f"{self.path}/rows", params=[*(("key", value) for value in key), *params.items()])

    def batch_get(self, keys: Sequence[Mapping[str, Any]], **params: str) -> list[dict[str, Any] | None]:
        """Rows of many keys, None where there is none."""
        rows: list[dict[str, Any] | None] = []
        for start in range(0, len(keys), 1000):
            body = {"keys": list(keys[start : start + 1000])}
            answer = self.client.post(f"{self.path}/rows:batchGet", json=body, params=params)
            answer.raise_for_status()
            rows += [row["row"] for row in answer.json()["rows"]]
        return rows

    def merge(self, longest_pause: float = 0.5) -> dict[str, Any]:
        """Merges what is staged and waits for the end."""
        return self.finished(self.client.post(f"{self.path}/merges").raise_for_status().json(), longest_pause)

    def finished(self, merge: dict[str, Any], longest_pause: float = 0.5) -> dict[str, Any]:
        """A merge or compaction, once it has come to its end; asked for each ``longest_pause`` seconds or sooner."""
        pause = 0.05
        while merge["state"] in ("pending", "running"):
            time.sleep(pause)
            pause = min(pause * 1.5, longest_pause)  # whoever asks all the time takes the processor from Spark
            merge = self.client.get(f"{self.path}/merges/{merge['id']}").raise_for_status().json()
        return merge


@contextmanager
def serving(data: Path, **environment: str) -> Iterator[tuple[Service, Client]]:
    """A service in ``data`` that is up and has Spark; it ends with the block."""
    service = Service(data, {f"KEYFOLD_{name.upper()}": value for name, value in environment.items()})
    try:
        with Client(base_url=service.url, timeout=120, trust_env=False) as client:
            client.wait_ready()
            yield service, client
    finally:
        service.stop()
