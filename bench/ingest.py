"""Ingest: bodies of 10,000 records of 12 columns by format, validated and durable, beside FastAPI with pydantic models.

Every body goes over a socket of this machine to a uvicorn of this process.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from app.main import create_app
from app.settings import Settings
from bench.figures import Figure, Ratio, interleaved, seconds

RECORDS = 10_000
SMALL, CLIENTS = 100, 32
COLUMNS = {
    "id": "BIGINT",
    "customer": "STRING",
    "city": "STRING",
    "status": "VARCHAR(20)",
    "qty": "INT",
    "stock": "BIGINT",
    "price": "DOUBLE",
    "weight": "DOUBLE",
    "paid": "DECIMAL(10, 2)",
    "booked": "TIMESTAMP(3)",
    "active": "BOOLEAN",
    "note": "STRING",
}
TABLE = "/v1/catalog/databases/bench/tables"


class Order(BaseModel):
    """The same columns, as a web developer declares them."""

    id: int
    customer: str
    city: str
    status: str
    qty: int
    stock: int
    price: float
    weight: float
    paid: Decimal
    booked: datetime
    active: bool
    note: str


class Orders(BaseModel):
    """A body of the service that ingest is compared with."""

    records: list[Order]


def _baseline(path: Path) -> FastAPI:
    """Models into SQLite, durable as Keyfold's catalog is."""
    app = FastAPI()
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute(f"CREATE TABLE orders ({', '.join(COLUMNS)}, PRIMARY KEY (id))")

    @app.post("/orders")
    def post(body: Orders) -> int:
        rows = [(*vars(order).values(),) for order in body.records]
        rows = [(*row[:8], str(row[8]), row[9].isoformat(), *row[10:]) for row in rows]
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.executemany(f"INSERT OR REPLACE INTO orders VALUES ({', '.join('?' * 12)})", rows)  # noqa: S608
        return len(rows)

    return app


@contextmanager
def _listening(app: FastAPI) -> Iterator[httpx.Client]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        yield client
    server.should_exit = True
    thread.join()


def _rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "customer": f"c{n * 7919 % 999983}",
            "city": ("Oslo", "Rome", "Lyon")[n % 3],
            "status": "new",
            "qty": n % 100,
            "stock": n * 31,
            "price": n / 7,
            "weight": n / 13,
            "paid": f"{n % 9999}.25",
            "booked": f"2026-03-01T10:{n % 60:02}:00",
            "active": n % 2 == 0,
            "note": "some text here",
        }
        for n in range(count)
    ]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    found = pa.Table.from_pylist(rows)
    types = {"paid": pa.decimal128(10, 2), "booked": pa.timestamp("ms"), "qty": pa.int32()}
    return pa.table({name: found[name].cast(types.get(name, found[name].type)) for name in COLUMNS})


def _csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(COLUMNS))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _arrow(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _bodies() -> Mapping[str, tuple[str, bytes]]:
    rows = _rows(RECORDS)
    table = _table(rows)
    return {
        "JSON": ("application/json", json.dumps({"records": rows}).encode()),
        "NDJSON": ("application/x-ndjson", "\n".join(map(json.dumps, rows)).encode()),
        "CSV": ("text/csv", _csv(rows)),
        "Arrow": ("application/vnd.apache.arrow.stream", _arrow(table)),
        "Parquet": ("application/vnd.apache.parquet", _parquet(table)),
    }


def _posting(client: httpx.Client, path: str, media_type: str, body: bytes) -> Callable[[], float]:
    def post() -> float:
        return seconds(lambda: client.post(path, content=body, headers={"Content-Type": media_type}).raise_for_status())

    return post


def measure_ingest(rounds: int) -> Iterator[Figure]:
    """Seconds of a body by format, and of small ones by one client and by many."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        app = create_app(Settings(KEYFOLD_DATA=folder / "data", workers=0))
        with _listening(app) as client, _listening(_baseline(folder / "orders.sqlite")) as models:
            client.post("/v1/catalog/databases", json={"name": "bench"}).raise_for_status()
            fields = [{"name": name, "type": of} for name, of in COLUMNS.items()]
            schema = {"fields": fields, "primaryKeys": ["id"], "options": {}, "partitionKeys": [], "comment": None}
            table = {"identifier": {"database": "bench", "object": "orders"}, "schema": schema}
            client.post(TABLE, json=table).raise_for_status()
            bodies = _bodies()
            steps = {name: _posting(client, f"{TABLE}/orders/batches", *body) for name, body in bodies.items()}
            steps["FastAPI, pydantic, SQLite"] = _posting(models, "/orders", *bodies["JSON"])
            ratios = [Ratio("JSON", "FastAPI, pydantic, SQLite", 1 / 3), Ratio("Arrow", "JSON", 1 / 10)]
            about = f"One POST of {RECORDS:,} records of {len(COLUMNS)} columns."
            yield Figure("Ingest by format", about, interleaved(steps, rounds), ratios)
            yield _crowd(client, rounds)


def _crowd(client: httpx.Client, rounds: int) -> Figure:
    body = json.dumps({"records": _rows(SMALL)}).encode()
    posts = 3 * CLIENTS

    def by(clients: int) -> Callable[[], float]:
        def post(_: int) -> None:
            headers = {"Content-Type": "application/json"}
            client.post(f"{TABLE}/orders/batches", content=body, headers=headers).raise_for_status()

        def act() -> None:
            with ThreadPoolExecutor(clients) as pool:
                for _ in pool.map(post, itertools.repeat(0, posts)):
                    pass

        return lambda: seconds(act)

    steps = {"1 client": by(1), f"{CLIENTS} clients": by(CLIENTS)}
    about = f"{posts} bodies of {SMALL} records; those that come at once share catalog transactions."
    return Figure("Small batches at once", about, interleaved(steps, rounds, warm_ups=1))
