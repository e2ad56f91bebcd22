"""Runs as files: what a merge wrote, read from the Parquet footers (design §2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import partial
from threading import RLock

import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache, cached
from pyarrow import fs

from app.core.plan.jobs import StoredFile
from app.core.rules.row import LIVE_COLUMN
from app.core.rules.rule import TotalBounds
from app.core.table.damage import NamedFile
from app.core.table.history import DataFile, Run
from app.core.table.keys import partition_text
from app.core.table.records import PARTITION_COLUMN, TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.storage.checksums import checksums_of
from app.storage.layout import Warehouse, data_file, run_folder, sync_folder, sync_new_folders
from app.storage.named_files import CHECKED_AT_ONCE, files_of_run, opened_parquet


def read_runs(warehouse: Warehouse, table_id: str, folder: str, schema_id: int, schema: TableSchema) -> tuple[Run, ...]:
    """The runs that one job wrote: one, or one in each partition; none where it wrote no row."""
    if not schema.partition_keys:
        runs = [read_run(warehouse, table_id, folder, schema_id)]
    else:
        listed = warehouse.filesystem.get_file_info(
            fs.FileSelector(warehouse.path(*run_folder(table_id, folder)), allow_not_found=True)
        )
        tokens = [one.base_name.partition("=")[2] for one in listed if one.base_name.startswith(PARTITION_COLUMN)]
        each = [read_run(warehouse, table_id, f"{folder}.{token}", schema_id) for token in sorted(tokens)]
        runs = [replace(run, partition=_partition(warehouse, table_id, run, schema)) for run in each if run.files]
    return tuple(run for run in runs if run.files)


def _partition(warehouse: Warehouse, table_id: str, run: Run, schema: TableSchema) -> str:
    """The partition whose rows all files of the run hold. Raises ``ValueError`` when they hold several: two partitions
    whose tokens are equal by chance cannot be told apart by their folder.
    """
    found = {partition for file in run.files for partition in _partitions_of(warehouse, table_id, run, file, schema)}
    if len(found) != 1:
        raise ValueError(f"a folder holds rows of the partitions {', '.join(sorted(found))}")
    return found.pop()


def _partitions_of(warehouse: Warehouse, table_id: str, run: Run, file: DataFile, schema: TableSchema) -> Iterator[str]:
    names = list(schema.partition_keys)
    path = warehouse.path(*data_file(table_id, run.id, file.name))
    with warehouse.filesystem.open_input_file(path) as source:
        distinct = pq.ParquetFile(source).read(columns=names)
    for row in distinct.group_by(names).aggregate([]).to_pylist():
        yield partition_text(schema, row)


def read_run(warehouse: Warehouse, table_id: str, run_id: str, schema_id: int) -> Run:
    """The run whose files lie in its folder: names, rows, token ranges and checksums, in token order; empty files are
    left out.
    """
    ordered = read_data_files(warehouse, run_folder(table_id, run_id))
    live = sum(_live_rows(warehouse, data_file(table_id, run_id, file.name)) for file in ordered)
    return Run(run_id, schema_id, tuple(ordered), live_rows=live)


def _live_rows(warehouse: Warehouse, segments: tuple[str, ...]) -> int:
    """The rows of a file that are no deleted keys; only where some are, a column of one bit a row is read."""
    with warehouse.filesystem.open_input_file(warehouse.path(*segments)) as source:
        file = pq.ParquetFile(source)
        metadata = file.metadata
        paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
        if LIVE_COLUMN not in paths:
            return int(metadata.num_rows)
        place = paths.index(LIVE_COLUMN)
        chunks = [metadata.row_group(group).column(place) for group in range(metadata.num_row_groups)]
        if all(_all_true(chunk) for chunk in chunks):
            return int(metadata.num_rows)
        return int(pc.sum(file.read(columns=[LIVE_COLUMN])[LIVE_COLUMN]).as_py() or 0)


def _all_true(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    known = statistics is not None and statistics.has_min_max and statistics.has_null_count
    return bool(known and statistics.min and not statistics.null_count)


def read_data_files(warehouse: Warehouse, segments: tuple[str, ...]) -> list[DataFile]:
    """The files in a folder that Spark has written, made durable, in token order; empty ones are left out."""
    listed = durable_files(warehouse, segments)
    if not listed:
        return []
    with ThreadPoolExecutor(min(CHECKED_AT_ONCE, len(listed))) as pool:
        found = list(pool.map(partial(read_data_file, warehouse), listed))
    return sorted((file for file in found if file is not None), key=lambda file: file.min_token)


def durable_files(warehouse: Warehouse, segments: tuple[str, ...]) -> list[fs.FileInfo]:
    """The Parquet files in a folder that Spark has written, made durable; none if there is no folder."""
    folder = warehouse.path(*segments)
    selector = fs.FileSelector(folder, allow_not_found=True)
    listed = [entry for entry in warehouse.filesystem.get_file_info(selector) if entry.base_name.endswith(".parquet")]
    _make_durable(warehouse, segments, [entry.path for entry in listed])
    return [entry for entry in listed if not entry.base_name.startswith((".", "_"))]


def _make_durable(warehouse: Warehouse, folder: tuple[str, ...], paths: Sequence[str]) -> None:
    """Spark does not fsync what it writes; a snapshot must not name what a power cut can lose."""
    if not warehouse.local or not paths:
        return
    for path in (*paths, warehouse.path(*folder)):
        sync_folder(path)
    sync_new_folders(warehouse, *folder)


def read_data_file(warehouse: Warehouse, entry: fs.FileInfo) -> DataFile | None:
    """Rows, token range and checksums of a file that has the column of tokens; None if it is empty."""
    with warehouse.filesystem.open_input_file(entry.path) as source:
        metadata = pq.ParquetFile(source).metadata
    if metadata.num_rows == 0:
        return None
    position = metadata.schema.names.index(TOKEN_COLUMN)
    ranges = [metadata.row_group(group).column(position).statistics for group in range(metadata.num_row_groups)]
    smallest, largest = min(r.min for r in ranges), max(r.max for r in ranges)
    # Nobody else writes it, so what is read here is what every reader must find.
    found = checksums_of(warehouse, entry.path)
    return DataFile(
        entry.base_name, metadata.num_rows, found.size_bytes, smallest, largest, found.digest, found.block_digests
    )


def totals_fit(warehouse: Warehouse, table_id: str, runs: Sequence[Run], bounds: Sequence[TotalBounds]) -> bool:
    """Whether the statistics in the footers prove that no key's total over all ``runs`` leaves its column's range.

    Raises ``DamagedFile``.
    """
    if len(runs) > 1 and not all(bound.additive for bound in bounds):
        return False
    if any(run.schema_id != runs[-1].schema_id for run in runs):
        return False  # columns were added, renamed or given another meaning meanwhile: footers know only names
    names = tuple((bound.column.name, bound.carry) for bound in bounds)
    low = [Decimal(0)] * len(names)
    high = list(low)
    for run in runs:
        of_run = _value_ranges(warehouse, table_id, run, names)
        if of_run is None:
            return False
        for place, (smallest, largest) in enumerate(of_run):
            low[place] += smallest
            high[place] += largest
    return all(bound.low <= low[place] and high[place] <= bound.high for place, bound in enumerate(bounds))


# Runs never change, and a merge's cost must not grow with its table: neither with its bytes nor with its files.
@cached(LRUCache(10_000), lambda warehouse, table_id, run, names: (warehouse, table_id, run.id, names), RLock())
def _value_ranges(
    warehouse: Warehouse, table_id: str, run: Run, names: tuple[tuple[str, str], ...]
) -> tuple[tuple[Decimal, Decimal], ...] | None:
    """The smallest and largest value (with 0) of each column of a run, by ``names`` (column, its carry); None where a
    carry is in use.
    """
    low = [Decimal(0)] * len(names)
    high = list(low)
    for group in _row_groups(warehouse, files_of_run(table_id, run)):
        for place, (name, carry) in enumerate(names):
            if not _all_null(group, carry):
                return None
            smallest, largest = _value_range(group, name)
            low[place], high[place] = min(low[place], smallest), max(high[place], largest)
    return tuple(zip(low, high, strict=True))


def _row_groups(warehouse: Warehouse, files: Sequence[NamedFile]) -> Iterator[Mapping[str, pq.ColumnChunkMetaData]]:
    """The column chunks of each row group by top-level column name."""
    for file in files:
        with opened_parquet(warehouse, file) as parquet:
            metadata = parquet.metadata
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            yield {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}


def _all_null(group: Mapping[str, pq.ColumnChunkMetaData], name: str) -> bool:
    statistics = group[name].statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == group[name].num_values


def _value_range(group: Mapping[str, pq.ColumnChunkMetaData], name: str) -> tuple[Decimal, Decimal]:
    if _all_null(group, name):
        return Decimal(0), Decimal(0)
    statistics = group[name].statistics
    if statistics is None or not statistics.has_min_max:
        return Decimal("-Infinity"), Decimal("Infinity")
    return Decimal(statistics.min), Decimal(statistics.max)


def stored_files(warehouse: Warehouse, table_id: str, run: Run) -> tuple[StoredFile, ...]:
    """A run's files as the merge executor reads them."""
    return tuple(
        StoredFile(warehouse.spark_uri(*data_file(table_id, run.id, file.name)), file.min_token, file.max_token)
        for file in run.files
    )
