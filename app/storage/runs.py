"""Runs as files: what a merge wrote, read from the Parquet footers (design §2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from threading import RLock

import pyarrow.parquet as pq
from cachetools import LRUCache, cached

from app.core.errors import DamagedCatalog, Unavailable
from app.core.rules.rule import TotalBounds
from app.core.table.damage import NamedFile
from app.core.table.history import DataFile, Run
from app.core.table.records import TOKEN_COLUMN
from app.storage.layout import Warehouse, data_file
from app.storage.named_files import files_of_run, opened_parquet


def check_written(warehouse: Warehouse, table_id: str, runs: Sequence[Run]) -> None:
    """Raise ``Unavailable`` where the files that tasks wrote are not in this warehouse."""
    paths = [warehouse.path(*data_file(table_id, run.id, file.name)) for run in runs for file in run.files]
    sizes = [file.size_bytes for run in runs for file in run.files]
    found = warehouse.filesystem.get_file_info(paths)
    if any(one.size != size for one, size in zip(found, sizes, strict=True)):
        raise Unavailable(
            "Spark wrote files that are not in this worker's warehouse; give both the same KEYFOLD_WAREHOUSE"
        )


def check_footer(warehouse: Warehouse, file: NamedFile, said: DataFile) -> None:
    """Raise ``DamagedCatalog`` where the file's footer has other rows or tokens than the catalog has ``said``.

    Raise ``DamagedFile``.
    """
    with opened_parquet(warehouse, file) as parquet:
        found = (parquet.metadata.num_rows, *_token_range(parquet.metadata))
    if found != (said.rows, said.min_token, said.max_token):
        told = f"{said.rows} rows with tokens from {said.min_token} to {said.max_token}"
        has = "{} with tokens from {} to {}".format(*found)
        raise DamagedCatalog(f"it says that {file.path} has {told}, but the file has {has}")


def _token_range(metadata: pq.FileMetaData) -> tuple[int, int]:
    """Return the smallest and the largest token of a file that has rows."""
    position = metadata.schema.names.index(TOKEN_COLUMN)
    ranges = [metadata.row_group(group).column(position).statistics for group in range(metadata.num_row_groups)]
    return min(one.min for one in ranges), max(one.max for one in ranges)


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
