"""Columns of Arrow and Parquet, made columns of a table: of the same type, or of one that holds every value.

What else its values may be is left to the type's decoder, which alone says what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.files.arrow import arrow_type
from app.storage.ingest.texts import limited_text, within
from app.storage.ingest.vectors import Vector, nothing_known, places

Takes = Callable[[pa.DataType, DataType], bool]


def _text(source: pa.DataType, _: DataType) -> bool:
    return any(check(source) for check in (types.is_string, types.is_large_string, types.is_string_view))


def _binary(source: pa.DataType, _: DataType) -> bool:
    checks = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(check(source) for check in checks)


def _integer(source: pa.DataType, _: DataType) -> bool:
    return bool(types.is_integer(source))


def _floating(source: pa.DataType, data_type: DataType) -> bool:
    """Return whether the column holds every number of the source exactly."""
    if types.is_integer(source):
        return bool(source.bit_width <= (16 if data_type.kind is Kind.FLOAT else 32))
    return bool(types.is_floating(source)) and source.bit_width <= arrow_type(data_type).bit_width


def _decimal(source: pa.DataType, _: DataType) -> bool:
    return bool(types.is_decimal(source) or types.is_integer(source))


def _timestamp(source: pa.DataType, data_type: DataType) -> bool:
    return bool(types.is_timestamp(source)) and (source.tz is not None) is (data_type.kind is Kind.TIMESTAMP_LTZ)


def _list(source: pa.DataType) -> bool:
    return bool(types.is_list(source) or types.is_large_list(source) or types.is_fixed_size_list(source))


def _array(source: pa.DataType, data_type: DataType) -> bool:
    return _list(source) and takes(source.value_type, data_type.element_type)


def _map(source: pa.DataType, data_type: DataType) -> bool:
    key, value = data_type.map_types
    return bool(types.is_map(source)) and takes(source.key_type, key) and takes(source.item_type, value)


def _row(source: pa.DataType, data_type: DataType) -> bool:
    if not types.is_struct(source):
        return False
    inner = {field.name: field.type for field in data_type.fields}
    return all(field.name not in inner or takes(field.type, inner[field.name]) for field in source)


TAKEN: Mapping[Family, Takes] = {
    Family.BOOLEAN: lambda source, _: bool(types.is_boolean(source)),
    Family.INTEGER: _integer,
    Family.FLOATING: _floating,
    Family.DECIMAL: _decimal,
    Family.TEXT: _text,
    Family.BINARY: _binary,
    Family.DATE: lambda source, _: bool(types.is_date(source)),
    Family.TIME: lambda source, _: bool(types.is_time(source)),
    Family.TIMESTAMP: _timestamp,
    Family.ARRAY: _array,
    Family.MAP: _map,
    Family.ROW: _row,
}
"""The Arrow types whose values a family's columns take, if each value fits."""


def takes(source: pa.DataType, data_type: DataType) -> bool:
    """Return whether a column of type ``data_type`` takes values of the Arrow type ``source``. Dictionaries are decoded
    before.
    """
    return bool(types.is_null(source)) or TAKEN[data_type.family](source, data_type)


def read_column(data_type: DataType, array: pa.Array) -> Vector:
    """Return the values of an Arrow column, whose type ``takes`` has accepted."""
    if types.is_null(array.type):
        return Vector(pa.nulls(len(array), arrow_type(data_type)))
    return _READERS.get(data_type.family, nothing_known)(data_type, array)


def _same(data_type: DataType, array: pa.Array) -> Vector:
    return Vector(array.cast(arrow_type(data_type)))


def _fitting(data_type: DataType, array: pa.Array) -> Vector:
    """Values that pyarrow holds to the new type's range; if one is out of it, the decoder says which."""
    try:
        return Vector(array.cast(arrow_type(data_type)))
    except pa.ArrowInvalid:
        return nothing_known(data_type, array)


def _read_text(data_type: DataType, array: pa.Array) -> Vector:
    return limited_text(data_type, array.cast(pa.string()))


