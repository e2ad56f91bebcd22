"""History files: the records of merged batches, sorted by token, so that those of one key are found without reading
the others (docs/decisions/0034).
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from app.core.table.history import Batch, HistoryFile
from app.core.table.keys import Key, token_of
from app.core.table.named_columns import named_words
from app.core.table.records import TOKEN_COLUMN, Record, batch_number
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.files.arrow import staging_schema
from app.files.checksums import BLOCK_BYTES, Checksums, SummedSink
from app.files.encodings import encodings_of_own
from app.files.folders import at_once
from app.files.layout import Warehouse, history_file, sync_folder
from app.files.named_files import (
    check_file,
    decoding,
    file_of_batch,
    file_of_history,
    opened_parquet,
    read_whole,
)
from app.storage.staging.staging import StagedRows, key_rows, rows_of_key, staged_record, staged_rows

BATCH_COLUMN = "_kf_batch"  # the number of the batch
BATCHES_AT_ONCE = 64
ROWS_AT_ONCE = 256
Wanted = Callable[[Collection[int]], Collection[int]]
"""Of numbers of batches those whose records are wanted."""


@dataclass(frozen=True)
class Cut:
    """How records are cut into files. A file has at most ``most_bytes`` of them in memory. A row group has at most
    ``group_records`` and ``group_bytes``; one of them is decoded to find a key. A staging file of at most
    ``whole_bytes`` on the disk is read as a whole.
    """

    most_bytes: int = 2**26
    group_records: int = 4096
    group_bytes: int = 2**22
    whole_bytes: int = 2**24


CUT = Cut()


def write_history(
    warehouse: Warehouse, table_id: str, batches: Sequence[Batch], schema: TableSchema, cut: Cut = CUT
) -> list[HistoryFile]:
    """Write the records of ``batches`` into as many history files as the memory bound requires, and return the files.

    ``batches`` are in merge order and of ``schema``. The files are durable; the catalog does not name them yet. Raise
    ``DamagedFile`` and ``OSError``.
    """
    written: list[HistoryFile] = []
    waiting: list[tuple[Batch, StagedRows]] = []
    size = 0

    def write() -> None:
        snapshots = [batch.snapshot_id or 0 for batch, _ in waiting]
        written.append(
            _write(warehouse, table_id, schema, _placed(schema, waiting), batches[0].schema_id, snapshots, cut)
        )
        waiting.clear()

    for batch, records in _records_of(warehouse, batches, schema, cut.whole_bytes):
        waiting.append((batch, records))
        size += records.rows.nbytes
        if size >= cut.most_bytes:
            write()
            size = 0
    if waiting:
        write()
    return written


def join_history(
    warehouse: Warehouse, table_id: str, parts: Sequence[HistoryFile], schema: TableSchema, cut: Cut = CUT
) -> HistoryFile:
    """Write the records of neighbouring ``parts`` into one file, and return it. Raise
    ``DamagedFile`` and ``OSError``.
    """
    rows = pa.concat_tables([_all(warehouse, file_of_history(table_id, part), schema) for part in parts])
    snapshots = [number for part in parts for number in (part.first_snapshot, part.last_snapshot)]
    return _write(warehouse, table_id, schema, rows, parts[0].schema_id, snapshots, cut)


def unpacked_bytes(warehouse: Warehouse, table_id: str, file: HistoryFile) -> int:
    """Return the approximate size of a file's records in memory: their uncompressed size in the file, plus eight bytes
    for each value, since nulls take none there. Raise ``DamagedFile``.
    """
    with opened_parquet(warehouse, file_of_history(table_id, file)) as parquet:
        footer = parquet.metadata
        groups = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
        return int(groups + 8 * footer.num_rows * footer.num_columns)


def all_exist(warehouse: Warehouse, table_id: str, files: Sequence[HistoryFile]) -> bool:
    """Return whether all files exist. Raise ``OSError``."""

    def look(file: HistoryFile) -> bool:
        status = warehouse.filesystem.get_file_info(warehouse.path(*history_file(table_id, file.name)))
        return bool(status.type is fs.FileType.File)

    return all(at_once(warehouse, look, files))


@dataclass(frozen=True)
class Room:
    """The bound on what is read of one key: a number of records, and of bytes in memory, which one
    record may exceed.
    """

    records: int
    size_bytes: int

    def holds(self, newest: NewestRecords) -> bool:
        """Return whether there was room for these."""
        return len(newest.records) <= self.records and self.size_bytes >= 0

    def less(self, newest: NewestRecords) -> Room:
        """Return the room that is left with these records."""
        return Room(self.records - len(newest.records), self.size_bytes - newest.size_bytes)


@dataclass(frozen=True)
class NewestRecords:
    """Records of a key, newest first, and their size. ``cut`` is the number of the batch with the newest record for
    which there was no room; None if these are all.
    """

    records: Sequence[Record]
    size_bytes: int = 0
    cut: int | None = None


def key_records(
    warehouse: Warehouse,
    table_id: str,
    files: Sequence[tuple[HistoryFile, TableSchema]],
    key: Key,
    wanted: Wanted,
    room: Room,
) -> list[NewestRecords]:
    """Return the records of ``key`` in each of ``files``, limited to ``wanted`` batches and to the room.

    Each file comes with the schema that it was written under. Raise ``DamagedFile``.
    """

    def look(written: tuple[HistoryFile, TableSchema]) -> NewestRecords:
        file, schema = written
        return _newest(_records_of_key(warehouse, file_of_history(table_id, file), schema, key, wanted), room)

    return list(at_once(warehouse, look, files))


def staged_key_records(warehouse: Warehouse, batch: Batch, schema: TableSchema, key: Key, room: Room) -> NewestRecords:
    """Return the same of a staging file."""
    sized = (
        (staged_record(schema, batch.number, row), size)
        for rows in key_rows(warehouse, batch, schema, key, newest_first=True)
        for row, size in _backwards(rows)
    )
    return _newest(sized, room)


def _newest(sized: Iterator[tuple[Record, int]], room: Room) -> NewestRecords:
    records: list[Record] = []
    taken = 0
    for record, size in sized:
        if len(records) >= room.records or taken >= room.size_bytes:
            return NewestRecords(records, taken, batch_number(record.arrival))
        records.append(record)
        taken += size
    return NewestRecords(records, taken)


def _backwards(rows: pa.Table) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the rows from the last one on, each with its size; few are Python objects at a time."""
    for end in range(rows.num_rows, 0, -ROWS_AT_ONCE):
        start = max(0, end - ROWS_AT_ONCE)
        piece = rows.slice(start, end - start)
        size = piece.nbytes // piece.num_rows
        for row in reversed(piece.to_pylist()):
            yield row, size


