"""Models into SQLite, as durable as Keyfold's catalog is."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from fastapi import FastAPI

from bench.ingest.routes.order import COLUMNS, KEY, Orders
from bench.over_http.routes.serving import serve

UPSERT = f"INSERT OR REPLACE INTO orders VALUES ({', '.join('?' * len(COLUMNS))})"


def models(path: Path) -> FastAPI:
    """The routes, and the table."""
    app = FastAPI()
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute(f"CREATE TABLE orders ({', '.join(COLUMNS)}, PRIMARY KEY ({KEY}))")

    @app.post("/upsert")
    def upsert(body: Orders) -> None:
        rows = [(*row[:8], str(row[8]), row[9].isoformat(), *row[10:]) for row in body.rows()]
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.executemany(UPSERT, rows)

    @app.get("/count")
    def count() -> int:
        return int(sqlite3.connect(path).execute("SELECT count(*) FROM orders").fetchone()[0])

    return app


if __name__ == "__main__":
    serve(models(Path(sys.argv[1]) / "orders.sqlite"))
