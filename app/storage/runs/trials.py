"""The comparison of run files for a trial of Spark (``app.services.merging.spark_trial``)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.history import Run
from app.files.layout import Warehouse, data_file


def columns_that_differ(warehouse: Warehouse, table_id: str, one: Run, other: Run) -> list[str]:
    """Return the names of the columns whose values, order or types are not the same in two small runs."""
    left, right = (_rows(warehouse, table_id, run) for run in (one, other))
    names = list(dict.fromkeys((*left.column_names, *right.column_names)))
    return [name for name in names if not _same(left, right, name)]


def _same(left: pa.Table, right: pa.Table, name: str) -> bool:
    if name not in left.column_names or name not in right.column_names:
        return False
    fields = left.schema.field(name), right.schema.field(name)
    return bool(fields[0].equals(fields[1], check_metadata=True) and left.column(name).equals(right.column(name)))


def _rows(warehouse: Warehouse, table_id: str, run: Run) -> pa.Table:
    tables = []
    for file in run.files:
        with warehouse.filesystem.open_input_file(warehouse.path(*data_file(table_id, run.id, file.name))) as source:
            tables.append(pq.ParquetFile(source).read())
    return pa.concat_tables(tables)
