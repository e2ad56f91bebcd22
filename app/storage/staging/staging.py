"""The staging area: accepted batches, one durable Parquet file each, until a merge folds them."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from app.core.plan.records.record_decoder import DecodedRecords
from app.core.table.history import Batch
from app.core.table.keys import token_of
from app.core.table.named_columns import named_words, names_in
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN, TOKEN_COLUMN, Record, RowKind, arrival
from app.core.table.schema import TableSchema
from app.files.arrow import staged_file_schema, staging_schema
from app.files.checksums import BLOCK_BYTES, SummedSink
from app.files.encodings import STAGED, encodings_of_own
from app.files.folders import at_once
from app.files.layout import Warehouse, staging_file, sync_file_system, sync_folder
from app.files.named_files import decoding, file_of_batch, read_whole
from app.files.reading import TokenRange, staged_groups
from app.files.row_groups import row_groups
from app.files.tokens import Tokens, tokens_of

logger = logging.getLogger(__name__)
# This many rows are decoded before their memory is counted.
_PIECE_ROWS = 1024
_ONE_THREADS_BYTES = 2**18
# With so few records a context of zstd for each column would take longer than writing them.
_FEW_RECORDS = 1000
_FEW_STAGED: Final = {**STAGED, "compression": "snappy"}


@dataclass(frozen=True)
class Staged:
    """A staging file: its name, its size in bytes, the records in it, those that were sent and are ignored, and the
    xxh3-128 of its bytes.
    """

    file: str
    size: int
    records: int
    ignored: int
    digest: str


@dataclass(frozen=True, eq=False)
class StagedRows:
    """Records of a staging file, with their kinds and positions, and the token of each. Those of one token are in the
    order of their positions; the others are in any order.
    """

    tokens: Tokens
    rows: pa.Table


def write_batch(
    warehouse: Warehouse, table_id: str, batch_id: str, schema: TableSchema, records: DecodedRecords, sync: bool = True
) -> tuple[str, int]:
    """Write the records of one batch, as ``write_pieces`` does; return the file's name and its size in bytes."""
    staged = write_pieces(warehouse, table_id, batch_id, schema, [records], sync)
    return staged.file, staged.size


def write_pieces(
    warehouse: Warehouse,
    table_id: str,
    batch_id: str,
    schema: TableSchema,
    pieces: Iterable[DecodedRecords],
    sync: bool = True,
) -> Staged:
    """Write the records of one batch, in ``row_groups``, while they are decoded. What decoding them raises leaves no
    file.

    A local file is written aside and renamed; an object is there as a whole or not at all. Once ``sync_staging``
    returns, a power cut cannot lose it; without ``sync`` that needs the file's name.
    """
    name = f"{batch_id}.parquet"
    rest = iter(pieces)
    first = next(rest)  # before there is a file: most faults are found in it
    path = warehouse.path(*staging_file(table_id, name))
    folder = path.rsplit("/", 1)[0]
    if not warehouse.local:
        if not warehouse.is_store:
            warehouse.filesystem.create_dir(folder)
        with _gone_on_failure(warehouse, path), warehouse.filesystem.open_output_stream(path) as stream:
            return _written(name, stream, schema, first, rest)
    _make_folder(folder)
    aside = f"{path}.writing"
    with _gone_on_failure(warehouse, aside), open(aside, "wb") as file:
        staged = _written(name, file, schema, first, rest)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.rename(aside, path)
    return staged


def _written(
    name: str, file: Any, schema: TableSchema, first: DecodedRecords, rest: Iterable[DecodedRecords]
) -> Staged:
    """Write the records to the open ``file``, and return their description. Digests are computed before the bytes
    reach the disk, so that readers notice what the disk damaged.
    """
    summed = SummedSink(file)
    with io.BufferedWriter(summed, BLOCK_BYTES) as sink:  # Parquet comes in many small pieces
        records, ignored = _write_all(sink, schema, first, rest)
    checksums = summed.sums.checksums
    return Staged(name, checksums.size_bytes, records, ignored, checksums.digest)


