"""Records that were sent as JSON objects, read by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from app.core.plan.records.record_decoder import KIND_MEMBER, DecodedRecords, RecordDecoder
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Family
from app.files.arrow import arrow_type
from app.storage.ingest.decoding import decode_columns
from app.storage.ingest.named import Words, words_of_members
from app.storage.ingest.texts import TEXT_READERS, finite
from app.storage.ingest.vectors import Places, Vector

_NOTHING = type(None)
# With so few values the start of a column would take longer than reading them.
FEW_RECORDS = 16


def decode_records(decoder: RecordDecoder, records: Sequence[object], first: int = 0) -> DecodedRecords:
    """Return the records of a JSON body to stage, from the index ``first`` on. Raise ``Invalid`` as ``decoder``
    does.
    """
    if len(records) < FEW_RECORDS:
        return decoder.decode(records, first)
    return decode_columns(decoder, SentObjects(records, decoder), first)


class SentObjects:
    """Objects with the columns as members; numbers with a fraction are Decimal."""

    def __init__(self, records: Sequence[object], decoder: RecordDecoder) -> None:
        self.records = records
        self._known = decoder.names
        self._unknown = decoder.unknown_columns

    @property
    def rows(self) -> int:
        """How many records there are."""
        return len(self.records)

    @cached_property
    def _objects(self) -> Sequence[dict[str, Any]]:
        """The records; an empty one replaces each that is no object."""
        if set(map(type, self.records)) <= {dict}:
            return self.records  # type: ignore[return-value]  # just looked at
        return [record if isinstance(record, dict) else {} for record in self.records]

    @property
    def odd_rows(self) -> Places:
        """The records that are no objects, or name what is no column where that is a fault."""
        known, unknown = self._known, self._unknown
        odd = [row for row, record in enumerate(self._objects) if not record.keys() <= known]
        if unknown is not None:
            for row in odd:
                unknown.note(self._objects[row], self._objects[row].keys() - known)
            odd = []
        if self._objects is not self.records:
            odd += [row for row, record in enumerate(self.records) if not isinstance(record, dict)]
        return np.array(odd, np.int64)

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset().union(*self._objects)

    def sends(self, column: Column) -> bool:
        """Return whether any record has such a member."""
        return column.name in self._members

    def vector(self, column: Column) -> Vector:
        """Return a column of the table that any record has as a member."""
        name = column.name
        return read_list(column.type, [record.get(name) for record in self._objects])

    def cells(self, column: Column, at: Places) -> Sequence[Any]:
        """Return the members themselves."""
        return [self._objects[row].get(column.name) for row in at.tolist()]

    def words(self, columns: Sequence[Column]) -> Words:
        """Return the words that say which columns each record names: those that are its members."""
        return words_of_members(columns, self._objects)

    def kind_texts(self) -> pa.Array | None:
        """Return ``_kind`` of each record; +I where it has none."""
        kinds = [record.get(KIND_MEMBER, "+I") for record in self._objects]
        if kinds.count("+I") == len(kinds):
            return None
        # Half a surrogate pair is text, too, but not for Arrow; every kind is ASCII.
        return pa.array([kind if isinstance(kind, str) and kind.isascii() else None for kind in kinds], pa.string())

    def record(self, row: int) -> object:
        """Return one record, as it was sent."""
        return self.records[row]


def read_list(data_type: DataType, values: list[Any]) -> Vector:
    """Return the JSON values of a column."""
    types = set(map(type, values)) - {_NOTHING}
    try:
        if not types:
            return Vector(pa.nulls(len(values), arrow_type(data_type)))
        if types == {str} and data_type.family in TEXT_READERS:
            return TEXT_READERS[data_type.family](data_type, pa.array(values, pa.string()))
        if types <= _TAKEN.get(data_type.family, frozenset()):
            return _READERS[data_type.family](data_type, values)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError, ArithmeticError):
        pass  # one of them is out of range, or has too many digits: the decoder says which
    return _all_suspects(data_type, values)


def _all_suspects(data_type: DataType, values: list[Any]) -> Vector:
    at = np.array([row for row, value in enumerate(values) if value is not None], np.int64)
    return Vector(pa.nulls(len(values), arrow_type(data_type)), at)


def _as_they_are(data_type: DataType, values: list[Any]) -> Vector:
    return Vector(pa.array(values, arrow_type(data_type)))


def _decimals(data_type: DataType, values: list[Any]) -> Vector:
    """Pyarrow ends the process where the exponent of a number is far out (1e-999999999)."""
    places = [value.adjusted() for value in values if type(value) is Decimal]
    if places and (min(places) < -_FAR or max(places) > _FAR):
        raise OverflowError
    return _as_they_are(data_type, values)


_FAR = 100  # no type has digits there


def _floats(data_type: DataType, values: list[Any]) -> Vector:
    doubles = [None if value is None else float(value) for value in values]
    return finite(data_type, Vector(pa.array(doubles, pa.float64())))


_TAKEN: Mapping[Family, frozenset[type]] = {
    Family.BOOLEAN: frozenset({bool}),
    Family.INTEGER: frozenset({int}),
    Family.DECIMAL: frozenset({int, Decimal}),
    Family.FLOATING: frozenset({int, float, Decimal}),
}
_READERS: Mapping[Family, Callable[[DataType, list[Any]], Vector]] = {
    Family.BOOLEAN: _as_they_are,
    Family.INTEGER: _as_they_are,
    Family.DECIMAL: _decimals,
    Family.FLOATING: _floats,
}
