"""A row by key out of Redis, where it lies as the JSON that is answered."""

from __future__ import annotations

import sys

import redis.asyncio
from fastapi import FastAPI, HTTPException, Response

from bench.over_http.routes.serving import serve


def rows(socket_path: str) -> FastAPI:
    """The route."""
    app, store = FastAPI(), redis.asyncio.Redis(unix_socket_path=socket_path)

    @app.get("/rows/{key}")
    async def row(key: int) -> Response:
        text = await store.get(str(key))
        if text is None:
            raise HTTPException(404, f"no row {key}")
        return Response(text, media_type="application/json")

    return app


if __name__ == "__main__":
    serve(rows(sys.argv[1]))
