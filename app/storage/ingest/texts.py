"""Columns of text, as CSV and JSON send them, converted to values of a type by pyarrow, a whole column at once.

Unusual spellings are left to the type's decoder: only it refuses values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.files.arrow import arrow_type
from app.storage.ingest.vectors import Places, Vector, nothing_known, places, present

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}"


def limited_text(data_type: DataType, texts: pa.Array) -> Vector:
    """Text that is text in the column, too: only its length can be wrong."""
    if data_type.length is None:
        return Vector(texts)
    return Vector(texts, places(pc.greater(pc.utf8_length(texts), data_type.length)))


def number_text(data_type: DataType, texts: pa.Array) -> Vector:
    """DECIMAL and integers from base-10 text without exponent."""
    if data_type.family is Family.INTEGER:
        digits = len(str(1 << data_type.entry.bits - 1)) - 1
        return _cast(data_type, texts, f"-?[0-9]{{1,{digits}}}")
    scale = data_type.scale or 0
    before = (data_type.precision or 0) - scale
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    return _cast(data_type, texts, f"-?[0-9]{{1,{before}}}{fraction}") if before else nothing_known(data_type, texts)


def floating_text(data_type: DataType, texts: pa.Array) -> Vector:
    """DOUBLE and FLOAT from base-10 text; FLOAT by way of DOUBLE, as its decoder does."""
    double = _cast(DataType(Kind.DOUBLE), texts, r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")
    return finite(data_type, double)


def finite(data_type: DataType, doubles: Vector) -> Vector:
    """Return ``doubles`` in ``data_type``. Values that this made infinite are suspects: the decoder decides on them."""
    array = doubles.array.cast(arrow_type(data_type), safe=False)
    endless = pc.invert(pc.is_finite(array))
    if not len(doubles.suspects) and not pc.any(endless).as_py():
        return Vector(array)
    return Vector(array, _both(doubles, endless))


def _both(vector: Vector, mask: pa.Array) -> Places:
    return np.union1d(vector.suspects, places(mask))


def boolean_text(data_type: DataType, texts: pa.Array) -> Vector:
    """BOOLEAN from true and false in any case."""
    return _cast(data_type, texts, "(?i:true|false)")


def _timestamp_text(data_type: DataType, texts: pa.Array) -> Vector:
    zone = "(Z|[+-][0-9]{2}:[0-9]{2})" if data_type.kind is Kind.TIMESTAMP_LTZ else ""
    fraction = rf"(\.[0-9]{{1,{data_type.precision}}})?" if data_type.precision else ""
    read = _cast(data_type, texts, f"{_DAY}[T ]{_CLOCK}{fraction}{zone}")
    zoned = UTC if zone else None
    first, last = datetime(1, 1, 1, tzinfo=zoned), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=zoned)
    return within(read, first, last)


def _date_text(data_type: DataType, texts: pa.Array) -> Vector:
    return within(_cast(data_type, texts, _DAY), date(1, 1, 1), date(9999, 12, 31))


def within(vector: Vector, first: object, last: object) -> Vector:
    """Return the vector; values before ``first`` or after ``last`` become suspects."""
    array = vector.array
    outside = pc.or_(pc.less(array, pa.scalar(first, array.type)), pc.greater(array, pa.scalar(last, array.type)))
    if not pc.any(outside).as_py():
        return vector
    return Vector(array, _both(vector, outside))


def _time_text(data_type: DataType, texts: pa.Array) -> Vector:
    precision = min(data_type.precision or 0, 3)
    fraction = rf"(\.[0-9]{{1,{precision}}})?" if precision else ""
    moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
    read = _cast_to(pa.timestamp("ms"), moments, f"{_DAY} {_CLOCK}{fraction}")
    return Vector(read.array.cast(pa.int64()).cast(pa.int32()), read.suspects)


def _cast(data_type: DataType, texts: pa.Array, pattern: str) -> Vector:
    return _cast_to(arrow_type(data_type), texts, pattern)


def _cast_to(target: pa.DataType, texts: pa.Array, pattern: str) -> Vector:
    """Return the texts that match ``pattern``, cast to ``target``; if pyarrow refuses one of them, all are suspects."""
    plain = pc.match_substring_regex(texts, f"^(?:{pattern})$")
    odd = places(pc.invert(plain))
    spelled = pc.if_else(plain, texts, None) if len(odd) else texts
    try:
        return Vector(spelled.cast(target), odd)
    except pa.ArrowInvalid:
        return Vector(pa.nulls(len(texts), target), present(texts))


TEXT_READERS: Mapping[Family, Callable[[DataType, pa.Array], Vector]] = {
    Family.TEXT: limited_text,
    Family.DECIMAL: number_text,
    Family.DATE: _date_text,
    Family.TIME: _time_text,
    Family.TIMESTAMP: _timestamp_text,
}
"""The families whose values JSON may send as text, and those of them that are read a column at a time."""

CELL_READERS: Mapping[Family, Callable[[DataType, pa.Array], Vector]] = {
    **TEXT_READERS,
    Family.BOOLEAN: boolean_text,
    Family.INTEGER: number_text,
    Family.FLOATING: floating_text,
}
"""The same for CSV, which has nothing but text."""
