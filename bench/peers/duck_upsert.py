"""DuckDB's own table with a primary key: INSERT … ON CONFLICT DO UPDATE, in place."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from bench.peers.meaning import VALUES, inserted, updated
from bench.peers.system import System, run
from bench.wide_table import KEY


class DuckUpsert(System):
    """A table in a DuckDB file."""

    version = f"duckdb {duckdb.__version__}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.database = duckdb.connect(str(folder / "table.duckdb"))

    def load(self, base: pa.Table) -> None:
        self.database.register("base", base)
        self.database.execute("CREATE TABLE t AS SELECT * FROM base")
        self.database.execute(f"ALTER TABLE t ADD PRIMARY KEY ({KEY})")
        self.database.execute("CHECKPOINT")
        self.database.unregister("base")

    def update(self, batch: pa.Table) -> None:
        self.database.register("s", batch)
        first = ", ".join(inserted(name) for name in VALUES)
        later = ", ".join(f"{name} = {updated(name, 't', 'excluded')}" for name in VALUES)
        self.database.execute(f"INSERT INTO t SELECT {KEY}, {first} FROM s ON CONFLICT DO UPDATE SET {later}")
        self.database.unregister("s")

    def read(self) -> pa.Table:
        return self.database.execute("FROM t").to_arrow_table()

    def close(self) -> None:
        self.database.close()


if __name__ == "__main__":
    run(DuckUpsert)
