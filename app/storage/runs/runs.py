"""Checks of runs: the files are there, footers are as the catalog says, totals fit their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from threading import RLock

import pyarrow.parquet as pq
from cachetools import LRUCache, cached

from app.core.errors import DamagedCatalog, Unavailable
from app.core.rules.rule import TotalBounds
from app.core.table.history import DataFile, Run
from app.core.table.total_ranges import UNBOUNDED, TotalRanges, joined, total_range
from app.core.table.upkeep.damage import NamedFile
from app.core.types.numbers import EXACT
from app.files.layout import Warehouse, data_file
from app.files.named_files import files_of_run, opened_parquet
from app.files.reading import token_bounds


def check_written(warehouse: Warehouse, table_id: str, runs: Sequence[Run]) -> None:
    """Raise ``Unavailable`` if the files that tasks wrote are not in this warehouse."""
    paths = [warehouse.path(*data_file(table_id, run.id, file.name)) for run in runs for file in run.files]
    sizes = [file.size_bytes for run in runs for file in run.files]
    statuses = warehouse.filesystem.get_file_info(paths)
    if any(status.size != size for status, size in zip(statuses, sizes, strict=True)):
        raise Unavailable(
            "Spark wrote files that are not in this worker's warehouse; give both the same KEYFOLD_WAREHOUSE"
        )


def check_footer(warehouse: Warehouse, file: NamedFile, stated_file: DataFile) -> None:
    """Raise ``DamagedCatalog`` if the file's footer has other rows or tokens than the catalog states for it.

    Raise ``DamagedFile``.
    """
    with opened_parquet(warehouse, file) as parquet:
        actual = (parquet.metadata.num_rows, *_token_range(parquet.metadata))
    if actual != (stated_file.rows, stated_file.min_token, stated_file.max_token):
        stated = f"{stated_file.rows} rows with tokens from {stated_file.min_token} to {stated_file.max_token}"
        has = "{} with tokens from {} to {}".format(*actual)
        raise DamagedCatalog(f"it says that {file.path} has {stated}, but the file has {has}")


def _token_range(metadata: pq.FileMetaData) -> tuple[int, int]:
    """Return the smallest and the largest token of a file that has rows."""
    bounds = [token_bounds(metadata.row_group(group)) for group in range(metadata.num_row_groups)]
    return min(least for least, _ in bounds), max(most for _, most in bounds)


def totals_fit(warehouse: Warehouse, table_id: str, runs: Sequence[Run], bounds: Sequence[TotalBounds]) -> bool:
    """Return whether the ranges of ``runs`` prove that no key's total over all of them leaves its column's type.

    Raise ``DamagedFile``.
    """
    if len(runs) > 1 and not all(bound.additive for bound in bounds):
        return False
    if any(run.schema_id != runs[-1].schema_id for run in runs):
        return False  # columns were added, renamed or given another meaning meanwhile: ranges know only names
    names = tuple((bound.column.name, bound.carry) for bound in bounds)
    ranges = [ranges_in_footers(warehouse, table_id, run, names) if run.totals is None else run.totals for run in runs]
    return all(
        _fits(bound, [ranges_of_file.get(bound.column.name, UNBOUNDED) for ranges_of_file in ranges])
        for bound in bounds
    )


def _fits(bound: TotalBounds, ranges: Sequence[Sequence[str]]) -> bool:
    low, high = (reduce(EXACT.add, (Decimal(bounds[end]) for bounds in ranges), Decimal(0)) for end in (0, 1))
    return bound.low <= low and high <= bound.high


# Read once a process: a merge's cost must not grow with its table.
@cached(LRUCache(10_000), lambda warehouse, table_id, run, names: (warehouse, table_id, run.id, names), RLock())
def ranges_in_footers(warehouse: Warehouse, table_id: str, run: Run, names: tuple[tuple[str, str], ...]) -> TotalRanges:
    """Return the ranges of a run that was written before runs had them; ``names`` are columns with their carries."""
    groups = [group for file in files_of_run(table_id, run) for group in _row_groups(warehouse, file)]
    return joined({name: _footer_range(group[name], group[carry])} for group in groups for name, carry in names)


def _row_groups(warehouse: Warehouse, file: NamedFile) -> Iterator[Mapping[str, pq.ColumnChunkMetaData]]:
    """Return the column chunks of each row group by top-level column name."""
    with opened_parquet(warehouse, file) as parquet:
        metadata = parquet.metadata
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}


def _footer_range(column: pq.ColumnChunkMetaData, carry: pq.ColumnChunkMetaData) -> Sequence[str]:
    if not _all_null(carry):
        return UNBOUNDED
    if _all_null(column):
        return total_range(())
    known = column.statistics is not None and column.statistics.has_min_max
    return total_range((column.statistics.min, column.statistics.max)) if known else UNBOUNDED


def _all_null(column: pq.ColumnChunkMetaData) -> bool:
    statistics = column.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == column.num_values
