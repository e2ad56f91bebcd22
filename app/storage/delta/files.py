"""Data files as actions of a Delta log: path, statistics and deletion vector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.errors import Unfoldable
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.row import LIVE_COLUMN, Liveness
from app.core.table.delta import Published
from app.core.table.history import DataFile, Run
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.core.types.kinds import Family
from app.files.layout import Warehouse, data_file
from app.files.named_files import file_of_run, opened_parquet
from app.storage.delta.vectors import deletion_vector

_BOUNDED = (Family.INTEGER, Family.DATE, Family.TEXT)  # whose bounds JSON holds exactly
_LONGEST_BOUND = 64  # characters


@dataclass(frozen=True)
class _Asked:
    """What is asked of a file: whether rows may be hidden, columns with the carries of their totals, and of which
    columns nulls are counted and (true) bounds are told.
    """

    may_hide: bool
    carries: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, written: TableSchema) -> _Asked:
        """Of a file that was written under this schema."""
        plan = compile_plan(written)
        return cls(
            plan.row.liveness is not Liveness.ALWAYS,
            tuple((bounds.column.name, bounds.carry) for bounds in plan.totals),
            tuple((column.name, column.type.family in _BOUNDED) for column in written.columns),
        )


@dataclass(frozen=True)
class _Facts:
    """What a file says of its rows: its deletion vector as JSON (empty: none), and by column the count of nulls and the
    bounds.
    """

    vector: str
    null_counts: tuple[tuple[str, int], ...]
    bounds: tuple[tuple[str, Any, Any], ...]


def added_files(warehouse: Warehouse, published: Published) -> dict[str, dict[str, Any]]:
    """Return the ``add`` of every file that a version shows, by path below the table's folder.

    Equal runs give equal actions, by any worker and at any time. Raise ``DamagedFile``, and ``Unfoldable`` where a
    row has a total that its column cannot hold, which no commit lets through (decision 5).
    """
    found = {}
    for run in published.runs:
        for file in run.files:
            path = "/".join(data_file(published.version.table_id, run.id, file.name)[1:])
            found[path] = _add(warehouse, published, run, file, path)
    return found


def _add(warehouse: Warehouse, published: Published, run: Run, file: DataFile, path: str) -> dict[str, Any]:
    written = published.written[run.schema_id]
    facts = _facts(warehouse, file_of_run(published.version.table_id, run.id, file), _Asked.of(written))
    action: dict[str, Any] = {
        "path": quote(path, safe="/=._-"),
        "partitionValues": {},
        "size": file.size_bytes,
        "modificationTime": 0 if run.changed_at is None else int(run.changed_at.timestamp() * 1000),
        "dataChange": True,
        "stats": json.dumps(_stats(facts, file.rows, published.schema)),
    }
    return action | ({"deletionVector": json.loads(facts.vector)} if facts.vector else {})


def removed_file(action: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Return the ``remove`` of what an ``add`` added, at ``at`` (epoch milliseconds): file and deletion vector name
    it.
    """
    kept = {name: action[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in action}
    return {**kept, "deletionTimestamp": at, "dataChange": True, "extendedFileMetadata": True}


def _stats(facts: _Facts, rows: int, schema: TableSchema) -> dict[str, Any]:
    """Of the columns that the table has now; the bounds are those of hidden rows too."""
    names = schema.by_name
    return {
        "numRecords": rows,
        "minValues": {name: low for name, low, _ in facts.bounds if name in names},
        "maxValues": {name: high for name, _, high in facts.bounds if name in names},
        "nullCount": {name: nulls for name, nulls in facts.null_counts if name in names},
        "tightBounds": not facts.vector,
    }


@lru_cache(maxsize=10_000)  # files never change, and each is asked for twice: when it comes and when it goes
def _facts(warehouse: Warehouse, file: NamedFile, asked: _Asked) -> _Facts:
    with opened_parquet(warehouse, file) as parquet:
        _check_totals(parquet, asked)
        vector = deletion_vector(_dead_rows(parquet)) if asked.may_hide else None
        nulls, bounds = [], []
        for name, bounded in asked.columns:
            chunks = _chunks(parquet.metadata, name)
            if chunks:
                nulls.append((name, sum(chunk.null_count for chunk in chunks)))
                found = _bounds(chunks) if bounded else None
                bounds += [] if found is None else [(name, *found)]
    return _Facts(json.dumps(vector) if vector else "", tuple(nulls), tuple(bounds))


def _check_totals(parquet: pq.ParquetFile, asked: _Asked) -> None:
    there = set(parquet.schema_arrow.names)
    for name, carry in asked.carries:
        if carry in there and not _all_null(parquet, carry):
            raise Unfoldable(f"column {name!r} of a row is out of range: it cannot be published as Delta")


def _all_null(parquet: pq.ParquetFile, name: str) -> bool:
    chunks = _chunks(parquet.metadata, name)
    if chunks and sum(chunk.null_count for chunk in chunks) == parquet.metadata.num_rows:
        return True
    return bool(parquet.read(columns=[name])[name].null_count == parquet.metadata.num_rows)


def _dead_rows(parquet: pq.ParquetFile) -> Iterator[int]:
    """Yield the places of the rows that no reader sees."""
    if LIVE_COLUMN not in parquet.schema_arrow.names:
        yield from range(parquet.metadata.num_rows)
        return
    start = 0
    for batch in parquet.iter_batches(columns=[LIVE_COLUMN]):
        live: pa.Array = pc.fill_null(batch.column(0), False)
        yield from (int(place) + start for place in np.flatnonzero(~live.to_numpy(zero_copy_only=False)))
        start += len(batch)


def _chunks(metadata: pq.FileMetaData, name: str) -> Sequence[pq.Statistics]:
    """Return the statistics of a column in each row group; none where it is nested, or a row group has none. Of `a.b`
    none: a field `b` of a column `a` has the same path.
    """
    if "." in name:
        return ()
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        places = [place for place in range(group.num_columns) if group.column(place).path_in_schema == name]
        statistics = group.column(places[0]).statistics if places else None
        if statistics is None or not statistics.has_null_count:
            return ()
        found.append(statistics)
    return found


def _bounds(chunks: Sequence[pq.Statistics]) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value as JSON; None where they are not known, or long."""
    valued = [chunk for chunk in chunks if chunk.num_values]
    if not valued or not all(chunk.has_min_max for chunk in valued):
        return None
    low, high = min(chunk.min for chunk in valued), max(chunk.max for chunk in valued)
    if isinstance(low, str) and max(len(low), len(high)) > _LONGEST_BOUND:
        return None
    if isinstance(low, (int, str)):
        return low, high
    return (low.isoformat(), high.isoformat()) if hasattr(low, "isoformat") else None
