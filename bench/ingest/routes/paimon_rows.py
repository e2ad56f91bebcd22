"""Arrow bodies into a primary-key table of Paimon through pypaimon, in a catalog of the local file system."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from fastapi import FastAPI, Request
from pypaimon import CatalogFactory, Schema

from bench.ingest.routes.arrow_body import arrow_body
from bench.ingest.routes.order import KEY
from bench.over_http.routes.serving import serve

NAME = "bench.reads.orders"


def rows(folder: Path) -> FastAPI:
    """The routes; the first body says what the columns are."""
    app, catalog = FastAPI(), CatalogFactory.create({"warehouse": str(folder / "warehouse")})
    catalog.create_database("bench", True)

    @app.post("/write")
    async def write(request: Request) -> None:
        body = await arrow_body(request)
        fields = pa.schema([field.with_nullable(field.name != KEY) for field in body.schema])
        schema = Schema.from_pyarrow_schema(fields, primary_keys=[KEY], options={"bucket": "1"})
        catalog.create_table(NAME, schema, True)
        builder = catalog.get_table(NAME).new_batch_write_builder()
        writing, commit = builder.new_write(), builder.new_commit()
        writing.write_arrow(body.cast(fields))
        commit.commit(writing.prepare_commit())
        writing.close()
        commit.close()

    @app.get("/count")
    async def count() -> int:
        builder = catalog.get_table(NAME).new_read_builder()
        return len(builder.new_read().to_arrow(builder.new_scan().plan().splits()))

    return app


if __name__ == "__main__":
    serve(rows(Path(sys.argv[1])))
