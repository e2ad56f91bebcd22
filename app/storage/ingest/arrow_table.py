"""Records that were sent as Arrow columns, whichever format carried them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import types

from app.core.errors import FaultCode, Violation
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import KIND_MEMBER, DecodedRecords, RecordDecoder
from app.core.table.schema import Column
from app.storage.ingest.arrow_columns import json_values, read_column, takes
from app.storage.ingest.decoding import decode_columns
from app.storage.ingest.named import Words, words_of_columns
from app.storage.ingest.pieces import Piece
from app.storage.ingest.refusals import column_fault, known_columns, name_faults, refuse_columns
from app.storage.ingest.unfolding import decoded_type, is_view, weight_of, without_views
from app.storage.ingest.vectors import NOWHERE, Places, Vector


def table_pieces(
    decoder: RecordDecoder, schema: pa.Schema, batches: Iterable[pa.RecordBatch], bounds: Bounds
) -> Iterator[Piece]:
    """Yield the records of batches that are valid Arrow; small ones are joined, large ones cut. Raise ``TooLarge``."""
    unfolded: Counter[str] = Counter()
    gathered: list[pa.RecordBatch] = []
    rows = held = size = 0
    for batch, weight in _light(batches, bounds, unfolded):
        if gathered and (size + weight > bounds.piece_bytes or held + batch.num_rows > bounds.piece_records):
            yield partial(_decode, decoder, schema, gathered, rows)
            rows, gathered, held, size = rows + held, [], 0, 0
        gathered.append(batch)
        held, size = held + batch.num_rows, size + max(weight, _BATCH_BYTES)
        bounds.check_records(rows + held)
    yield partial(_decode, decoder, schema, gathered, rows)


# Memory of a batch besides its values.
_BATCH_BYTES = 4096


def _decode(decoder: RecordDecoder, schema: pa.Schema, batches: list[pa.RecordBatch], first: int) -> DecodedRecords:
    table = known_columns(pa.Table.from_batches(batches, schema), decoder)
    arrays = {name: _plain(table.column(name)) for name in table.column_names}
    return decode_columns(decoder, SentArrays(arrays, table.num_rows), first)


def _light(
    batches: Iterable[pa.RecordBatch], bounds: Bounds, unfolded: Counter[str]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the batches that have rows, cut until none unfolds to more than a piece, with what they weigh. ``unfolded``
    counts it by column. Raise ``TooLarge`` for a column that unfolds to more than a body, and for a row to more than a
    record.
    """
    for batch in batches:
        if not batch.num_rows:
            continue  # a body may have millions of them
        weights = [weight_of(column) for column in batch.columns]
        for name, weight in zip(batch.schema.names, weights, strict=True):
            unfolded[name] += weight
            bounds.check_bytes(unfolded[name])
        yield from _cut(batch, sum(weights), bounds)


def _cut(batch: pa.RecordBatch, weight: int, bounds: Bounds) -> Iterator[tuple[pa.RecordBatch, int]]:
    if batch.num_rows == 1:
        bounds.check_record(weight)
    if batch.num_rows == 1 or (weight <= bounds.piece_bytes and batch.num_rows <= bounds.piece_records):
        yield batch, weight
        return
    half = batch.num_rows // 2
    for part in (batch.slice(0, half), batch.slice(half)):
        yield from _cut(part, sum(map(weight_of, part.columns)), bounds)


def check_columns(decoder: RecordDecoder, schema: pa.Schema) -> None:
    """Raise ``Invalid`` for columns that the table does not have, or whose type it does not take."""
    faults = name_faults(schema.names, decoder)
    for field in schema:
        column = decoder.plan.schema.by_name.get(field.name)
        if column is not None and not takes(decoded_type(field.type), column.type):
            faults.append(_type_fault(column, field.type))
        if field.name == KIND_MEMBER and not _is_text(decoded_type(field.type)):
            message = f"column {KIND_MEMBER!r}: {field.type} is no text"
            faults.append(column_fault(KIND_MEMBER, FaultCode.WRONG_TYPE, message, "send utf8, or no such column"))
    refuse_columns(faults)


def _type_fault(column: Column, source: pa.DataType) -> Violation:
    message = f"column {column.name!r}: values of Arrow type {source} may be no {column.type.base_sql}"
    return column_fault(column.name, FaultCode.WRONG_TYPE, message[:300], "cast the column before sending")


def _is_text(source: pa.DataType) -> bool:
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(check(source) for check in checks)


class SentArrays:
    """Arrow columns by name, none of them a dictionary."""

    def __init__(self, arrays: dict[str, pa.Array], rows: int) -> None:
        self._arrays = arrays
        self.rows = rows
        self.odd_rows: Places = NOWHERE

    def sends(self, column: Column) -> bool:
        """Return whether the column was sent."""
        return column.name in self._arrays

    def vector(self, column: Column) -> Vector:
        """Return a column of the table that was sent."""
        return read_column(column.type, self._arrays[column.name])

    def cells(self, column: Column, at: Places) -> Sequence[Any]:
        """Return the values, each as JSON would have it."""
        return json_values(self._arrays[column.name].take(pa.array(at)))

    def words(self, columns: Sequence[Column]) -> Words:
        """Return every row names the columns that were sent, nulls too."""
        return words_of_columns(columns, self._arrays.keys(), self.rows)

    def kind_texts(self) -> pa.Array | None:
        """Return the column ``_kind``; null is +I."""
        kinds = self._arrays.get(KIND_MEMBER)
        return None if kinds is None else kinds.cast(pa.string()).fill_null("+I")

    def record(self, row: int) -> object:
        """Return one row as a JSON object."""
        cells = {name: json_values(array.slice(row, 1))[0] for name, array in self._arrays.items()}
        if cells.get(KIND_MEMBER, "") is None:
            del cells[KIND_MEMBER]
        return cells


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return the column in one piece, its dictionary or views resolved; it is known that it unfolds into no flood.
    Readers of nested values resolve the dictionaries inside.
    """
    plain = without_views(column.type)
    if plain != column.type:
        column = column.cast(plain)
    chunks = column.chunks
    if types.is_dictionary(column.type):
        chunks = [_decoded(chunk) for chunk in chunks]
    if not chunks:
        return pa.array([], decoded_type(column.type))
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _decoded(chunk: pa.DictionaryArray) -> pa.Array:
    """Return the values. Those of views are taken one by one: the others, which may be far more, stay folded."""
    values = chunk.dictionary.type
    return pa.array(chunk.to_pylist(), without_views(values)) if is_view(values) else chunk.dictionary_decode()
