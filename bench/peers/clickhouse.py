"""ClickHouse in the process (chdb): CoalescingMergeTree keeps the last value that is not null; FINAL merges on read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from chdb.session import Session

from bench.peers.meaning import VALUES, inserted
from bench.peers.system import System, run
from bench.wide_table import COLUMNS, KEY, SUM

_TYPES: Mapping[str, str] = {
    "INT": "Int32",
    "BIGINT": "Int64",
    "DOUBLE": "Float64",
    "STRING": "String",
    "BOOLEAN": "Bool",
    "TIMESTAMP(6)": "DateTime64(6, 'UTC')",
}


class ClickHouse(System):
    """A table in a ClickHouse folder; the sum column has SimpleAggregateFunction(sum)."""

    version = f"chdb {version('chdb')}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.session = Session(str(folder / "table"))

    def load(self, base: pa.Table) -> None:
        types = {name: f"Nullable({_TYPES[COLUMNS[name]]})" for name in VALUES}
        types[SUM] = f"SimpleAggregateFunction(sum, {types[SUM]})"
        columns = ", ".join((f"{KEY} Int64", *(f"{name} {data_type}" for name, data_type in types.items())))
        self.session.query("CREATE DATABASE bench")
        self.session.query(f"CREATE TABLE bench.t ({columns}) ENGINE = CoalescingMergeTree ORDER BY {KEY}")
        self._insert(base)

    def update(self, batch: pa.Table) -> None:
        self._insert(batch)

    def _insert(self, rows: pa.Table) -> None:
        file = self.folder / "inserted.parquet"
        pq.write_table(rows, file, compression="none")
        values = ", ".join(inserted(name) for name in VALUES)
        self.session.query(f"INSERT INTO bench.t SELECT {KEY}, {values} FROM file('{file}', Parquet) AS s")
        file.unlink()

    def read(self) -> pa.Table:
        answer = self.session.query("SELECT * FROM bench.t FINAL", "ArrowStream")
        return pa.ipc.open_stream(io.BytesIO(answer.bytes())).read_all()

    def close(self) -> None:
        self.session.close()


if __name__ == "__main__":
    run(ClickHouse)
