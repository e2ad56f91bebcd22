"""Keyfold as its clients meet it: a separate ``keyfold serve``, batches posted in Arrow."""

from __future__ import annotations

import io
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from bench.peers.system import System, run
from bench.served.processes import keyfold, started
from bench.served.serving import client_of, wait_for_merges, wait_ok
from bench.wide_table import schema_json

LOADED_AT_ONCE = 250_000  # rows
DATABASE = "/v1/catalog/databases/bench"
TABLE = f"{DATABASE}/tables/t"
ARROW = "application/vnd.apache.arrow.stream"
ACCEPT = {"Accept": ARROW}
PATIENCE_SECONDS = 600


class KeyfoldHttp(System):
    """HTTP, catalog, merges and compactions by its worker count. Nothing is looked up, so no image is made."""

    version = f"keyfold {version('keyfold')}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._open = ExitStack()
        server = self._open.enter_context(started(keyfold(folder / "data"), folder / "log"))
        self._client = self._open.enter_context(client_of(server.url))
        wait_ok(self._client, "/readyz")
        self._client.post("/v1/catalog/databases", json={"name": "bench"}).raise_for_status()
        wait_for_merges(self._client, "bench")
        table = {"identifier": {"database": "bench", "object": "t"}, "schema": schema_json()}
        self._client.post(f"{DATABASE}/tables", json=table).raise_for_status()

    def load(self, base: pa.Table) -> None:
        for first in range(0, len(base), LOADED_AT_ONCE):
            answer = self._post(base.slice(first, LOADED_AT_ONCE), wait=False)
        self._wait("batches", answer, "merged")

    def update(self, batch: pa.Table) -> None:
        self._wait("batches", self._post(batch, wait=True), "merged")

    def settle(self) -> None:
        """Ask for a full compaction, as ``keyfold compact --wait`` does."""
        answer = self._client.post(f"{TABLE}/compact").raise_for_status().json()
        self._wait("merges", answer, "succeeded")

    def read(self) -> pa.Table:
        """A scan in Arrow."""
        pages: list[pa.Table] = []
        token: str | None = None
        while token is not None or not pages:
            page = {} if token is None else {"pageToken": token}
            answer = self._client.get(f"{TABLE}/rows:scan", params={"consistency": "merged", **page}, headers=ACCEPT)
            pages.append(pa.ipc.open_stream(answer.raise_for_status().content).read_all())
            token = answer.headers.get("Keyfold-Next-Page")
        return pa.concat_tables(pages)

    def close(self) -> None:
        self._open.close()

    def _post(self, rows: pa.Table, *, wait: bool) -> dict[str, str]:
        body = io.BytesIO()
        with pa.ipc.new_stream(body, rows.schema) as writer:
            writer.write_table(rows)
        headers = {"Content-Type": ARROW, **({"Prefer": "wait=60"} if wait else {})}
        answer = self._client.post(f"{TABLE}/batches", content=body.getvalue(), headers=headers)
        batch: dict[str, str] = answer.raise_for_status().json()
        return batch

    def _wait(self, kind: str, task: dict[str, str], state: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while task["state"] != state:
            if time.monotonic() > deadline or task["state"] in ("failed", "poisoned"):
                raise TimeoutError(f"{kind} {task['id']} is {task['state']}")
            time.sleep(0.02)
            task = self._client.get(f"{TABLE}/{kind}/{task['id']}").raise_for_status().json()


if __name__ == "__main__":
    run(KeyfoldHttp)
