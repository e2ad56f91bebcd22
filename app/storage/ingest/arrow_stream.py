"""Arrow's streaming format (IPC), nothing in it trusted."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import ipc

from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import RecordDecoder
from app.storage.ingest.arrow_table import check_columns, table_pieces
from app.storage.ingest.pieces import Piece
from app.storage.ingest.refusals import unreadable
from app.storage.staging.spool import Content, read_until

_FIX = "send a schema and record batches in Arrow's streaming format, uncompressed (Content-Encoding: zstd serves)"
FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, struct.error)


def arrow_pieces(decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """Return the records of an Arrow stream. Raise ``Invalid`` if it is no such stream, and ``TooLarge``."""
    buffer = pa.py_buffer(content)
    source = pa.BufferReader(buffer)
    try:
        bounds.check_records(_declared_rows(buffer))
        reader = ipc.open_stream(source)
        check_columns(decoder, reader.schema)
    except FAULTS as error:
        raise unreadable("an Arrow stream", error, _FIX) from error
    return table_pieces(decoder, reader.schema, _batches(reader, source, content), bounds)


def _batches(
    reader: ipc.RecordBatchStreamReader, source: pa.BufferReader, content: Content
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in reader:
            batch.validate(full=True)
            yield batch
            read_until(content, source.tell())
    except FAULTS as error:
        raise unreadable("an Arrow stream", error, _FIX) from error
    if source.tell() != len(content):
        raise unreadable("one Arrow stream", f"{len(content) - source.tell()} bytes follow its end", _FIX)


def _declared_rows(body: pa.Buffer) -> int:
    """Return how many rows the record batches say they have, before any is decoded. Raise ``ValueError`` for compressed
    ones: they would say themselves how much memory to take.
    """
    rows = 0
    for message in ipc.MessageReader.open_stream(pa.BufferReader(body)):
        if message.type not in ("record batch", "dictionary"):
            continue
        metadata = message.metadata.to_pybytes()
        header = _reference(metadata, _field(metadata, _root(metadata), 2))
        if message.type == "dictionary":
            header = _reference(metadata, _field(metadata, header, 1))
        if _field(metadata, header, 3):
            raise ValueError("its record batches are compressed")
        length = _field(metadata, header, 0)
        if message.type == "record batch" and length:
            rows += int(struct.unpack_from("<q", metadata, length)[0])
    return rows


# Of a flatbuffer (Arrow's Message.fbs), which pyarrow has verified: a table begins with the distance to its vtable,
# and that holds, after its own two sizes, where each field is from the table's place on; 0 for none.
def _root(metadata: bytes) -> int:
    return int(struct.unpack_from("<I", metadata, 0)[0])


def _field(metadata: bytes, table: int, number: int) -> int:
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, vtable)
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", metadata, vtable + place)[0] if place < size else 0
    return table + int(offset) if offset else 0


def _reference(metadata: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", metadata, place)[0])
