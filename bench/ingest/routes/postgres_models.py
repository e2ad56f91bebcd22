"""Models into PostgreSQL through asyncpg: COPY, which knows no upsert, and INSERT … ON CONFLICT in two spellings."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from fastapi import FastAPI

from bench.ingest.routes.order import COLUMNS, KEY, Orders
from bench.over_http.routes.serving import serve

TYPES = {name: {"STRING": "TEXT", "DOUBLE": "DOUBLE PRECISION"}.get(kind, kind) for name, kind in COLUMNS.items()}
FIELDS = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
UPDATES = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != KEY)
CONFLICT = f"ON CONFLICT ({KEY}) DO UPDATE SET {UPDATES}"
ROW = ", ".join(f"${number}" for number in range(1, len(COLUMNS) + 1))
ARRAYS = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(TYPES.values(), 1))
# A table for each way of writing. That of COPY has no key, else a key could come only once.
TABLES = {"copied": "", "inserted": f", PRIMARY KEY ({KEY})", "unnested": f", PRIMARY KEY ({KEY})"}


def models(address: str) -> FastAPI:
    """The routes, and the tables."""

    @asynccontextmanager
    async def pooled(app: FastAPI) -> AsyncIterator[None]:
        async with asyncpg.create_pool(address, min_size=1) as pool:
            for name, key in TABLES.items():
                await pool.execute(f"CREATE TABLE {name} ({FIELDS}{key})")
            app.state.pool = pool
            yield

    app = FastAPI(lifespan=pooled)

    @app.post("/copy")
    async def copy(body: Orders) -> None:
        async with app.state.pool.acquire() as connection:
            await connection.copy_records_to_table("copied", records=body.rows(), columns=[*COLUMNS])

    @app.post("/insert")
    async def insert(body: Orders) -> None:
        await app.state.pool.executemany(f"INSERT INTO inserted VALUES ({ROW}) {CONFLICT}", body.rows())

    @app.post("/unnest")
    async def unnest(body: Orders) -> None:
        columns = zip(*body.rows(), strict=True)
        await app.state.pool.execute(f"INSERT INTO unnested SELECT * FROM unnest({ARRAYS}) {CONFLICT}", *columns)

    @app.get("/count")
    async def count() -> int:
        counts = [await app.state.pool.fetchval(f"SELECT count(*) FROM {name}") for name in TABLES]
        return int(min(counts))

    return app


if __name__ == "__main__":
    serve(models(sys.argv[1]))
