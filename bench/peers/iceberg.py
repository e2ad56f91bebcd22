"""Apache Iceberg through pyiceberg: upsert, which replaces whole rows and knows no partial update."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from bench.peers.system import System, run
from bench.wide_table import KEY


class Iceberg(System):
    """An Iceberg table in a folder, its catalog on SQLite."""

    version = f"pyiceberg {version('pyiceberg')}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.catalog = SqlCatalog(
            "bench", uri=f"sqlite:///{folder}/catalog.sqlite", warehouse=f"file://{folder}/warehouse"
        )
        self.catalog.create_namespace("bench")

    def load(self, base: pa.Table) -> None:
        self.catalog.create_table("bench.t", schema=base.schema).append(base)

    def update(self, batch: pa.Table) -> None:
        self.catalog.load_table("bench.t").upsert(batch, join_cols=[KEY])

    def read(self) -> pa.Table:
        return self.catalog.load_table("bench.t").scan().to_arrow()


if __name__ == "__main__":
    run(Iceberg)
