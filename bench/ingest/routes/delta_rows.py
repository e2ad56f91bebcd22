"""Arrow bodies appended to a Delta table through delta-rs."""

from __future__ import annotations

import sys
from pathlib import Path

from deltalake import DeltaTable, write_deltalake
from fastapi import FastAPI, Request

from bench.ingest.routes.arrow_body import arrow_body
from bench.over_http.routes.serving import serve


def rows(folder: Path) -> FastAPI:
    """The routes."""
    app, path = FastAPI(), folder / "delta"

    @app.post("/append")
    async def append(request: Request) -> None:
        write_deltalake(path, await arrow_body(request), mode="append")

    @app.get("/count")
    async def count() -> int:
        return len(DeltaTable(path).to_pyarrow_table(columns=[]))

    return app


if __name__ == "__main__":
    serve(rows(Path(sys.argv[1])))
