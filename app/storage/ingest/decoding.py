"""Records that were sent as columns, made what a staging file holds: as ``RecordDecoder`` reads them, without a step
for each row.

The decoder of a column stays the authority: it reads every value that a whole column's step did not understand.
``RecordDecoder`` reports a fault from the record itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.errors import Invalid
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.record_decoder import (
    KEYS_OF_ANY_LENGTH,
    LONGEST_KEY,
    REPORTED_VIOLATIONS,
    DecodedRecords,
    RecordDecoder,
    invalid_records,
)
from app.core.table.records import Record, RowKind
from app.core.table.schema import Column
from app.core.types.kinds import Family
from app.core.types.values import ValueFault
from app.files.arrow import arrow_type
from app.storage.ingest.named import Words, naming
from app.storage.ingest.vectors import NOWHERE, Places, Vector, places, present, replaced

_NO_KIND = -1
_RETRACTS = [int(kind) for kind in RowKind if not kind.add]
_READ_AGAIN = 2**20  # values of records at fault


class Sent(Protocol):
    """Records as they were sent, by column and by row."""

    @property
    def rows(self) -> int:
        """How many records there are."""

    @property
    def odd_rows(self) -> Places:
        """The records that have a fault no column shows: they are no objects, or name what is no column."""

    def sends(self, column: Column) -> bool:
        """Return whether any record may have a value for the column."""

    def vector(self, column: Column) -> Vector:
        """Return a column of the table that is sent."""

    def cells(self, column: Column, at: Places) -> Sequence[Any]:
        """Return the values at the places ``at``, none of them null, as the decoder of ``column`` takes them."""

    def words(self, columns: Sequence[Column]) -> Words:
        """Return which of ``columns``, all those of the table, each record names."""

    def kind_texts(self) -> pa.Array | None:
        """Return ``_kind`` of each record, null if it is no text; None if no record has any."""

    def record(self, row: int) -> object:
        """Return one record, as ``RecordDecoder`` reads it."""


def decode_columns(decoder: RecordDecoder, sent: Sent, first: int = 0) -> DecodedRecords:
    """Return the records to stage; ``first`` is the index in the request of the first of them. Raise ``Invalid`` with
    the faults that ``RecordDecoder`` finds in every record.
    """
    arrays: dict[str, pa.Array] = {}
    refused = [sent.odd_rows]
    refused_nulls: list[tuple[Column, Places]] = []
    schema = decoder.plan.schema
    words = sent.words(schema.columns) if schema.absent_unchanged else {}
    unsent = _Unsent(sent.rows)
    for column, decode in decoder.columns:
        arrays[column.name], at, nulls = (
            _settled(decoder.plan, column, decode, sent) if sent.sends(column) else unsent.settled(column, decode)
        )
        refused.append(at)
        if len(nulls):
            refused_nulls.append((column, nulls))
    kinds = _kinds(decoder, sent, arrays)
    refused += [_faulty_nulls(decoder.plan, column, nulls, kinds, words) for column, nulls in refused_nulls]
    refused.append(np.flatnonzero(kinds == _NO_KIND))
    dropped = [int(kind) for kind in decoder.plan.dropped]
    folded = ~np.isin(kinds, dropped) if dropped else np.ones(len(kinds), bool)
    refused.append(_never_folded(decoder.plan, kinds, folded, arrays, words))
    faulty = np.unique(np.concatenate(refused))
    if len(faulty):
        _refuse(decoder, sent, first, faulty)
    records = _staged(arrays, words, kinds, folded, first)
    decoder.check(records)
    return records


def _faulty_nulls(plan: MergePlan, column: Column, nulls: Places, kinds: np.ndarray[Any, Any], words: Words) -> Places:
    """Return which of the places ``nulls`` of a NOT NULL column are at fault: not those of records that may leave it
    out.
    """
    if column.name in plan.omissible:
        nulls = nulls[naming(words, column)[nulls]]
    if column.name in plan.omissible_in_retracts:
        nulls = nulls[~np.isin(kinds[nulls], _RETRACTS)]
    return nulls


def _refuse(decoder: RecordDecoder, sent: Sent, first: int, faulty: Places) -> NoReturn:
    """Raise ``Invalid`` with the faults that ``RecordDecoder`` finds in the ``faulty`` records, in as many as can be
    read again quickly.
    """
    read = faulty[: max(REPORTED_VIOLATIONS, _READ_AGAIN // len(decoder.columns))]
    try:
        decoder.decode_at((first + int(row), sent.record(int(row))) for row in read)
    except Invalid as error:
        more = len(faulty) - len(read)
        if not more:
            raise
        raise invalid_records(error.violations, error.total_violations + more, more=True) from error
    raise AssertionError("a column refuses what its record does not")


class _Unsent:
    """The columns that no record has: those of one type share their nulls, for a wide table may have thousands."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._nulls: dict[pa.DataType, pa.Array] = {}

    def settled(self, column: Column, decode: Callable[[Any], Any]) -> tuple[pa.Array, Places, Places]:
        """Return the result of ``_settled`` for a column that was not sent."""
        null_type = arrow_type(column.type)
        if null_type not in self._nulls:
            self._nulls[null_type] = pa.nulls(self._rows, null_type)
        nulls = self._nulls[null_type]
        try:
            instead = decode(None)
        except ValueFault:
            return nulls, NOWHERE, np.arange(self._rows)
        filled = nulls if instead is None else replaced(nulls, np.arange(self._rows), [instead] * self._rows)
        return filled, NOWHERE, NOWHERE


