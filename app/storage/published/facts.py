"""Facts about the rows of the data files of a published version."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import FrozenBitMap

from app.core.errors import Unfoldable
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.row import LIVE_COLUMN, Liveness
from app.core.table.history import DataFile, Run
from app.core.table.published import Changes, Published
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.core.types.kinds import Family
from app.files.folders import at_once
from app.files.layout import Warehouse
from app.files.named_files import file_of_changelog, file_of_run, opened_parquet

Bound = int | str | date
_BOUNDED = (Family.INTEGER, Family.DATE, Family.TEXT)  # whose bounds every format holds exactly
_LONGEST_BOUND = 64  # characters


@dataclass(frozen=True)
class _WantedFacts:
    """The facts that are wanted of a file.

    These are whether rows may be hidden, columns with the carries of their totals, and the columns whose nulls are
    counted and (true) whose bounds are noted.
    """

    may_hide: bool
    carries: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, bool], ...]

    @classmethod
    def from_run(cls, written: TableSchema, run: Run) -> _WantedFacts:
        """Return the facts that are needed of a file of a run which was written under this schema."""
        plan = compile_plan(written)
        return cls(
            plan.row.liveness is not Liveness.ALWAYS and run.live_rows != run.rows,
            tuple((bounds.column.name, bounds.carry) for bounds in plan.totals),
            _bounded(written),
        )

    @classmethod
    def of_changes(cls, written: TableSchema) -> _WantedFacts:
        """Return the facts that are needed of a file of changes, which has no states: those of the columns of its
        rows.
        """
        return cls(may_hide=False, carries=(), columns=_bounded(written))


def _bounded(written: TableSchema) -> tuple[tuple[str, bool], ...]:
    return tuple((column.name, column.type.family in _BOUNDED) for column in written.columns)


@dataclass(frozen=True)
class FileFacts:
    """Facts about the rows of a file: ``dead`` are the places of hidden rows. The counts of nulls and the bounds by
    column include hidden rows.
    """

    dead: FrozenBitMap
    null_counts: tuple[tuple[str, int], ...]
    bounds: tuple[tuple[str, Bound, Bound], ...]


def read_facts(warehouse: Warehouse, published: Published, runs: Sequence[Run]) -> None:
    """Read the facts of ``runs`` and of the version's changes ahead, in a store several files at a time. Then
    ``facts_of`` and ``facts_of_changes`` need no request. Raise what they raise.
    """
    table_id = published.version.table_id
    asks: list[Callable[[], FileFacts]] = []
    asks += (partial(facts_of, warehouse, published, run, file) for run in runs for file in run.files)
    for changes in published.changes:
        files = (file_of_changelog(table_id, changes.snapshot_id, file) for file in changes.files)
        asks += (partial(facts_of_changes, warehouse, published, changes, file) for file in files)
    at_once(warehouse, lambda ask: ask(), asks)


def facts_of(warehouse: Warehouse, published: Published, run: Run, file: DataFile) -> FileFacts:
    """Return the facts of a file of a version's run, without what later changes hide. Raise ``DamagedFile``, and
    ``Unfoldable`` if a row has a total that its column cannot hold, which no commit lets through (decision 5).
    """
    named = file_of_run(published.version.table_id, run.id, file)
    return _facts(warehouse, named, _WantedFacts.from_run(published.written[run.schema_id], run))


def facts_of_changes(warehouse: Warehouse, published: Published, changes: Changes, file: NamedFile) -> FileFacts:
    """Return the same of a file of a version's changes. Raise ``DamagedFile``."""
    return _facts(warehouse, file, _WantedFacts.of_changes(published.written[changes.schema_id]))


@lru_cache(maxsize=10_000)  # files never change, and each is asked for twice: when it comes and when it goes
def _facts(warehouse: Warehouse, file: NamedFile, wanted: _WantedFacts) -> FileFacts:
    with opened_parquet(warehouse, file) as parquet:
        _check_totals(parquet, wanted)
        dead = _dead_rows(parquet) if wanted.may_hide else FrozenBitMap()
        nulls, bounds, places = [], [], _places(parquet.metadata)
        for name, bounded in wanted.columns:
            chunks = _chunks(parquet.metadata, places.get(name))
            if chunks:
                nulls.append((name, sum(chunk.null_count for chunk in chunks)))
                ends = _bounds(chunks) if bounded else None
                bounds += [] if ends is None else [(name, *ends)]
    return FileFacts(dead, tuple(nulls), tuple(bounds))


def _check_totals(parquet: pq.ParquetFile, wanted: _WantedFacts) -> None:
    stored = set(parquet.schema_arrow.names) if wanted.carries else ()
    for name, carry in wanted.carries:
        if carry in stored and not _all_null(parquet, carry):
            raise Unfoldable(f"column {name!r} of a row is out of range: it cannot be published")


def _all_null(parquet: pq.ParquetFile, name: str) -> bool:
    chunks = _chunks(parquet.metadata, _places(parquet.metadata).get(name))
    if chunks and sum(chunk.null_count for chunk in chunks) == parquet.metadata.num_rows:
        return True
    return bool(parquet.read(columns=[name])[name].null_count == parquet.metadata.num_rows)


def _dead_rows(parquet: pq.ParquetFile) -> FrozenBitMap:
    """Return the places of the rows that no reader sees."""
    rows = parquet.metadata.num_rows
    if LIVE_COLUMN not in parquet.schema_arrow.names:
        return FrozenBitMap(range(rows))
    live = parquet.read(columns=[LIVE_COLUMN], use_threads=False)[LIVE_COLUMN]
    dead = np.flatnonzero(~pc.fill_null(live, False).to_numpy())
    return FrozenBitMap(array("I", dead.astype(np.uint32).tobytes()))  # six times as fast as one by one


def _places(metadata: pq.FileMetaData) -> dict[str, int]:
    """Return where the flat columns are; without `a.b`, for a field `b` of a column `a` has the same path."""
    if not metadata.num_row_groups:
        return {}
    group = metadata.row_group(0)
    paths = ((group.column(place).path_in_schema, place) for place in range(group.num_columns))
    return {path: place for path, place in paths if "." not in path}


def _chunks(metadata: pq.FileMetaData, place: int | None) -> Sequence[pq.Statistics]:
    """Return the statistics of a column in each row group; none if it is nested, or a row group has none."""
    if place is None:
        return ()
    chunks = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(place).statistics
        if statistics is None or not statistics.has_null_count:
            return ()
        chunks.append(statistics)
    return chunks


def _bounds(chunks: Sequence[pq.Statistics]) -> tuple[Bound, Bound] | None:
    """Return the smallest and the largest value; None if they are not known, or long."""
    valued = [chunk for chunk in chunks if chunk.num_values]
    if not valued or not all(chunk.has_min_max for chunk in valued):
        return None
    low, high = min(chunk.min for chunk in valued), max(chunk.max for chunk in valued)
    if isinstance(low, str) and max(len(low), len(high)) > _LONGEST_BOUND:
        return None
    return low, high
