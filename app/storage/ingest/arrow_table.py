"""Records that were sent as Arrow columns, whichever format carried them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from app.core.errors import FaultCode, TooLarge, Violation
from app.core.plan.bounds import Bounds
from app.core.plan.record_decoder import KIND_MEMBER, DecodedRecords, RecordDecoder
from app.core.table.schema import Column
from app.storage.ingest.arrow_columns import json_values, read_column, takes
from app.storage.ingest.decoding import absent, decode_columns
from app.storage.ingest.named import Words, words_of_columns
from app.storage.ingest.pieces import Piece
from app.storage.ingest.refusals import column_fault, name_faults, refuse_columns
from app.storage.ingest.vectors import NOWHERE, Places, Vector


def table_pieces(
    decoder: RecordDecoder, schema: pa.Schema, batches: Iterable[pa.RecordBatch], bounds: Bounds
) -> Iterator[Piece]:
    """The records of batches that are valid Arrow; small ones are joined, large ones cut. Raises ``TooLarge``."""
    unfolded: Counter[str] = Counter()
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, weight in _light(batches, bounds, unfolded):
        if gathered and size + weight > bounds.piece_bytes:
            yield partial(_decode, decoder, schema, gathered, rows, bounds)
            rows += sum(one.num_rows for one in gathered)
            gathered, size = [], 0
        gathered.append(batch)
        size += weight
        bounds.check_records(rows + sum(one.num_rows for one in gathered))
    yield partial(_decode, decoder, schema, gathered, rows, bounds)


def _decode(
    decoder: RecordDecoder, schema: pa.Schema, batches: list[pa.RecordBatch], first: int, bounds: Bounds
) -> DecodedRecords:
    table = pa.Table.from_batches(batches, schema)
    arrays = {name: _plain(table.column(name), bounds) for name in table.column_names}
    return decode_columns(decoder, SentArrays(arrays, table.num_rows), first)


def _light(
    batches: Iterable[pa.RecordBatch], bounds: Bounds, unfolded: Counter[str]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batches cut until none unfolds to more than a piece, with the bytes that they unfold to. ``unfolded`` counts
    them by column. Raises ``TooLarge`` for a column that unfolds to more than a body.
    """
    for batch in batches:
        weights = [_bytes(column) for column in batch.columns]
        for name, weight in zip(batch.schema.names, weights, strict=True):
            unfolded[name] += weight
            bounds.check_bytes(unfolded[name])
        yield from _cut(batch, sum(weights), bounds.piece_bytes)


