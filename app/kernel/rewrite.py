"""Rewrite files without forgotten keys (docs/decisions/0036).

Rows of other keys are only copied as columns: their values, order and row groups do not change.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.rules.row import LIVE_COLUMN
from app.core.table.named_columns import named_words
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import FileKind
from app.core.table.upkeep.forgetting import Sought
from app.files.arrow import arrow_field, field_id
from app.files.checksums import BLOCK_BYTES, SummedSink
from app.files.encodings import STAGED, columns_with_statistics, encodings_of_own
from app.files.layout import Warehouse
from app.files.named_files import opened_parquet
from app.files.reading import may_hold
from app.files.tokens import tokens_of
from app.kernel.tasks import Rewrite, RewrittenFile, Task

Mask = npt.NDArray[np.bool_]
_PLAIN: Final = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
# How the files of each kind are written, as those who write them first do: readers use the same statistics.
_HOW: Final[Mapping[FileKind, Mapping[str, Any]]] = {
    FileKind.RUN: {**_PLAIN, "write_page_index": True},
    FileKind.CHANGELOG: {**_PLAIN, "write_page_index": True},
    FileKind.HISTORY: {**_PLAIN, "write_statistics": [TOKEN_COLUMN]},
    FileKind.STAGING: {**_PLAIN, **STAGED},
}


def rewritten(warehouse: Warehouse, task: Task) -> tuple[RewrittenFile | None, ...]:
    """Return each file of the task's ``rewrites`` without the keys, None if it has none of them.

    Raise ``DamagedFile``.
    """
    return tuple(_without(warehouse, rewrite, task.schema, task.sought) for rewrite in task.rewrites)


def _without(warehouse: Warehouse, rewrite: Rewrite, schema: TableSchema, sought: Sought) -> RewrittenFile | None:
    with opened_parquet(warehouse, rewrite.file) as parquet:
        masks = [_matches(parquet, group, schema, sought) for group in range(parquet.num_row_groups)]
        if not any(mask.any() for mask in masks):
            return None
        how = dict(_HOW[rewrite.file.kind])
        if rewrite.file.kind in (FileKind.HISTORY, FileKind.STAGING):
            words = named_words(schema)
            how["use_dictionary"] = list(words) or False
            how["column_encoding"] = encodings_of_own(parquet.schema_arrow, words)
        else:
            how["write_statistics"] = columns_with_statistics(parquet.schema_arrow)
        name = f"{uuid.uuid4().hex}.parquet"
        if not warehouse.is_store:
            warehouse.filesystem.create_dir(warehouse.path(*rewrite.folder))
        with warehouse.filesystem.open_output_stream(warehouse.path(*rewrite.folder, name)) as output:
            return _copied(parquet, masks, output, name, how)


def _copied(
    parquet: pq.ParquetFile, masks: list[Mask], output: Any, name: str, how: Mapping[str, Any]
) -> RewrittenFile:
    """Write the rows that no mask marks to ``output``; each row group with its remaining rows."""
    summed = SummedSink(output)
    rows = live = 0
    ends: list[int] = []
    with (
        io.BufferedWriter(summed, BLOCK_BYTES) as sink,
        pq.ParquetWriter(sink, parquet.schema_arrow, **how) as writer,
    ):
        for group, mask in enumerate(masks):
            table = parquet.read_row_group(group)
            remaining = table.filter(pa.array(~mask)) if mask.any() else table
            live += _live(table, mask)
            if remaining.num_rows:
                writer.write_table(remaining, row_group_size=remaining.num_rows)
                rows += remaining.num_rows
                ends += _ends(remaining)
    sums = summed.sums.checksums
    removed = sum(int(mask.sum()) for mask in masks)
    tokens = (ends[0], ends[-1]) if ends else ()
    return RewrittenFile(name, rows, removed, live, sums.size_bytes, sums.digest, sums.block_digests, tokens)


def _matches(parquet: pq.ParquetFile, group: int, schema: TableSchema, sought: Sought) -> Mask:
    """Return which rows of a row group have one of the keys."""
    names = _key_names(parquet, schema)
    rows = parquet.metadata.row_group(group).num_rows
    wanted = np.array(sorted(sought.tokens), np.int64)
    if TOKEN_COLUMN in parquet.schema_arrow.names:
        if not may_hold(wanted, parquet.metadata.row_group(group)):
            return np.zeros(rows, np.bool_)
        tokens = parquet.read_row_group(group, [TOKEN_COLUMN]).column(0).to_numpy()
        if not np.isin(tokens, wanted).any():
            return np.zeros(rows, np.bool_)
        keys = parquet.read_row_group(group, names)
    else:
        keys = parquet.read_row_group(group, names)
        tokens = None
    keys = keys.select(names).rename_columns(list(schema.primary_key))
    keys = keys.cast(pa.schema([arrow_field(column) for column in schema.key_columns]))
    tokens = tokens_of(schema, keys) if tokens is None else tokens
    hits: Mask = np.isin(tokens, wanted)
    for place in np.flatnonzero(hits):
        row = keys.slice(int(place), 1).to_pylist()[0]
        hits[place] = sought.has(schema, tuple(row[name] for name in schema.primary_key))
    return hits


def _key_names(parquet: pq.ParquetFile, schema: TableSchema) -> list[str]:
    """Return the names of the key columns in the file: a job that began before an ALTER wrote the old names."""
    by_id = {field_id(field): field.name for field in parquet.schema_arrow}
    return [by_id.get(column.id, column.name) for column in schema.key_columns]


def _live(table: pa.Table, mask: Mask) -> int:
    """Return how many of the rows that were found are seen by readers."""
    if LIVE_COLUMN not in table.column_names:
        return int(mask.sum())
    return int((table.column(LIVE_COLUMN).to_numpy(zero_copy_only=False).astype(np.bool_) & mask).sum())


def _ends(table: pa.Table) -> list[int]:
    """Return the first and the last token, of rows that are sorted by it."""
    if TOKEN_COLUMN not in table.column_names:
        return []
    tokens = table.column(TOKEN_COLUMN)
    return [tokens[0].as_py(), tokens[len(tokens) - 1].as_py()]