def _read_binary(data_type: DataType, array: pa.Array) -> Vector:
    read = array.cast(pa.binary())
    return (
        Vector(read)
        if data_type.length is None
        else Vector(read, places(pc.greater(pc.binary_length(read), data_type.length)))
    )


def _read_date(data_type: DataType, array: pa.Array) -> Vector:
    read = _fitting(data_type, array)
    return read if len(read.suspects) else within(read, date(1, 1, 1), date(9999, 12, 31))


def _read_timestamp(data_type: DataType, array: pa.Array) -> Vector:
    zoned = UTC if data_type.kind is Kind.TIMESTAMP_LTZ else None
    read = _fitting(data_type, array)
    if len(read.suspects):
        return read
    first, last = datetime(1, 1, 1, tzinfo=zoned), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=zoned)
    unit = 10 ** (6 - min(data_type.precision or 0, 6))
    return _whole(within(read, first, last), unit)


def _read_time(data_type: DataType, array: pa.Array) -> Vector:
    try:
        millis = array.cast(pa.time32("ms")).cast(pa.int32())
    except pa.ArrowInvalid:
        return nothing_known(data_type, array)
    read = within(Vector(millis), 0, 86_399_999)
    return _whole(read, 10 ** (3 - min(data_type.precision or 0, 3)))


def _whole(vector: Vector, unit: int) -> Vector:
    """Return the vector; values that are no multiple of ``unit`` become suspects."""
    if unit == 1:
        return vector
    bits = 32 if types.is_int32(vector.array.type) else 64
    numbers = vector.array.view(pa.int32() if bits == 32 else pa.int64())
    rest = numbers.fill_null(0).to_numpy() % unit
    return Vector(vector.array, np.union1d(vector.suspects, np.flatnonzero(rest)))


_READERS: Mapping[Family, Callable[[DataType, pa.Array], Vector]] = {
    Family.BOOLEAN: _same,
    Family.INTEGER: _fitting,
    Family.FLOATING: _same,
    Family.DECIMAL: _fitting,
    Family.TEXT: _read_text,
    Family.BINARY: _read_binary,
    Family.DATE: _read_date,
    Family.TIME: _read_time,
    Family.TIMESTAMP: _read_timestamp,
}


def json_values(array: pa.Array) -> Sequence[Any]:
    """Return the values as JSON would have them, for a decoder to read."""
    if types.is_temporal(array.type):
        return _temporal_texts(array)
    try:
        return [json_value(value) for value in array.to_pylist()]
    except (ArithmeticError, ValueError, KeyError):  # inside, a time, number or time zone that Python does not have
        return [_json_of(value) for value in array]


def _json_of(value: pa.Scalar) -> Any:
    """Return one value as a JSON value. A value that Python cannot hold becomes its text, which a decoder refuses."""
    if not value.is_valid:
        return None
    if types.is_dictionary(value.type):
        return _json_of(value.value)
    if types.is_temporal(value.type):
        return _temporal_texts(pa.array([value], value.type))[0]
    if types.is_struct(value.type):
        return {field.name: _json_of(value[place]) for place, field in enumerate(value.type)}
    if types.is_map(value.type):
        return [(_json_of(entry["key"]), _json_of(entry["value"])) for entry in value.values]
    if _list(value.type):
        return [_json_of(inner) for inner in value.values]
    return value.cast(pa.string()).as_py() if types.is_decimal(value.type) else json_value(value.as_py())


def _temporal_texts(array: pa.Array) -> list[str | None]:
    if types.is_timestamp(array.type) and array.type.tz is not None:
        naive = array.cast(pa.timestamp(array.type.unit, "UTC")).cast(pa.timestamp(array.type.unit))
        return [None if text is None else f"{text}Z" for text in naive.cast(pa.string()).to_pylist()]
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts


def json_value(value: Any) -> Any:
    """Return a value, nested or not, as a JSON value."""
    if isinstance(value, float):
        return value if value - value == 0 else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z" if value.tzinfo else value.isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: json_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [json_value(inner) for inner in value]
    return tuple(map(json_value, value)) if isinstance(value, tuple) else value
