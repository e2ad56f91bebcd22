"""Changelogs as files, which merges and compactions write (docs/decisions/0010)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from app.core.rules.row import LIVE_COLUMN
from app.core.rules.widening import same_type, widened
from app.core.table.history import ChangelogFile, Run
from app.core.table.named_columns import ALL_NAMED, NAMED_COLUMN, named_words
from app.core.table.records import KIND_COLUMN, RowKind
from app.core.table.schema import Column, TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.core.types.datatype import DataType
from app.files.arrow import answered_schema, arrow_field, field_id
from app.files.layout import Warehouse
from app.files.named_files import file_of_changelog, file_of_run, opened_parquet
from app.files.reading import rows_at_once
from app.storage.scans.writers import pieces

# Changes with texts of this size are decoded at a time.
MOST_BYTES = 2**20


@dataclass(frozen=True)
class ChangeFile:
    """A file whose rows are changes, and how many."""

    named: NamedFile
    rows: int


def files_of_changelog(table_id: str, snapshot_id: int, files: Sequence[ChangelogFile]) -> list[ChangeFile]:
    """Return the files that a merge or compaction wrote as the changelog of its snapshot."""
    return [ChangeFile(file_of_changelog(table_id, snapshot_id, file), file.rows) for file in files]


def files_of_runs(table_id: str, runs: Sequence[Run]) -> list[ChangeFile]:
    """Return the files of ``runs``, whose state rows count as changes: +I if live, else -D."""
    return [ChangeFile(file_of_run(table_id, run.id, file), file.rows) for run in runs for file in run.files]


def arrow_stream(
    columns: Sequence[Column], changes: Sequence[tuple[int, Sequence[tuple[RowKind, Mapping[str, Any]]]]]
) -> bytes:
    """Return an Arrow stream of changes, a record batch for each part of ``changes``: the number of its snapshot, and
    rows with their kinds.
    """
    sink = io.BytesIO()
    added_fields = [pa.field("_kind", pa.string()), pa.field("_snapshot", pa.int64())]
    schema = pa.schema([*added_fields, *answered_schema(columns)])
    with pa.ipc.new_stream(sink, schema) as writer:
        for snapshot, rows in changes:
            values = [[row.get(column.name) for _, row in rows] for column in columns]
            arrays = [[kind.text for kind, _ in rows], [snapshot] * len(rows), *values]
            typed = [pa.array(array, field.type) for array, field in zip(arrays, schema, strict=True)]
            writer.write_batch(pa.record_batch(typed, schema=schema))
    return sink.getvalue()


def changes_in(
    warehouse: Warehouse,
    files: Sequence[ChangeFile],
    written: TableSchema,
    schema: TableSchema,
    start: int,
    most: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the changes in ``files`` from number ``start`` (from 0) on, up to ``most`` and ``MOST_BYTES`` at a time:
    the row kind, then the columns of ``schema``, found by their ids, and the bitmasks of named columns, if the table
    has them. The files were written under the schema ``written``. Raise ``DamagedFile``.
    """
    for file in files:
        if start < file.rows:
            batches = (_as_of(batch, written, schema) for batch in _changes_in(warehouse, file, start, most))
            yield from pieces(batches, MOST_BYTES)
        start = max(0, start - file.rows)


def _changes_in(warehouse: Warehouse, file: ChangeFile, start: int, most: int) -> Iterator[pa.RecordBatch]:
    with opened_parquet(warehouse, file.named) as parquet:
        groups: list[int] = []
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if start >= rows and not groups:
                start -= rows  # never decoded
            else:
                groups.append(group)
        for group in groups:
            rows = rows_at_once(warehouse, file.named, parquet.metadata, group, None, MOST_BYTES)
            for batch in parquet.iter_batches(min(most, rows), row_groups=[group]):
                if start < batch.num_rows:
                    yield batch.slice(start)
                start = max(0, start - batch.num_rows)


def _as_of(batch: pa.RecordBatch, written: TableSchema, schema: TableSchema) -> pa.RecordBatch:
    """Return the row kind and the columns of ``schema``; a job that began before an ALTER wrote the old columns."""
    places = {field_id(field): place for place, field in enumerate(batch.schema)}
    types = {column.id: column.type for column in written.columns}
    fields = [arrow_field(column) for column in schema.columns]
    columns = [
        _converted(batch.column(places[column.id]), types.get(column.id, column.type), column, field.type)
        if column.id in places
        else pa.nulls(len(batch), field.type)
        for column, field in zip(schema.columns, fields, strict=True)
    ]
    words = [(pa.field(word, pa.int64()), _word(batch, word)) for word in named_words(schema)]
    fields = [pa.field(KIND_COLUMN, pa.int8()), *fields, *(field for field, _ in words)]
    return pa.record_batch([_kinds(batch), *columns, *(values for _, values in words)], schema=pa.schema(fields))


def _word(batch: pa.RecordBatch, word: str) -> pa.Array:
    """Return a word of the records: a bitmask of named columns.

    Records that were merged before the table's records had words count as naming every column, as rows do.
    """
    names = batch.schema.names
    if word in names:
        return batch.column(word)
    has_words = any(name.startswith(NAMED_COLUMN) for name in names)
    return pa.repeat(pa.scalar(0 if has_words else ALL_NAMED, pa.int64()), len(batch))


def _converted(values: pa.Array, old: DataType, column: Column, arrow: pa.DataType) -> pa.Array:
    if same_type(old, column.type):
        return values.cast(arrow)
    return pa.array([widened(value, old, column.type) for value in values.to_pylist()], arrow)


def _kinds(batch: pa.RecordBatch) -> pa.Array:
    names = batch.schema.names
    if KIND_COLUMN in names:
        return batch.column(KIND_COLUMN).cast(pa.int8())
    if LIVE_COLUMN not in names:
        return pa.repeat(pa.scalar(int(RowKind.INSERT), pa.int8()), len(batch))
    insert, delete = (pa.scalar(int(kind), pa.int8()) for kind in (RowKind.INSERT, RowKind.DELETE))
    return pc.if_else(batch.column(LIVE_COLUMN), insert, delete)