def _records_of_key(
    warehouse: Warehouse, file: NamedFile, schema: TableSchema, key: Key, wanted: Wanted
) -> Iterator[tuple[Record, int]]:
    """Yield the key's records from the newest on, each with its size."""
    token = token_of(schema, key)
    with opened_parquet(warehouse, file) as parquet:
        for group in reversed(list(_groups(parquet, token))):
            # So little is decoded faster without other threads.
            tokens = parquet.read_row_group(group, [TOKEN_COLUMN], use_threads=False).column(0).to_numpy()
            first, last = (int(np.searchsorted(tokens, token, side)) for side in ("left", "right"))
            if first == last:
                continue
            rows = parquet.read_row_group(group, use_threads=False).slice(first, last - first).cast(_schema(schema))
            rows = rows.filter(rows_of_key(rows, schema, key))
            numbers = rows.column(BATCH_COLUMN).to_numpy()
            rows = rows.filter(pa.array(np.isin(numbers, list(wanted(np.unique(numbers).tolist())))))
            for row, size in _backwards(rows):
                yield staged_record(schema, row[BATCH_COLUMN], row), size


def _groups(parquet: pq.ParquetFile, token: int) -> Iterator[int]:
    """Yield the row groups that may have the token, which is the first column."""
    for group in range(parquet.num_row_groups):
        statistics = parquet.metadata.row_group(group).column(0).statistics
        if statistics.min <= token <= statistics.max:
            yield group


