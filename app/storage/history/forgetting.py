"""Files without some keys: all else that a file holds, written once more (docs/decisions/0036).

Rows of other keys are not decoded into anything but columns: their values, order and row groups stay.
"""

from __future__ import annotations

import io
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.rules.row import LIVE_COLUMN
from app.core.table.history import Batch, ChangelogFile, DataFile, HistoryFile, Run
from app.core.table.named_columns import named_words
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import FileKind, NamedFile
from app.core.table.upkeep.forgetting import Sought
from app.files.arrow import arrow_field, field_id
from app.files.checksums import BLOCK_BYTES, Checksums, SummedSink
from app.files.encodings import encodings_of_own
from app.files.folders import at_once
from app.files.layout import (
    Warehouse,
    changelog_file,
    changelog_folder,
    data_file,
    history_file,
    run_folder,
    staging_file,
    sync_folder,
)
from app.files.named_files import file_of_batch, file_of_changelog, file_of_history, file_of_run, opened_parquet
from app.files.reading import may_hold
from app.files.tokens import tokens_of
from app.storage.staging.staging import STAGED

Mask = npt.NDArray[np.bool_]
Written = tuple[int, ...]
_PLAIN: Final = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
# How the files of each kind are written, as those who write them first do: readers use the same statistics.
_HOW: Final[Mapping[FileKind, Mapping[str, Any]]] = {
    FileKind.RUN: {**_PLAIN, "write_page_index": True},
    FileKind.CHANGELOG: {**_PLAIN, "write_page_index": True},
    FileKind.HISTORY: {**_PLAIN, "write_statistics": [TOKEN_COLUMN]},
    FileKind.STAGING: {**_PLAIN, **STAGED},
}


@dataclass(frozen=True)
class _Without:
    """A file that was written without the keys: what is in it, and how many rows are not, ``live`` ones among them;
    ``tokens`` are the first and the last, where the file has any.
    """

    rows: int
    removed: int
    live: int
    sums: Checksums
    tokens: tuple[int, int] | None


@dataclass(frozen=True)
class Rewritten:
    """What a run became, None where nothing is left of it, and how many rows it lost."""

    run: Run | None
    removed: int


def run_without(warehouse: Warehouse, table_id: str, run: Run, schema: TableSchema, sought: Sought) -> Rewritten | None:
    """Return the run without the rows of the keys, in another folder; None where it has none. Raise ``DamagedFile``."""
    tokens = np.array(sorted(sought.tokens), np.int64)
    near = [one for one in run.files if ((tokens >= one.min_token) & (tokens <= one.max_token)).any()]
    holding = {one.name for one in near if _holds(warehouse, file_of_run(table_id, run.id, one), schema, sought)}
    if not holding:
        return None
    _folder, _, partition = run.id.partition(".")
    new_id = f"{uuid.uuid4().hex}.{partition}" if partition else uuid.uuid4().hex
    files: list[DataFile] = []
    live = removed = 0
    for one in run.files:
        target = data_file(table_id, new_id, one.name)
        if one.name not in holding:
            files.append(one)
            continue
        rest = _write(warehouse, file_of_run(table_id, run.id, one), target, schema, sought)
        live, removed = live + rest.live, removed + rest.removed
        if rest.tokens is not None:
            sums = rest.sums
            files.append(
                replace(
                    one,
                    rows=rest.rows,
                    size_bytes=sums.size_bytes,
                    min_token=rest.tokens[0],
                    max_token=rest.tokens[1],
                    digest=sums.digest,
                    block_digests=sums.block_digests,
                )
            )
    same = [one.name for one in run.files if one.name not in holding]
    _bring(warehouse, run_folder(table_id, run.id), run_folder(table_id, new_id), same)
    if not files:
        return Rewritten(None, removed)
    counted = None if run.live_rows is None else run.live_rows - live
    return Rewritten(replace(run, id=new_id, files=tuple(files), live_rows=counted), removed)


def changes_without(
    warehouse: Warehouse,
    table_id: str,
    snapshot_id: int,
    files: Sequence[ChangelogFile],
    schema: TableSchema,
    sought: Sought,
) -> list[ChangelogFile] | None:
    """Return the changelog of a snapshot without the changes of the keys, in another folder; None where it has none.

    Raise ``DamagedFile``.
    """
    named = {one.name: file_of_changelog(table_id, snapshot_id, one) for one in files}
    holding = {name for name, one in named.items() if _holds(warehouse, one, schema, sought)}
    if not holding:
        return None
    folder = uuid.uuid4().hex
    left: list[ChangelogFile] = []
    for one in files:
        name = f"{folder}/{one.name.partition('/')[2]}"
        if one.name in holding:
            rest = _write(warehouse, named[one.name], changelog_file(table_id, name), schema, sought)
            sums = rest.sums
            if rest.rows:
                left.append(ChangelogFile(name, rest.rows, sums.size_bytes, sums.digest, sums.block_digests))
        else:
            old = changelog_folder(table_id, one.name.partition("/")[0])
            _bring(warehouse, old, changelog_folder(table_id, folder), [one.name.partition("/")[2]])
            left.append(replace(one, name=name))
    return left


