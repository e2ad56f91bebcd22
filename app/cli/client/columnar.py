"""Parquet and Arrow files: cut into batches of whole rows, and written from pages. Also decompression by Arrow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.cli.client.endings import usage
from app.cli.client.pieces import Piece
from keyfold_client.arrow import as_stream, cut_batches, gathered, rows_of_piece

_READ_BYTES: Final = 2**20
# First bytes of Arrow's file format; its streaming format begins otherwise.
_MAGIC: Final = b"ARROW1"


def unpacked(file: IO[bytes], coding: str) -> IO[bytes]:
    """Return the unpacked content of a gzip or zstd file; reading raises ``OSError`` if it is truncated or damaged."""
    return io.BufferedReader(pa.CompressedInputStream(file, coding))


def parquet_pieces(file: IO[bytes], salt: str) -> Iterator[Piece]:
    """Yield the rows of a Parquet file, as Parquet. See ``_pieces``."""
    mark = _mark(file, salt)
    try:
        opened = pq.ParquetFile(file)
        group_bytes = [opened.metadata.row_group(at).total_byte_size for at in range(opened.num_row_groups)]
        rows = rows_of_piece(sum(group_bytes), opened.metadata.num_rows)
        yield from _pieces(_regrouped(_every_row(opened, rows), rows), _as_parquet, mark)
    except (pa.ArrowException, OSError) as error:
        raise usage(f"it is no Parquet file that can be read: {error}") from error


def _every_row(opened: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of all rows. Raise the error of usage if PyArrow leaves rows out, as it does without an error where
    a nested column has a page without a value.
    """
    left = opened.metadata.num_rows
    for batch in opened.iter_batches(batch_size=rows):
        left -= batch.num_rows
        yield batch
    if left:
        raise usage(f"{left} of its {opened.metadata.num_rows} rows cannot be read: write the file with larger pages")


def _regrouped(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield batches of exactly ``rows`` rows, however they are read."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        while sum(batch.num_rows for batch in waiting) >= rows:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, rows)
            waiting = table.slice(rows).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting)


def arrow_pieces(file: IO[bytes], salt: str) -> Iterator[Piece]:
    """Yield the rows of Arrow's file or streaming format, as streams. See ``_pieces``."""
    mark = _mark(file, salt)
    try:
        yield from _pieces(gathered(cut_batches(_batches(file))), as_stream, mark)
    except (pa.ArrowException, OSError) as error:
        raise usage(f"it is no Arrow file that can be read: {error}") from error


def _batches(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    magic = file.read(len(_MAGIC))
    file.seek(0)
    if magic != _MAGIC:
        yield from pa.ipc.open_stream(file)
        return
    opened = pa.ipc.open_file(file)
    for at in range(opened.num_record_batches):
        yield opened.get_batch(at)


def _pieces(batches: Iterator[pa.Table], written: Callable[[pa.Table], bytes], mark: str) -> Iterator[Piece]:
    """Yield a piece for each batch. Its mark is the digest of the whole file: the bytes of a piece depend on the
    PyArrow version, and must not turn rows that were sent into new batches.
    """
    before = 0
    for batch in batches:
        if batch.num_rows:
            end = before + batch.num_rows
            yield Piece(written(batch), before, batch.num_rows, end, f"{mark}-{end}")
            before = end


def _as_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _mark(file: IO[bytes], salt: str) -> str:
    digest = blake2b(salt.encode(), digest_size=16)
    while part := file.read(_READ_BYTES):
        digest.update(part)
    file.seek(0)
    return digest.hexdigest()


def write_parquet(pages: Iterable[Path], into: Path) -> None:
    """Write the rows of Arrow streams as one Parquet file, a row group of each."""
    with ExitStack() as opened:
        writer: pq.ParquetWriter | None = None
        for page in pages:
            with pa.OSFile(str(page)) as file, pa.ipc.open_stream(file) as rows:
                if writer is None:
                    writer = opened.enter_context(pq.ParquetWriter(into, rows.schema, compression="zstd"))
                writer.write_table(rows.read_all())
