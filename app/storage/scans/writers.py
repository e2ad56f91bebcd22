"""Rows that are shown as the bodies of answers: one entry of ``WRITERS`` says how, by media type."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.plan.records.answers import to_json
from app.core.table.options.entries import Integers
from app.core.table.schema import Column
from app.core.types.kinds import Family
from app.files.arrow import answered_schema
from app.storage.images.json_texts import TEXT, join, json_pieces, json_texts

NDJSON, CSV, ARROW = "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
# Size of a row group in memory.
_GROUP_BYTES = 16 * 2**20
# Text of about this size is made at a time.
PIECE_BYTES = 4 * 2**20
_CELL = 12  # bytes of the text of a value beyond what it takes in memory
Write = Callable[[Sequence[Column], Iterable[pa.RecordBatch], Integers], Iterator[bytes]]


@dataclass(frozen=True)
class Writer:
    """``write`` makes a body of batches of the columns, a part at a time; ``schema`` is its OpenAPI. Only JSON spells
    whole numbers in two ways.
    """

    write: Write
    schema: Mapping[str, Any]


def text_bytes(batch: pa.RecordBatch) -> int:
    """Return about how many bytes the rows take as JSON: names stand in every row, and in every ROW inside."""
    names = sum(len(to_json(name)) + 2 for name in batch.schema.names)
    return len(batch) * names + sum(map(_text_bytes, batch.columns))


def _text_bytes(values: pa.Array) -> int:
    kind = values.type
    if pa.types.is_struct(kind):
        names = sum(len(to_json(kind.field(number).name)) + 2 for number in range(kind.num_fields))
        return len(values) * names + sum(map(_text_bytes, values.flatten()))
    if pa.types.is_map(kind):
        return _text_bytes(values.keys) + _text_bytes(values.items)
    if pa.types.is_list(kind):
        return _CELL * len(values) + _text_bytes(values.flatten())
    return _CELL * len(values) + int(values.nbytes)


def pieces(batches: Iterable[pa.RecordBatch], most_bytes: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, as many at a time as take about ``most_bytes`` as text. Yield an empty batch for a batch
    without rows, so that a waiting client sees progress.
    """
    for batch in batches:
        count = max(1, len(batch) * most_bytes // max(1, text_bytes(batch)))
        for start in range(0, max(1, len(batch)), count):
            yield batch.slice(start, count)


def _ndjson(columns: Sequence[Column], batches: Iterable[pa.RecordBatch], integers: Integers) -> Iterator[bytes]:
    for batch in pieces(batches):
        yield _content(_objects(columns, batch, integers))


def _objects(columns: Sequence[Column], batch: pa.RecordBatch, integers: Integers) -> pa.Array:
    """Return a line for each row: its JSON object, as a lookup answers it."""
    parts: list[pa.Array | str] = []
    literal = "{"
    for column, values in zip(columns, batch.columns, strict=True):
        texts = json_pieces(values, column.type, integers=integers)
        parts += [f"{literal}{to_json(column.name).decode()}:{texts.before}", texts.inner]
        literal = f"{texts.after},"
    return join(*parts, literal[:-1] + "}\n")


def _content(lines: pa.Array) -> bytes:
    """Return all texts, one behind the other."""
    _, places, content = lines.buffers()
    edges = memoryview(places).cast("q")
    return bytes(memoryview(content)[edges[lines.offset] : edges[lines.offset + len(lines)]])


def _csv(columns: Sequence[Column], batches: Iterable[pa.RecordBatch], _: Integers) -> Iterator[bytes]:
    header = ",".join(_quoted_name(column.name) for column in columns)
    yield f"{header}\r\n".encode()
    for batch in pieces(batches):
        cells = [_cells(values, column) for column, values in zip(columns, batch.columns, strict=True)]
        parts: list[pa.Array | str] = []
        for cell in cells:
            parts += [cell, ","]
        yield _content(join(*parts[:-1], "\r\n"))


def _quoted_name(name: str) -> str:
    return (
        '"' + name.replace('"', '""') + '"'
        if any(character in name for character in '",\r\n') or not name.strip()
        else name
    )


def _cells(values: pa.Array, column: Column) -> pa.Array:
    """Return the fields of RFC 4180: null is an empty one, text is quoted, what is nested is its JSON.

    The JSON of any other value is a field as it is: what quotes it there quotes it here.
    """
    family = column.type.family
    if family is Family.TEXT:
        texts = pc.cast(values, TEXT)
    elif column.type.nested:
        texts = json_texts(values, column.type, "")
        texts = pc.if_else(pc.is_valid(values), texts, pa.scalar(None, TEXT))
    else:
        return json_texts(values, column.type, "")
    return pc.fill_null(join('"', pc.replace_substring(texts, '"', '""'), '"'), pa.scalar("", TEXT))


def _arrow(columns: Sequence[Column], batches: Iterable[pa.RecordBatch], _: Integers) -> Iterator[bytes]:
    sink, schema = io.BytesIO(), answered_schema(columns)
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in pieces(batches):
            writer.write_batch(batch.cast(schema))
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


class _Sink(io.RawIOBase):
    """A file that is taken away while it is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def write(self, part: Any) -> int:
        """Append a part."""
        self._parts.append(bytes(part))
        self._size += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        """Return how much was written."""
        return self._size

    def taken(self) -> bytes:
        """Return the bytes that were written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _parquet(columns: Sequence[Column], batches: Iterable[pa.RecordBatch], _: Integers) -> Iterator[bytes]:
    sink, waiting, size = _Sink(), list[pa.RecordBatch](), 0
    schema = answered_schema(columns)
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in pieces(batches):
            waiting.append(batch.cast(schema))
            size += batch.nbytes
            if size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting, size = [], 0
            yield sink.taken()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    yield sink.taken()


_BINARY = {"type": "string", "format": "binary"}
_TEXT = {"type": "string"}
WRITERS: Mapping[str, Writer] = {
    NDJSON: Writer(_ndjson, _TEXT),
    CSV: Writer(_csv, _TEXT),
    ARROW: Writer(_arrow, _BINARY),
    PARQUET: Writer(_parquet, _BINARY),
}
