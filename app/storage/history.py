"""History files: the records of merged batches, sorted by token, so that those of one key are found without reading
the others (docs/decisions/0034).
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from app.core.table.damage import NamedFile
from app.core.table.history import Batch, HistoryFile
from app.core.table.keys import Key, same_key, token_of
from app.core.table.named_columns import named_words
from app.core.table.records import TOKEN_COLUMN, Record
from app.core.table.schema import TableSchema
from app.storage.arrow import staging_schema
from app.storage.checksums import BLOCK_BYTES, Checksums, SummedSink
from app.storage.folders import at_once
from app.storage.layout import Warehouse, history_file, sync_folder
from app.storage.named_files import check_file, file_of_batch, file_of_history, opened_parquet
from app.storage.staging import read_batch, staged_record
from app.storage.tokens import tokens_of

BATCH_COLUMN = "_kf_batch"  # the number of the batch
BATCHES_AT_ONCE = 64


@dataclass(frozen=True)
class Cut:
    """How records are cut into files: ``most_bytes`` of them in memory become one, with row groups of
    ``group_records``, one of which is decoded to find a key; a staging file of ``whole_bytes`` is read as a whole.
    """

    most_bytes: int = 2**26
    group_records: int = 4096
    whole_bytes: int = 2**24


CUT = Cut()


def write_history(
    warehouse: Warehouse, table_id: str, batches: Sequence[Batch], schema: TableSchema, cut: Cut = CUT
) -> list[HistoryFile]:
    """The records of ``batches``, which are in merge order and were written under ``schema``: in as many files as keep
    small what is in memory. They are durable, and nobody names them yet. Raises ``DamagedFile`` and ``OSError``.
    """
    written: list[HistoryFile] = []
    waiting: list[tuple[Batch, pa.Table]] = []
    size = 0

    def write() -> None:
        snapshots = [batch.snapshot_id or 0 for batch, _ in waiting]
        written.append(
            _write(warehouse, table_id, schema, _placed(schema, waiting), batches[0].schema_id, snapshots, cut)
        )
        waiting.clear()

    for batch, records in _records_of(warehouse, batches, schema, cut.whole_bytes):
        waiting.append((batch, records))
        size += records.nbytes
        if size >= cut.most_bytes:
            write()
            size = 0
    if waiting:
        write()
    return written


def join_history(warehouse: Warehouse, table_id: str, parts: Sequence[HistoryFile], schema: TableSchema) -> HistoryFile:
    """The records of ``parts``, which follow each other, in one file. Raises ``DamagedFile`` and ``OSError``."""
    rows = pa.concat_tables([_all(warehouse, file_of_history(table_id, part), schema) for part in parts])
    snapshots = [number for part in parts for number in (part.first_snapshot, part.last_snapshot)]
    return _write(warehouse, table_id, schema, rows, parts[0].schema_id, snapshots, CUT)


def all_there(warehouse: Warehouse, table_id: str, files: Sequence[HistoryFile]) -> bool:
    """Whether no file is gone. Raises ``OSError``."""

    def look(file: HistoryFile) -> bool:
        found = warehouse.filesystem.get_file_info(warehouse.path(*history_file(table_id, file.name)))
        return bool(found.type is fs.FileType.File)

    return all(at_once(warehouse, look, files))


def key_records(
    warehouse: Warehouse, table_id: str, files: Sequence[tuple[HistoryFile, TableSchema]], key: Key
) -> list[list[Record]]:
    """The records of ``key`` in each of ``files``, which were written under the schemas beside them. Raises
    ``DamagedFile``.
    """

    def look(of: tuple[HistoryFile, TableSchema]) -> list[Record]:
        file, schema = of
        return list(_found(warehouse, file_of_history(table_id, file), schema, key))

    return list(at_once(warehouse, look, files))


def _found(warehouse: Warehouse, file: NamedFile, schema: TableSchema, key: Key) -> Iterator[Record]:
    token = token_of(schema, key)
    with opened_parquet(warehouse, file) as parquet:
        for group in _groups(parquet, token):
            # To hand so little to other threads takes longer than to decode it.
            tokens = parquet.read_row_group(group, [TOKEN_COLUMN], use_threads=False).column(0).to_numpy()
            first, last = (int(np.searchsorted(tokens, token, side)) for side in ("left", "right"))
            if first == last:
                continue
            rows = parquet.read_row_group(group, use_threads=False).slice(first, last - first)
            for row in rows.cast(_schema(schema)).to_pylist():
                if same_key(tuple(row[name] for name in schema.primary_key), key):
                    yield staged_record(schema, row[BATCH_COLUMN], row)


def _groups(parquet: pq.ParquetFile, token: int) -> Iterator[int]:
    """The row groups that may have the token, which is the first column."""
    for group in range(parquet.num_row_groups):
        statistics = parquet.metadata.row_group(group).column(0).statistics
        if statistics.min <= token <= statistics.max:
            yield group


def _schema(schema: TableSchema) -> pa.Schema:
    own = [pa.field(TOKEN_COLUMN, pa.int64()), pa.field(BATCH_COLUMN, pa.int64())]
    return pa.schema([*own, *staging_schema(schema)])


def _all(warehouse: Warehouse, file: NamedFile, schema: TableSchema) -> pa.Table:
    with opened_parquet(warehouse, file) as parquet:
        return parquet.read().cast(_schema(schema))


def _records_of(
    warehouse: Warehouse, batches: Sequence[Batch], schema: TableSchema, whole_bytes: int
) -> Iterator[tuple[Batch, pa.Table]]:
    """The records of each batch in order, those of a large one in pieces."""
    for start in range(0, len(batches), BATCHES_AT_ONCE):
        some = batches[start : start + BATCHES_AT_ONCE]
        small = [batch for batch in some if batch.size_bytes <= whole_bytes // BATCHES_AT_ONCE]
        read = dict(zip(small, at_once(warehouse, lambda one: read_batch(warehouse, one, schema), small), strict=True))
        for batch in some:
            for table in [read.pop(batch)] if batch in read else _pieces(warehouse, batch, schema, whole_bytes):
                yield batch, table


def _pieces(warehouse: Warehouse, batch: Batch, schema: TableSchema, whole_bytes: int) -> Iterator[pa.Table]:
    if batch.size_bytes <= whole_bytes:
        yield read_batch(warehouse, batch, schema)
        return
    file = file_of_batch(batch)
    check_file(warehouse, file)
    with opened_parquet(warehouse, file) as parquet:
        for group in range(parquet.num_row_groups):
            yield parquet.read_row_group(group).cast(staging_schema(schema))


def _placed(schema: TableSchema, found: Sequence[tuple[Batch, pa.Table]]) -> pa.Table:
    """The records of batches, with their tokens and the numbers of the batches."""
    records = pa.concat_tables([table for _, table in found]).combine_chunks()
    numbers = np.repeat([batch.number for batch, _ in found], [table.num_rows for _, table in found])
    own = [pa.array(tokens_of(schema, records)), pa.array(numbers, pa.int64())]
    return pa.Table.from_arrays([*own, *records.columns], schema=_schema(schema))


def _write(
    warehouse: Warehouse,
    table_id: str,
    schema: TableSchema,
    rows: pa.Table,
    schema_id: int,
    snapshots: Sequence[int],
    cut: Cut,
) -> HistoryFile:
    """``rows``, sorted by token; those of one token stay in their order."""
    tokens = rows.column(TOKEN_COLUMN).to_numpy()
    ordered = rows.take(np.argsort(tokens, kind="stable"))
    name = f"{uuid.uuid4().hex}.parquet"
    sums = _stored(warehouse, warehouse.path(*history_file(table_id, name)), schema, ordered, cut)
    return HistoryFile(
        name,
        schema_id,
        min(snapshots),
        max(snapshots),
        rows.num_rows,
        sums.size_bytes,
        sums.digest,
        sums.block_digests,
    )


def _stored(warehouse: Warehouse, path: str, schema: TableSchema, rows: pa.Table, cut: Cut) -> Checksums:
    """Writes a file that is durable once it is there; what its bytes come to."""
    folder = path.rpartition("/")[0]
    if not warehouse.is_store:
        warehouse.filesystem.create_dir(folder)
    if not warehouse.local:
        with warehouse.filesystem.open_output_stream(path) as stream:
            return _encoded(stream, schema, rows, cut)
    with open(path, "xb") as file:
        sums = _encoded(file, schema, rows, cut)
        file.flush()
        os.fsync(file.fileno())
    for place in (folder, folder.rpartition("/")[0]):
        sync_folder(place)
    return sums


def _encoded(file: Any, schema: TableSchema, rows: pa.Table, cut: Cut) -> Checksums:
    summed = SummedSink(file)
    with io.BufferedWriter(summed, BLOCK_BYTES) as sink:
        pq.write_table(
            rows,
            sink,
            row_group_size=cut.group_records,
            compression="zstd",
            # Tokens are looked for; of all else statistics would be read as often, for nothing.
            write_statistics=[TOKEN_COLUMN],
            use_dictionary=list(named_words(schema)) or False,
            write_page_checksum=True,
        )
    return summed.sums.checksums
