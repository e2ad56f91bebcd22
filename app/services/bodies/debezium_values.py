"""Debezium's encodings of values, by the names that Kafka Connect's schemas give them: one entry a semantic type."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.services.bodies.json_bodies import json_text

Parameters = Mapping[str, Any]
Read = Callable[[Any, DataType | None], Any]
"""Makes a value what JSON would have, by the type of its column. Raises ``Unreadable`` of what no column can hold."""
# What makes a value of an encoding what JSON would have: by the value, the schema's parameters, the column's type.
Converter = Callable[[Any, Parameters, DataType | None], Any]
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of times without zone
# Of a number or a bit string as text. PostgreSQL's numbers have fewer; its BIT VARYING declares 2^31 - 1.
_MOST_CHARACTERS: Final = 2**18
_MOST_SCALE: Final = 1_000  # beyond it Debezium has lost a negative scale of PostgreSQL
_INFINITE = "PostgreSQL's infinity, which Debezium sends as a number beyond the calendar"
_NO_INFINITY = "let the column be null, or a date that the calendar has, in the database"


class Unreadable(ValueError):
    """A value that Debezium could not represent, or that no column can hold."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def readers(schema: object, side: str | None) -> Mapping[str, Read]:
    """Return the readers of a row's values, by field, for a schema; empty without one.

    ``side`` is before or after in an envelope; None for the schema of a row alone.
    """
    if schema is None:
        return {}
    by_name = {str(field["field"]): field_reader(field) for field in row_fields(schema, side) if "field" in field}
    return {name: read for name, read in by_name.items() if read is not None}


def sends_defaults(schema: object) -> bool:
    """Return whether a null of the row may have been sent as the column's default: an optional field has one."""
    return schema is not None and any(
        field.get("optional") is True and field.get("default") is not None for field in row_fields(schema, "after")
    )


def row_fields(schema: object, side: str | None) -> list[Mapping[str, Any]]:
    """Return the fields of a row that a schema declares; ``side`` is as that of ``readers``."""
    if not isinstance(schema, Mapping):
        return []
    if side is None:
        return _fields(schema)
    return [field for row in _fields(schema) if row.get("field") == side for field in _fields(row)]


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    fields = schema.get("fields")
    return [field for field in fields if isinstance(field, Mapping)] if isinstance(fields, list) else []


def field_reader(field: Mapping[str, Any]) -> Read | None:
    """Return the reader of values of a field's schema; values inside arrays and maps are read like those at the top."""
    converter = CONVERTERS.get(str(field.get("name")))
    if converter is not None:
        parameters = field.get("parameters")
        known = parameters if isinstance(parameters, Mapping) else {}
        return lambda value, to: convert((converter, known), value, to)
    inner = (
        field.get("items")
        if field.get("type") == "array"
        else field.get("values")
        if field.get("type") == "map"
        else None
    )
    read = field_reader(inner) if isinstance(inner, Mapping) else None
    return None if read is None else _each(read)


def _each(read: Read) -> Read:
    def read_all(value: Any, to: DataType | None) -> Any:
        element = to.element if to is not None else None
        if isinstance(value, list):
            return [None if item is None else read(item, element) for item in value]
        if isinstance(value, Mapping):
            return {name: None if item is None else read(item, element) for name, item in value.items()}
        return value

    return read_all


def convert(read: tuple[Converter, Parameters], value: Any, column_type: DataType | None) -> Any:
    """Return the value as in JSON. A value that does not have its encoding is unchanged, and the column's decoder
    refuses it.

    Raise ``Unreadable``.
    """
    converter, parameters = read
    try:
        return converter(value, parameters, column_type)
    except Unreadable:
        raise
    except (ValueError, OverflowError, TypeError, KeyError, binascii.Error, ArithmeticError):
        return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _date(value: Any, _: Parameters, __: DataType | None) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=_whole(value))).isoformat()
    except OverflowError as error:
        raise Unreadable(f"{value} days are {_INFINITE}", _NO_INFINITY) from error


def _timestamp(per_second: int) -> Converter:
    def read(value: Any, _: Parameters, column_type: DataType | None) -> str:
        seconds, rest = divmod(_whole(value), per_second)
        try:
            text = (_EPOCH + timedelta(seconds=seconds)).isoformat() + _fraction(rest, per_second)
        except OverflowError as error:
            raise Unreadable(f"{value} is {_INFINITE}", _NO_INFINITY) from error
        return f"{text}Z" if column_type is not None and column_type.kind is Kind.TIMESTAMP_LTZ else text

    return read


def _time(per_second: int) -> Converter:
    def read(value: Any, _: Parameters, __: DataType | None) -> str:
        seconds, rest = divmod(_whole(value), per_second)
        if not 0 <= seconds < 86_400:
            raise ValueError
        return (_EPOCH + timedelta(seconds=seconds)).time().isoformat() + _fraction(rest, per_second)

    return read