def _staged(
    arrays: Mapping[str, pa.Array], words: Words, kinds: np.ndarray[Any, Any], folded: np.ndarray[Any, Any], first: int
) -> DecodedRecords:
    at = np.flatnonzero(folded)
    ignored = len(folded) - len(at)
    chosen = {name: array.take(pa.array(at)) if ignored else array for name, array in arrays.items()}
    kept_words = {word: pa.array(bits[at]) for word, bits in words.items()}
    return DecodedRecords(chosen, pa.array(kinds[at], pa.int8()), pa.array(first + at, pa.int32()), ignored, kept_words)


def _settled(
    plan: MergePlan, column: Column, decode: Callable[[Any], Any], sent: Sent
) -> tuple[pa.Array, Places, Places]:
    """Return the column to stage, the places of values that the decoder refuses, and those of refused nulls."""
    vector = sent.vector(column)
    padded = column.name in plan.required_columns and column.type.family in (Family.TEXT, Family.FLOATING)
    suspects = present(vector.array) if padded else NOWHERE
    if column.name in plan.schema.primary_key and column.type.family in KEYS_OF_ANY_LENGTH:
        suspects = places(pc.greater(pc.binary_length(vector.array), LONGEST_KEY))
    suspects = np.union1d(vector.suspects, suspects) if len(suspects) else vector.suspects
    nulls = places(vector.array.is_null()) if vector.array.null_count else NOWHERE
    if len(suspects):
        nulls = nulls[~np.isin(nulls, suspects)]
    array, refused = _exactly(vector.array, suspects, decode, sent.cells(column, suspects) if len(suspects) else ())
    if column.name in plan.schema.primary_key and column.type.family is Family.FLOATING:
        array = pc.add(array, pa.scalar(0, array.type))
    if len(nulls):
        try:
            instead = decode(None)
        except ValueFault:
            return array, refused, nulls
        if instead is not None:
            array = replaced(array, nulls, [instead] * len(nulls))
    return array, refused, NOWHERE


def _exactly(
    array: pa.Array, at: Places, decode: Callable[[Any], Any], cells: Sequence[Any]
) -> tuple[pa.Array, Places]:
    values: list[Any] = []
    refused: list[int] = []
    for place, cell in zip(at.tolist(), cells, strict=True):
        try:
            values.append(decode(cell))
        except ValueFault:
            values.append(None)
            refused.append(place)
    return replaced(array, at, values), np.array(refused, np.int64)


def _kinds(decoder: RecordDecoder, sent: Sent, arrays: Mapping[str, pa.Array]) -> np.ndarray[Any, Any]:
    """Return the number of each record's row kind, ``_NO_KIND`` where it has none."""
    column = decoder.plan.row_kind_column
    texts = sent.kind_texts() if column is None else arrays[column]
    if texts is None:
        return np.full(sent.rows, int(RowKind.INSERT), np.int8)
    coded = texts.dictionary_encode(null_encoding="encode")
    numbers = [_number(decoder.kind_of(text)) for text in coded.dictionary.to_pylist()]
    table = np.array(numbers or [_NO_KIND], np.int8)
    kinds: np.ndarray[Any, Any] = table[coded.indices.to_numpy(zero_copy_only=False)]
    return kinds


def _number(kind: RowKind | None) -> int:
    return _NO_KIND if kind is None else int(kind)


def _never_folded(
    plan: MergePlan,
    kinds: np.ndarray[Any, Any],
    folded: np.ndarray[Any, Any],
    arrays: Mapping[str, pa.Array],
    words: Words,
) -> Places:
    """Return where the plan refuses a record (docs/semantics.md, A.7)."""
    faulty = np.zeros(len(kinds), bool)
    for refusal in plan.refusals:
        mask = kinds == int(refusal.kind)
        if refusal.group:
            touching = [arrays[name].is_valid().to_numpy(zero_copy_only=False) for name in refusal.group]
            mask = mask & np.logical_or.reduce(touching)
        for name in refusal.naming:
            mask = mask & naming(words, plan.schema.by_name[name])
        faulty |= mask
    for row, record in _looked_at(plan, kinds, arrays):
        faulty[row] |= any(rule.fault(record) is not None for rule in plan.faulting)
    return np.flatnonzero(faulty & folded)


def _looked_at(
    plan: MergePlan, kinds: np.ndarray[Any, Any], arrays: Mapping[str, pa.Array]
) -> Iterator[tuple[int, Record]]:
    """Yield the records as rules see them that look at single values: bitmaps and sketches are read one by one."""
    names = sorted({column.name for rule in plan.faulting for column in rule.columns})
    if not names:
        return
    columns = [arrays[name].to_pylist() for name in names]
    for row, (kind, *values) in enumerate(zip(kinds.tolist(), *columns, strict=True)):
        if kind != _NO_KIND:
            yield row, Record(RowKind(kind), dict(zip(names, values, strict=True)))