def _cut(batch: pa.RecordBatch, weight: int, most: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    if weight <= most or batch.num_rows <= 1:
        yield batch, weight
        return
    half = batch.num_rows // 2
    for part in (batch.slice(0, half), batch.slice(half)):
        yield from _cut(part, sum(map(_bytes, part.columns)), most)


def check_columns(decoder: RecordDecoder, schema: pa.Schema) -> None:
    """Raises ``Invalid`` for columns that the table does not have, or whose type it does not take."""
    faults = name_faults(schema.names, decoder)
    for column, _ in decoder.columns:
        faults += [
            _type_fault(column, field.type)
            for field in schema
            if field.name == column.name and not takes(_decoded(field.type), column.type)
        ]
    kinds = [field for field in schema if field.name == KIND_MEMBER]
    for field in kinds:
        if not _is_text(_decoded(field.type)):
            message = f"column {KIND_MEMBER!r}: {field.type} is no text"
            faults.append(column_fault(KIND_MEMBER, FaultCode.WRONG_TYPE, message, "send utf8, or no such column"))
    refuse_columns(faults)


def _type_fault(column: Column, source: pa.DataType) -> Violation:
    message = f"column {column.name!r}: values of Arrow type {source} may be no {column.type.base_sql}"
    return column_fault(column.name, FaultCode.WRONG_TYPE, message[:300], "cast the column before sending")


def _decoded(source: pa.DataType) -> pa.DataType:
    return source.value_type if types.is_dictionary(source) else source


def _is_text(source: pa.DataType) -> bool:
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(check(source) for check in checks)


class SentArrays:
    """Arrow columns by name, none of them a dictionary."""

    def __init__(self, arrays: dict[str, pa.Array], rows: int) -> None:
        self._arrays = arrays
        self.rows = rows
        self.odd_rows: Places = NOWHERE

    def vector(self, column: Column) -> Vector:
        """A column of the table."""
        array = self._arrays.get(column.name)
        return absent(column, self.rows) if array is None else read_column(column.type, array)

    def cells(self, column: Column, at: Places) -> Sequence[Any]:
        """The values, each as JSON would have it."""
        return json_values(self._arrays[column.name].take(pa.array(at)))

    def words(self, columns: Sequence[Column]) -> Words:
        """Every row names the columns that were sent, nulls too."""
        return words_of_columns(columns, self._arrays.keys(), self.rows)

    def kind_texts(self) -> pa.Array | None:
        """The column ``_kind``; null is +I."""
        kinds = self._arrays.get(KIND_MEMBER)
        return None if kinds is None else kinds.cast(pa.string()).fill_null("+I")

    def record(self, row: int) -> object:
        """One row as a JSON object."""
        cells = {name: json_values(array.slice(row, 1))[0] for name, array in self._arrays.items()}
        if cells.get(KIND_MEMBER, "") is None:
            del cells[KIND_MEMBER]
        return cells


def _plain(column: pa.ChunkedArray, bounds: Bounds) -> pa.Array:
    """The column in one piece, its dictionaries and views resolved; it is known that they unfold into no flood."""
    if types.is_string_view(column.type) or types.is_binary_view(column.type):
        column = column.cast(pa.string() if types.is_string_view(column.type) else pa.binary())
    chunks = column.chunks
    if types.is_dictionary(column.type):
        chunks = [chunk.dictionary_decode() for chunk in chunks]
    for chunk in chunks:
        _check_elements(chunk, bounds)
    if not chunks:
        return pa.array([], _decoded(column.type))
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _bytes(column: pa.Array) -> int:
    """The memory that a column takes once it is unfolded."""
    if types.is_string_view(column.type) or types.is_binary_view(column.type):
        return _viewed_bytes(column)
    return _unfolded_bytes(column) if types.is_dictionary(column.type) else int(column.nbytes)


def _unfolded_bytes(chunk: pa.DictionaryArray) -> int:
    values = chunk.dictionary
    if not (types.is_large_unicode(values.type) or types.is_unicode(values.type) or types.is_binary(values.type)):
        return len(chunk) * 16
    lengths = pc.binary_length(values).cast(pa.int64())
    return (pc.sum(lengths.take(chunk.indices)).as_py() or 0) + 4 * len(chunk)


def _viewed_bytes(chunk: pa.Array) -> int:
    """What the views of a chunk say they are long; each is 16 bytes and begins with its length."""
    views = chunk.buffers()[1]
    if views is None:
        return 0
    lengths = np.frombuffer(views, np.int32)[::4][chunk.offset : chunk.offset + len(chunk)]
    return int(lengths[chunk.is_valid().to_numpy(zero_copy_only=False)].sum(dtype=np.int64))


def _check_elements(array: pa.Array, bounds: Bounds) -> None:
    """Raises ``TooLarge`` for elements of nested values without number: some types have them for no bytes."""
    if sum(map(len, _children(array))) > max(bounds.whole_bytes // 8, bounds.records):
        raise TooLarge("the body has too many elements in its nested values; split the request")


def _children(array: pa.Array) -> Iterator[pa.Array]:
    source = array.type
    inner: list[pa.Array] = []
    if types.is_struct(source):
        inner = [array.field(place) for place in range(source.num_fields)]
    elif types.is_map(source):
        inner = [array.keys, array.items]
    elif types.is_list(source) or types.is_large_list(source) or types.is_fixed_size_list(source):
        inner = [array.values]
    for child in inner:
        yield child
        yield from _children(child)
