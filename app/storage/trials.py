"""What a trial of Spark looks at in the files of a run (``app.services.spark_trial``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.history import Run
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.storage.arrow import field_id
from app.storage.layout import Warehouse, data_file


@dataclass(frozen=True)
class TrialRows:
    """The state rows of a run in the order of its files; ``without_ids``: its columns that do not have their ids."""

    states: tuple[Mapping[str, Any], ...]
    sorted: bool
    without_ids: tuple[str, ...]


def trial_rows(warehouse: Warehouse, table_id: str, run: Run, schema: TableSchema) -> TrialRows:
    """All of a small run."""
    tables = []
    for file in run.files:
        with warehouse.filesystem.open_input_file(warehouse.path(*data_file(table_id, run.id, file.name))) as source:
            tables.append(pq.ParquetFile(source).read())
    rows = pa.concat_tables(tables)
    tokens = rows.column(TOKEN_COLUMN).to_pylist()
    ids = {one.name: field_id(one) for one in tables[0].schema}
    without = tuple(column.name for column in schema.columns if ids.get(column.name) != column.id)
    return TrialRows(tuple(rows.drop_columns([TOKEN_COLUMN]).to_pylist()), tokens == sorted(tokens), without)
