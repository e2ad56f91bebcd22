"""Runs as files: what a merge wrote, read from the Parquet footers (design §2)."""

from __future__ import annotations

import pyarrow.parquet as pq
from pyarrow import fs

from app.core.records import TOKEN_COLUMN
from app.core.table import DataFile, Run
from app.storage.layout import Warehouse, data_file, run_folder


def read_run(warehouse: Warehouse, table_id: str, run_id: str, schema_id: int) -> Run:
    """The run whose files lie in its folder: names, rows, sizes and token ranges, in token order; empty files are
    left out.
    """
    folder = warehouse.path(*run_folder(table_id, run_id))
    selector = fs.FileSelector(folder, allow_not_found=True)
    listed = [entry for entry in warehouse.filesystem.get_file_info(selector) if entry.base_name.endswith(".parquet")]
    files = [_read_file(warehouse, entry) for entry in listed if not entry.base_name.startswith((".", "_"))]
    ordered = sorted((file for file in files if file is not None), key=lambda file: file.min_token)
    return Run(run_id, schema_id, tuple(ordered))


def _read_file(warehouse: Warehouse, entry: fs.FileInfo) -> DataFile | None:
    with warehouse.filesystem.open_input_file(entry.path) as source:
        metadata = pq.ParquetFile(source).metadata
    if metadata.num_rows == 0:
        return None
    position = metadata.schema.names.index(TOKEN_COLUMN)
    ranges = [metadata.row_group(group).column(position).statistics for group in range(metadata.num_row_groups)]
    smallest, largest = min(r.min for r in ranges), max(r.max for r in ranges)
    return DataFile(entry.base_name, metadata.num_rows, entry.size, smallest, largest)


def file_uris(warehouse: Warehouse, table_id: str, run: Run) -> tuple[str, ...]:
    """The URIs of a run's files, for Spark."""
    return tuple(warehouse.uri(*data_file(table_id, run.id, file.name)) for file in run.files)


def delete_run(warehouse: Warehouse, table_id: str, run_id: str) -> None:
    """Remove a run's folder; one that is gone already is fine."""
    try:
        warehouse.filesystem.delete_dir(warehouse.path(*run_folder(table_id, run_id)))
    except FileNotFoundError:
        return
