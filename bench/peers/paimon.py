"""Apache Paimon through pypaimon: its Python reader refuses sequence groups, so the aggregation engine stands in."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon import CatalogFactory, Schema

from bench.peers.meaning import SUM_FIELD
from bench.peers.system import System, run
from bench.wide_table import KEY, SUM

OPTIONS = {
    "bucket": "1",
    "merge-engine": "aggregation",
    "fields.default-aggregate-function": "last_non_null_value",
    f"fields.{SUM}.aggregate-function": "sum",
}


class Paimon(System):
    """A primary-key table in a folder; the Python package does not compact, so reads merge all batches."""

    version = f"pypaimon {version('pypaimon')}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.catalog = CatalogFactory.create({"warehouse": str(folder / "warehouse")})
        self.catalog.create_database("bench", False)

    def load(self, base: pa.Table) -> None:
        fields = [field.with_nullable(field.name != KEY) for field in base.schema]
        schema = Schema.from_pyarrow_schema(pa.schema(fields), primary_keys=[KEY], options=OPTIONS)
        self.catalog.create_table("bench.t", schema, False)
        self._write(base.cast(pa.schema(fields)))

    def update(self, batch: pa.Table) -> None:
        counted = pc.if_else(pc.is_valid(batch[SUM_FIELD]), batch[SUM], pa.scalar(None, pa.int64()))
        self._write(batch.set_column(batch.schema.get_field_index(SUM), SUM, counted))

    def _write(self, rows: pa.Table) -> None:
        builder = self.catalog.get_table("bench.t").new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def read(self) -> pa.Table:
        builder = self.catalog.get_table("bench.t").new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())


if __name__ == "__main__":
    run(Paimon)