def _write_all(
    sink: io.BufferedWriter[SummedSink], schema: TableSchema, first: DecodedRecords, rest: Iterable[DecodedRecords]
) -> tuple[int, int]:
    """Write the records to ``sink``. Return how many were written, and how many were ignored."""
    written = ignored = 0

    def counted() -> Iterator[DecodedRecords]:
        nonlocal written, ignored
        for piece in chain([first], rest):
            written, ignored = written + len(piece), ignored + piece.ignored
            yield piece

    written_as, words = staged_file_schema(schema), named_words(schema)
    few = len(first) < _FEW_RECORDS
    how = _FEW_STAGED if few else {**STAGED, "column_encoding": encodings_of_own(written_as, words)}
    # Dictionaries of values would cost more than all the rest. Few sets of columns are named by many records.
    with pq.ParquetWriter(sink, written_as, use_dictionary=list(words) or False, **how) as writer:
        for group in row_groups(schema, counted()):
            writer.write_table(group, row_group_size=max(1, len(group)))
    return written, ignored


@contextmanager
def _gone_on_failure(warehouse: Warehouse, path: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        # A store that does not answer would keep anyone who waits for as long again; a sweep removes what it has.
        if not (warehouse.is_store and isinstance(error, OSError)):
            with suppress(OSError):
                warehouse.filesystem.delete_file(path)
        raise


def sync_staging(warehouse: Warehouse, table_id: str, names: Sequence[str] = ()) -> None:
    """Make the files ``names`` durable, and the folder's entries for all staging files written so far.

    On Linux several files need one sync of their file system: a tenth of the time of one sync each. A missing file or
    folder is skipped; its reader reports it.
    """
    if not warehouse.local:
        return
    try:
        if len(names) > 1 and sync_file_system(warehouse.path(*staging_file(table_id, ""))):
            return
        for name in names:
            with suppress(FileNotFoundError):
                sync_folder(warehouse.path(*staging_file(table_id, name)))
        sync_folder(warehouse.path(*staging_file(table_id, "")))
    except FileNotFoundError:
        return


def sync_staged(warehouse: Warehouse, files: Mapping[str, str]) -> None:
    """Make one file of each table durable, by a sync of their file system where it has that."""
    [first, *_] = files.items()
    with suppress(FileNotFoundError):  # a table is dropped: the others' files are synced one by one
        if warehouse.local and len(files) > 1 and sync_file_system(warehouse.path(*staging_file(first[0], ""))):
            return
    for table_id, name in files.items():
        sync_staging(warehouse, table_id, [name])


def _make_folder(folder: str) -> None:
    if os.path.isdir(folder):
        return
    os.makedirs(folder, exist_ok=True)
    # The new folders' own entries must survive a power cut too.
    sync_folder(os.path.dirname(folder))
    sync_folder(os.path.dirname(os.path.dirname(folder)))


def delete_batch(warehouse: Warehouse, table_id: str, name: str) -> None:
    """Remove a staging file that no batch names; one that is gone already is fine, and one that cannot be removed now
    is swept later.
    """
    path = warehouse.path(*staging_file(table_id, name))
    try:
        warehouse.filesystem.delete_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("the staging file %s of table %s stays until it is swept: %s", name, table_id, error)


def staged_files(warehouse: Warehouse, table_id: str, names: Sequence[str]) -> set[str]:
    """Return which of the staging files are (still) there. Raise ``OSError``."""

    def exists(name: str) -> bool:
        path = warehouse.path(*staging_file(table_id, name))
        return bool(warehouse.filesystem.get_file_info(path).type is fs.FileType.File)

    return {name for name, stored in zip(names, at_once(warehouse, exists, names), strict=True) if stored}


def read_bounded_batch(warehouse: Warehouse, batch: Batch, schema: TableSchema, most_bytes: int) -> StagedRows | None:
    """Return as ``read_batch``, or None for a batch that takes more memory than ``most_bytes``: what repeats takes a
    thousand times less in its file, so it is decoded a piece at a time. Raise ``DamagedFile``.
    """
    file = file_of_batch(batch)
    content = read_whole(warehouse, file)
    pieces: list[pa.RecordBatch] = []
    with decoding(warehouse, file):
        opened = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        for piece in opened.iter_batches(_PIECE_ROWS, use_threads=False):
            pieces.append(piece)
            most_bytes -= piece.nbytes
            if most_bytes < 0:
                return None
        return staged_rows(schema, pa.Table.from_batches(pieces, opened.schema_arrow).combine_chunks())


def read_batch(warehouse: Warehouse, batch: Batch, schema: TableSchema) -> StagedRows:
    """Return the records of a batch. Raise ``DamagedFile``."""
    file = file_of_batch(batch)
    content = read_whole(warehouse, file)
    # Not pq.read_table: its first call loads half a second of modules, while somebody waits for a row.
    with decoding(warehouse, file):
        # To hand little to other threads takes longer than to decode it.
        large = content.size > _ONE_THREADS_BYTES
        read = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read(use_threads=large)
        return staged_rows(schema, read)


def staged_rows(schema: TableSchema, read: pa.Table) -> StagedRows:
    """Return the rows of a staging file that was written under ``schema``."""
    if TOKEN_COLUMN not in read.column_names:  # of a file of an older release
        rows = read.cast(staging_schema(schema))
        return StagedRows(tokens_of(schema, rows), rows)
    arrow_schema = staged_file_schema(schema)
    rows = read.select(arrow_schema.names).cast(arrow_schema)
    return StagedRows(rows.column(TOKEN_COLUMN).to_numpy(), rows.drop_columns([TOKEN_COLUMN]))


def read_key_records(
    warehouse: Warehouse, batch: Batch, schema: TableSchema, key: tuple[object, ...]
) -> Iterator[Record]:
    """Yield the records of one key in a batch, in the order they were posted. Raise ``DamagedFile``."""
    for rows in key_rows(warehouse, batch, schema, key):
        for values in rows.to_pylist():
            yield staged_record(schema, batch.number, values)


def key_rows(
    warehouse: Warehouse, batch: Batch, schema: TableSchema, key: tuple[object, ...], *, newest_first: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of one key in a batch, a row group at a time. Row groups are in the order in which the key's
    records were posted, or in reverse (``newest_first``); the rows of each are always in that order.

    Other rows of these row groups have only their keys decoded, and become no Python objects. Raise ``DamagedFile``.
    """
    file = file_of_batch(batch)
    content = read_whole(warehouse, file)
    with decoding(warehouse, file):
        parquet = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        arrow_schema = staging_schema(schema)
        groups = staged_groups(parquet, TokenRange.from_token(token_of(schema, key)))
        for group in reversed(groups) if newest_first else groups:
            hits = rows_of_key(parquet.read_row_group(group, list(schema.primary_key), use_threads=False), schema, key)
            if hits.true_count:
                yield (
                    parquet.read_row_group(group, use_threads=False)
                    .filter(hits)
                    .select(arrow_schema.names)
                    .cast(arrow_schema)
                )


def rows_of_key(rows: pa.Table, schema: TableSchema, key: tuple[object, ...]) -> pa.BooleanArray:
    """Return which of the ``rows`` have the key, by the rules of ``same_key``."""
    arrow_schema = staging_schema(schema)
    matching = np.ones(rows.num_rows, bool)
    for name, value in zip(schema.primary_key, key, strict=True):
        column = rows.column(name).cast(arrow_schema.field(name).type)
        if value is None:
            same = pc.is_null(column)
        elif value != value:
            same = pc.is_nan(column)
        else:
            same = pc.equal(column, pa.scalar(value, column.type))
        matching &= np.asarray(pc.fill_null(same, False))
    return pa.array(matching)


def staged_record(schema: TableSchema, batch_number: int, row: Mapping[str, Any]) -> Record:
    """Return the record in a row of a staging file that was written under ``schema``."""
    values = {column.name: row[column.name] for column in schema.columns}
    placed = arrival(batch_number, row[POSITION_COLUMN])
    return Record(RowKind(row[KIND_COLUMN]), values, placed, names_in(schema, row))
