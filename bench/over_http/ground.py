"""What the parts of the benchmark share: committed tables with every kind of key, and services that serve them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from app.core.table.history import Table
from bench.over_http.asking import keys_body
from bench.over_http.tables import TABLES_PATH, CommittedTables
from bench.reads.orders import BIGINT, COMPOSITE, STRING, Orders
from bench.served.processes import Server, keyfold, started
from bench.served.serving import client_of, wait_ok

KINDS: Mapping[str, Orders] = {"bigint": BIGINT, "string": STRING, "composite": COMPOSITE}
PATIENCE_SECONDS = 1800
NO_WORKERS = {"KEYFOLD_WORKERS": "0"}  # staged records stay, and no other work is in the figures


def path_of(table: str) -> str:
    """The path of a table's routes."""
    return f"{TABLES_PATH}/{table}"


@dataclass(frozen=True)
class Service:
    """A running ``keyfold serve`` and a client of it."""

    server: Server
    client: httpx.Client


class Ground:
    """A data folder whose tables, one of each kind of key, have ``rows`` rows in one run."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.rows = rows
        self._tables = CommittedTables(folder / "data")
        self._created: dict[str, Table] = {name: self._tables.create(name, kind) for name, kind in KINDS.items()}
        for name in KINDS:
            self.commit(name)

    def commit(self, table: str) -> None:
        """One more run with all the keys."""
        self._tables.commit(self._created[table], KINDS[table], self.rows)

    @contextmanager
    def served(
        self, name: str, options: Sequence[str] = (), environment: Mapping[str, str] = NO_WORKERS
    ) -> Iterator[Service]:
        """A service that is up."""
        command = keyfold(self.folder / "data", *options)
        with (
            started(command, self.folder / f"{name}.log", environment) as server,
            client_of(server.url) as client,
        ):
            wait_ok(client, "/readyz")
            yield Service(server, client)

    def image(self, client: httpx.Client, table: str) -> None:
        """Ask for the images of the table's current snapshot, and return when they are made.

        Raises ``TimeoutError`` when that takes longer than half an hour.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            body = keys_body(KINDS[table], self.rows, 100)  # some in each file: asking for a row asks for its image
            client.post(f"{path_of(table)}/rows:batchGet", content=body).raise_for_status()
            time.sleep(1)
            images = client.get(f"{path_of(table)}/stats").raise_for_status().json()["images"]
            if images["made"] == images["files"] and not any(self.folder.glob("data/images/wanted/*.json")):
                return
        raise TimeoutError(f"the images of {table} are not made")

    def close(self) -> None:
        """End the catalog's connections."""
        self._tables.close()


def stage(client: httpx.Client, table: str, first: int, records: int, a_post: int) -> list[str]:
    """Post records of bigint keys from ``first`` on; the ids of their batches."""
    batches = []
    for start in range(first, first + records, a_post):
        rows = [{"id": number, "quantity": 1, "status": "staged"} for number in range(start, start + a_post)]
        answer = client.post(f"{path_of(table)}/batches", content=json.dumps({"records": rows}))
        batches.append(answer.raise_for_status().json()["id"])
    return batches
