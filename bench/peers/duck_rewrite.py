"""DuckDB over Parquet: every batch joins the whole file and writes it again."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.peers.meaning import VALUES, inserted, updated
from bench.peers.system import System, run
from bench.wide_table import KEY


class DuckRewrite(System):
    """One Parquet file, replaced by each batch."""

    version = f"duckdb {duckdb.__version__}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.database = duckdb.connect()
        self.file = folder / "table.parquet"

    def load(self, base: pa.Table) -> None:
        self.database.register("base", base)
        self._write("SELECT * FROM base")
        self.database.unregister("base")

    def update(self, batch: pa.Table) -> None:
        self.database.register("s", batch)
        values = ", ".join(
            f"CASE WHEN t.{KEY} IS NULL THEN {inserted(name)} WHEN s.{KEY} IS NULL THEN t.{name} "
            f"ELSE {updated(name)} END AS {name}"
            for name in VALUES
        )
        rows = f"read_parquet('{self.file}') t FULL JOIN s ON t.{KEY} = s.{KEY}"
        self._write(f"SELECT coalesce(s.{KEY}, t.{KEY}) AS {KEY}, {values} FROM {rows}")
        self.database.unregister("s")

    def _write(self, query: str) -> None:
        aside = self.file.with_suffix(".writing")
        self.database.execute(f"COPY ({query}) TO '{aside}' (FORMAT parquet, COMPRESSION zstd)")
        with open(aside) as written:
            os.fsync(written.fileno())
        aside.replace(self.file)

    def read(self) -> pa.Table:
        return self.database.execute(f"FROM read_parquet('{self.file}')").to_arrow_table()


if __name__ == "__main__":
    run(DuckRewrite)