def _fraction(rest: int, per_second: int) -> str:
    return f".{rest:0{len(str(per_second)) - 1}}" if rest else ""


def _decimal(value: Any, parameters: Parameters, to: DataType | None) -> Any:
    if not isinstance(value, str):
        return value
    scale = int(parameters.get("scale", 0))
    if scale > _MOST_SCALE:
        message = f"Debezium sends a scale of {scale} for a numeric with a negative scale, so its value is lost"
        raise Unreadable(message, "set decimal.handling.mode=string")
    return _number(_unscaled(value, scale), to)


def _variable_decimal(value: Any, _: Parameters, to: DataType | None) -> Any:
    return _number(_unscaled(value["value"], _whole(value["scale"])), to)


def _number(value: Decimal, to: DataType | None) -> Any:
    """Return a decimal, or its text without an exponent where the column is a text."""
    return text_of(value) if to is not None and to.family is Family.TEXT else value


def text_of(value: Decimal) -> str:
    """Return a decimal as text without an exponent. Raise ``Unreadable``."""
    _check_length(abs(int(value.as_tuple().exponent)), "set decimal.handling.mode=string, or make the column a DECIMAL")
    return format(value, "f")


def _check_length(characters: int, fix: str) -> None:
    """Raise ``Unreadable`` for a text that would be far larger than its event."""
    if characters > _MOST_CHARACTERS:
        raise Unreadable(f"its text would have {characters} characters, {_MOST_CHARACTERS} are read", fix)


def _unscaled(text: str, scale: int) -> Decimal:
    number = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _as_it_is(value: Any, _: Parameters, __: DataType | None) -> Any:
    return value


def _iso(value: Any, _: Parameters, to: DataType | None) -> Any:
    """Return a date or time without a zone, to which Debezium adds Z."""
    return value.removesuffix("Z") if isinstance(value, str) and to is not None and to.family is Family.TEXT else value


def _bits(value: Any, parameters: Parameters, to: DataType | None) -> Any:
    """Return a bit string, least byte first: as it is for BYTES, for a text its digits."""
    if to is None or to.family is not Family.TEXT:
        return value
    content = base64.b64decode(value, validate=True)
    number, length = int.from_bytes(content, "little"), int(parameters.get("length", 8 * len(content)))
    _check_length(length, "make the column BYTES")
    return f"{number:0{length}b}"


def _text_of_number(value: Any, _: Parameters, to: DataType | None) -> Any:
    return str(_whole(value)) if to is not None and to.family is Family.TEXT else value


def _geometry(value: Any, _: Parameters, to: DataType | None) -> Any:
    """Return a geometry: its well-known bytes for BYTES, the whole object as JSON for a STRING, unchanged for a ROW."""
    if to is None or not isinstance(value, Mapping):
        return value
    if to.family is Family.BINARY:
        return value["wkb"]
    return json_text(value, 0) if to.family is Family.TEXT else value


_TEXTS = ("Enum", "EnumSet", "Json", "Xml", "Uuid", "Ltree", "Tsvector")
_VECTORS = ("FloatVector", "DoubleVector", "SparseDoubleVector")
CONVERTERS: Mapping[str, Converter] = {
    "io.debezium.time.Date": _date,
    "org.apache.kafka.connect.data.Date": _date,
    "io.debezium.time.Timestamp": _timestamp(1000),
    "org.apache.kafka.connect.data.Timestamp": _timestamp(1000),
    "io.debezium.time.MicroTimestamp": _timestamp(1_000_000),
    "io.debezium.time.NanoTimestamp": _timestamp(1_000_000_000),
    "io.debezium.time.Time": _time(1000),
    "org.apache.kafka.connect.data.Time": _time(1000),
    "io.debezium.time.MicroTime": _time(1_000_000),
    "io.debezium.time.NanoTime": _time(1_000_000_000),
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    "io.debezium.time.IsoDate": _iso,
    "io.debezium.time.IsoTime": _iso,
    "io.debezium.time.IsoTimestamp": _iso,
    "io.debezium.time.ZonedTime": _as_it_is,
    "io.debezium.time.ZonedTimestamp": _as_it_is,
    "io.debezium.time.Interval": _as_it_is,
    "io.debezium.time.Year": _as_it_is,
    "io.debezium.time.MicroDuration": _text_of_number,
    "io.debezium.time.NanoDuration": _text_of_number,
    "io.debezium.data.Bits": _bits,
    **{f"io.debezium.data.{name}": _as_it_is for name in (*_TEXTS, *_VECTORS)},
    **{f"io.debezium.data.geometry.{name}": _geometry for name in ("Point", "Geometry", "Geography")},
}