def _schema(schema: TableSchema) -> pa.Schema:
    added = [pa.field(TOKEN_COLUMN, pa.int64()), pa.field(BATCH_COLUMN, pa.int64())]
    return pa.schema([*added, *staging_schema(schema)])


def _all(warehouse: Warehouse, file: NamedFile, schema: TableSchema) -> pa.Table:
    with opened_parquet(warehouse, file) as parquet:
        return parquet.read().cast(_schema(schema))


def _records_of(
    warehouse: Warehouse, batches: Sequence[Batch], schema: TableSchema, whole_bytes: int
) -> Iterator[tuple[Batch, StagedRows]]:
    """Yield the records of each batch in order, those of a large one in pieces."""
    for start in range(0, len(batches), BATCHES_AT_ONCE):
        some = batches[start : start + BATCHES_AT_ONCE]
        small = [batch for batch in some if batch.size_bytes <= whole_bytes // BATCHES_AT_ONCE]
        contents = at_once(warehouse, lambda batch: read_whole(warehouse, file_of_batch(batch)), small)
        read = dict(zip((batch.number for batch in small), contents, strict=True))
        for batch in some:
            for piece in _pieces(warehouse, batch, schema, whole_bytes, read.pop(batch.number, None)):
                yield batch, piece


def _pieces(
    warehouse: Warehouse, batch: Batch, schema: TableSchema, whole_bytes: int, content: pa.Buffer | None
) -> Iterator[StagedRows]:
    """Yield the records of a batch, a row group at a time, since compressed records may be large. ``content`` is the
    file, if it was read.
    """
    file = file_of_batch(batch)
    if content is None and batch.size_bytes <= whole_bytes:
        content = read_whole(warehouse, file)
    if content is not None:
        with decoding(warehouse, file):
            yield from _row_groups(pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True), schema)
        return
    check_file(warehouse, file)
    with opened_parquet(warehouse, file) as parquet:
        yield from _row_groups(parquet, schema)


def _row_groups(parquet: pq.ParquetFile, schema: TableSchema) -> Iterator[StagedRows]:
    for group in range(parquet.num_row_groups):
        yield staged_rows(schema, parquet.read_row_group(group, use_threads=False))


def _placed(schema: TableSchema, pieces: Sequence[tuple[Batch, StagedRows]]) -> pa.Table:
    """Return the records of batches, with their tokens and the numbers of the batches."""
    records = pa.concat_tables([piece.rows for _, piece in pieces]).combine_chunks()
    numbers = np.repeat([batch.number for batch, _ in pieces], [len(piece.tokens) for _, piece in pieces])
    added = [pa.array(np.concatenate([piece.tokens for _, piece in pieces])), pa.array(numbers, pa.int64())]
    return pa.Table.from_arrays([*added, *records.columns], schema=_schema(schema))


def _write(
    warehouse: Warehouse,
    table_id: str,
    schema: TableSchema,
    rows: pa.Table,
    schema_id: int,
    snapshots: Sequence[int],
    cut: Cut,
) -> HistoryFile:
    """Write ``rows``, sorted by token; those of one token keep their order."""
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
    """Write a file atomically and durably; return its checksums."""
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
        words = named_words(schema)
        how = {
            "compression": "zstd",
            # Only tokens are searched; other statistics would be read each time, and never used.
            "write_statistics": [TOKEN_COLUMN],
            "use_dictionary": list(words) or False,
            "column_encoding": encodings_of_own(rows.schema, words),
        }
        with pq.ParquetWriter(sink, rows.schema, write_page_checksum=True, **how) as writer:
            for start in range(0, rows.num_rows, cut.group_records):
                for group in _halved(rows.slice(start, cut.group_records), cut.group_bytes):
                    writer.write_table(group, row_group_size=group.num_rows)
    return summed.sums.checksums


def _halved(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows in pieces of at most ``most_bytes``, or of one row."""
    if rows.nbytes <= most_bytes or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _halved(rows.slice(0, half), most_bytes)
    yield from _halved(rows.slice(half), most_bytes)
