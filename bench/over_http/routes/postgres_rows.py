"""A row by key out of PostgreSQL, which makes the JSON of its columns."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from fastapi import FastAPI, HTTPException, Response

from bench.over_http.routes.serving import serve

QUERY = "SELECT row_to_json(orders)::text FROM orders WHERE id = $1"


def rows(address: str) -> FastAPI:
    """The route; its pool has asyncpg's default size."""

    @asynccontextmanager
    async def pooled(app: FastAPI) -> AsyncIterator[None]:
        async with asyncpg.create_pool(address) as pool:
            app.state.pool = pool
            yield

    app = FastAPI(lifespan=pooled)

    @app.get("/rows/{key}")
    async def row(key: int) -> Response:
        text = await app.state.pool.fetchval(QUERY, key)
        if text is None:
            raise HTTPException(404, f"no row {key}")
        return Response(text, media_type="application/json")

    return app


if __name__ == "__main__":
    serve(rows(sys.argv[1]))
