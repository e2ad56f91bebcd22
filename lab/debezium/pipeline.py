"""A database, Debezium and the service; each is killed in the middle, and in the end all rows are compared."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx

from lab.debezium.columns import Column
from lab.debezium.feeder import classpath, feeder
from lab.debezium.mariadb import Mariadb
from lab.debezium.postgres import Postgres
from lab.debezium.source import FIRST, KEYS, LAST, MIDDLE, Source
from lab.faults.system import Kept, free_port

DATABASE: Final = "shop"
PATIENCE_SECONDS: Final = 600
SOURCES: Final[Mapping[str, type[Postgres | Mariadb]]] = {"postgres": Postgres, "mariadb": Mariadb}
_TEXT: Final = Column("text", str)
_COUNT: Final = Column("int", str, int)


class TimedOut(Exception):
    """What was waited for did not come."""


class Pipeline:
    """The three processes, and a client of the service. Raises ``Impossible`` where there is no Debezium."""

    def __init__(self, folder: Path, source: str, mode: str, seed: int, exits: ExitStack) -> None:
        self.folder = folder
        jars = classpath(folder, SOURCES[source].connector)
        self.source: Source = SOURCES[source](folder, seed, exits)
        self.source.make()
        self._columns: dict[str, Mapping[str, Column]] = {
            "counters": {"id": _COUNT, "n": _COUNT},
            "kinds": {"id": _COUNT, **self.source.columns},
            "orders": {"region": _TEXT, "id": _COUNT, "status": _TEXT, "note": _TEXT},
        }
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--data", str(folder / "data")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYFOLD_")}
        self.service = Kept("service", command, folder, {**environment, "PYTHONPATH": str(Path(__file__).parents[2])})
        exits.callback(self.service.end)
        self.client = exits.enter_context(httpx.Client(base_url=self.url, timeout=30, trust_env=False))
        self._until("the service to answer", lambda: self.client.get("/readyz").status_code == 200)
        self._make_tables()
        batches = f"{self.url}/v1/catalog/databases/{DATABASE}/batches?format=debezium-json&unknownColumns=add"
        self.feeder = feeder(folder, jars, self.source, batches, mode, exits)
        self._until("the snapshot", lambda: self._is_marked(FIRST))

    def run(self, changes: int) -> None:
        """So many changes in four parts; a process is killed in each of three, tables are altered before the last."""
        part = changes // 4
        for strike in (self.service, self.feeder, self.source.kept):
            struck = threading.Timer(1.0, strike.send, [signal.SIGKILL])
            struck.start()
            self.source.change(part)
            struck.join()
        self._reach(MIDDLE)
        if unstruck := [kept.name for kept in (self.service, self.feeder, self.source.kept) if kept.starts == 1]:
            raise TimedOut(f"the end of {', '.join(unstruck)} did not come")
        self.source.alter()
        self.source.change(changes - 3 * part)
        self._reach(LAST)

    def differences(self) -> Iterator[str]:
        """Each row that is not in both, or not equal."""
        for table, columns in self._columns.items():
            every = {**columns, **(self.source.added if table == "kinds" else {})}
            keys = 2 if table == "orders" else 1
            in_service = {_key(row, every, keys): row for row in self._shown(table, every)}
            in_source = {
                _key(row, every, keys): row
                for row in self.source.rows(table, {name: column.read for name, column in every.items()})
            }
            yield from (f"{table} {key}: only in the source" for key in in_source.keys() - in_service.keys())
            yield from (f"{table} {key}: not in the source" for key in in_service.keys() - in_source.keys())
            for key in in_service.keys() & in_source.keys():
                for (name, column), shown, read in zip(every.items(), in_service[key], in_source[key], strict=True):
                    if _same(column, shown) != _same(column, read):
                        yield f"{table} {key} {name}: {shown!r}, in the source {read!r}"

    def count(self) -> int:
        """Rows of the service."""
        return sum(1 for table, columns in self._columns.items() for _ in self._shown(table, columns))

    def path(self, table: str) -> str:
        """The URL of a table."""
        return f"/v1/catalog/databases/{DATABASE}/tables/{table}"

    def _shown(self, table: str, columns: Mapping[str, Column]) -> Iterator[Sequence[Any]]:
        answer = self.client.get(f"{self.path(table)}/rows:scan")
        answer.raise_for_status()
        for line in answer.text.splitlines():
            row = json.loads(line)
            yield [row[name] for name in columns]

    def _make_tables(self) -> None:
        self.client.post("/v1/catalog/databases", json={"name": DATABASE}).raise_for_status()
        for table in self._columns:
            ddl = self.source.ddl(table)
            answer = self.client.post(f"/v1/catalog/databases/{DATABASE}/tables:fromDdl", json={"ddl": ddl})
            answer.raise_for_status()

    def _reach(self, key: int) -> None:
        with self.source.connected() as connection:
            self.source.put_marks(connection, key)
        self._until("the last event", lambda: self._is_marked(key))

    def _is_marked(self, key: int) -> bool:
        keys = {"counters": [key], "kinds": [key], "orders": ["mark", key]}
        return all(
            self.client.get(f"{self.path(table)}/rows", params={"key": parts}).status_code == httpx.codes.OK
            for table, parts in keys.items()
        )

    def _until(self, what: str, is_reached: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                if is_reached():
                    return
            except httpx.HTTPError:
                pass  # it was killed, and comes back
            time.sleep(0.2)
        raise TimedOut(f"{what} did not come within {PATIENCE_SECONDS} s: {self._last_words()}")

    def _last_words(self) -> str:
        last = max(self.folder.glob("feeder-*.log"), key=lambda log: log.stat().st_mtime, default=None)
        return "" if last is None else last.read_text()[-1_000:]


class Watcher(threading.Thread):
    """Looks at the counters, which only grow: a value that goes back, or is gone, is a fault."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(name="watcher", daemon=True)
        self.looks, self.faults = 0, list[str]()
        self._pipeline = pipeline
        self._seen: dict[int, int] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until the end is set."""
        keys = [{"id": key} for key in range(1, KEYS)]
        path = f"{self._pipeline.path('counters')}/rows:batchGet"
        with httpx.Client(base_url=self._pipeline.url, timeout=30, trust_env=False) as client:
            while not self._ended.wait(0.05):
                try:
                    answer = client.post(path, json={"keys": keys})
                    answer.raise_for_status()
                except httpx.HTTPError:
                    continue  # the service was killed
                self.looks += 1
                for item in answer.json()["rows"]:
                    self._look(item["key"]["id"], item["row"])

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self.join()

    def _look(self, key: int, row: Mapping[str, Any] | None) -> None:
        before, n = self._seen.get(key), None if row is None else row["n"]
        if before is not None and (n is None or n < before):
            self.faults.append(f"counter {key} went from {before} back to {n}")
        if n is not None:
            self._seen[key] = n


def _key(row: Sequence[Any], columns: Mapping[str, Column], count: int) -> tuple[Any, ...]:
    return tuple(column.same(value) for column, value in zip(columns.values(), row[:count], strict=False))


def _same(column: Column, value: Any) -> Any:
    return None if value is None else column.same(value)