def history_without(
    warehouse: Warehouse, table_id: str, file: HistoryFile, schema: TableSchema, sought: Sought
) -> HistoryFile | None:
    """Return the history file without the records of the keys; None where it has none. Raise ``DamagedFile``."""
    named = file_of_history(table_id, file)
    if not _holds(warehouse, named, schema, sought):
        return None
    name = f"{uuid.uuid4().hex}.parquet"
    rest = _write(warehouse, named, history_file(table_id, name), schema, sought)
    sums = rest.sums
    return replace(
        file,
        name=name,
        records=rest.rows,
        size_bytes=sums.size_bytes,
        digest=sums.digest,
        block_digests=sums.block_digests,
    )


def batch_without(warehouse: Warehouse, batch: Batch, schema: TableSchema, sought: Sought) -> Batch | None:
    """Return the batch without the records of the keys, in another file; None where it has none.

    Raise ``DamagedFile``.
    """
    named = file_of_batch(batch)
    if not _holds(warehouse, named, schema, sought):
        return None
    name = f"{uuid.uuid4().hex}.parquet"
    rest = _write(warehouse, replace(named, kind=FileKind.STAGING), staging_file(batch.table_id, name), schema, sought)
    return replace(batch, file=name, records=rest.rows, size_bytes=rest.sums.size_bytes, digest=rest.sums.digest)


def _holds(warehouse: Warehouse, file: NamedFile, schema: TableSchema, sought: Sought) -> bool:
    with opened_parquet(warehouse, file) as parquet:
        groups = range(parquet.num_row_groups)
        return any(_matches(parquet, group, schema, sought).any() for group in groups)


def _matches(parquet: pq.ParquetFile, group: int, schema: TableSchema, sought: Sought) -> Mask:
    """Return which rows of a row group are of the keys."""
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
    """Return what the key columns are called in the file: a job that began before an ALTER wrote them as they were
    then.
    """
    by_id = {field_id(field): field.name for field in parquet.schema_arrow}
    return [by_id.get(column.id, column.name) for column in schema.key_columns]


def _write(
    warehouse: Warehouse, file: NamedFile, target: tuple[str, ...], schema: TableSchema, sought: Sought
) -> _Without:
    """Write ``file`` without the keys to ``target``, durably; a row group of what is left of each."""
    path = warehouse.path(*target)
    _make_folder(warehouse, path.rpartition("/")[0])
    how = dict(_HOW[file.kind])
    with opened_parquet(warehouse, file) as parquet:
        if file.kind in (FileKind.HISTORY, FileKind.STAGING):
            words = named_words(schema)
            how["use_dictionary"] = list(words) or False
            how["column_encoding"] = encodings_of_own(parquet.schema_arrow, words)
        if not warehouse.local:
            with warehouse.filesystem.open_output_stream(path) as stream:
                return _copied(parquet, stream, schema, sought, how)
        with open(path, "xb") as output:
            written = _copied(parquet, output, schema, sought, how)
            output.flush()
            os.fsync(output.fileno())
    sync_folder(path.rpartition("/")[0])
    return written


def _copied(
    parquet: pq.ParquetFile, output: Any, schema: TableSchema, sought: Sought, how: Mapping[str, Any]
) -> _Without:
    summed = SummedSink(output)
    rows = removed = live = 0
    ends: list[int] = []
    with (
        io.BufferedWriter(summed, BLOCK_BYTES) as sink,
        pq.ParquetWriter(sink, parquet.schema_arrow, **how) as writer,
    ):
        for group in range(parquet.num_row_groups):
            hits = _matches(parquet, group, schema, sought)
            table = parquet.read_row_group(group)
            kept = table.filter(pa.array(~hits)) if hits.any() else table
            removed += int(hits.sum())
            live += _live(table, hits)
            if kept.num_rows:
                writer.write_table(kept, row_group_size=kept.num_rows)
                rows += kept.num_rows
                ends += _ends(kept)
    return _Without(rows, removed, live, summed.sums.checksums, (ends[0], ends[-1]) if ends else None)


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


def _bring(warehouse: Warehouse, old: tuple[str, ...], new: tuple[str, ...], names: Sequence[str]) -> None:
    """Have the files ``names`` of a folder in another one, too: on a disk they are linked."""

    def bring(name: str) -> None:
        source, target = warehouse.path(*old, name), warehouse.path(*new, name)
        _make_folder(warehouse, target.rpartition("/")[0])
        if not warehouse.local:
            warehouse.filesystem.copy_file(source, target)
            return
        try:
            os.link(source, target)
        except OSError:  # a file system without links
            shutil.copyfile(source, target)
            sync_folder(target)

    for _ in at_once(warehouse, bring, names):
        continue
    if warehouse.local and names:
        sync_folder(warehouse.path(*new))


def _make_folder(warehouse: Warehouse, folder: str) -> None:
    if warehouse.is_store:
        return
    warehouse.filesystem.create_dir(folder, recursive=True)
    if warehouse.local:
        sync_folder(folder.rpartition("/")[0])
