"""Debezium's encodings of values, by the names that Kafka Connect's schemas give them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

Parameters = Mapping[str, Any]
# What makes a value of an encoding what JSON would have: by the value, the schema's parameters, the column's type.
Converter = Callable[[Any, Parameters, DataType | None], Any]
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of times without zone


def converters(schema: object, side: str) -> Mapping[str, tuple[Converter, Parameters]]:
    """By field of the row in ``side`` (before, after) what converts it, as an envelope's schema says; none without."""
    if not isinstance(schema, Mapping):
        return {}
    found: dict[str, tuple[Converter, Parameters]] = {}
    for row in _fields(schema):
        if row.get("field") == side:
            for one in _fields(row):
                converter = CONVERTERS.get(str(one.get("name")))
                parameters = one.get("parameters")
                if converter is not None and isinstance(one.get("field"), str):
                    found[one["field"]] = (converter, parameters if isinstance(parameters, Mapping) else {})
    return found


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    fields = schema.get("fields")
    return [one for one in fields if isinstance(one, Mapping)] if isinstance(fields, list) else []


def convert(read: tuple[Converter, Parameters], value: Any, of: DataType | None) -> Any:
    """The value as JSON would have it; one that is not of its encoding stays, for the column's decoder to refuse."""
    converter, parameters = read
    try:
        return converter(value, parameters, of)
    except (ValueError, OverflowError, TypeError, KeyError, binascii.Error, ArithmeticError):
        return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _date(value: Any, _: Parameters, __: DataType | None) -> str:
    return (date(1970, 1, 1) + timedelta(days=_whole(value))).isoformat()


def _timestamp(per_second: int) -> Converter:
    def read(value: Any, _: Parameters, of: DataType | None) -> str:
        seconds, rest = divmod(_whole(value), per_second)
        text = (_EPOCH + timedelta(seconds=seconds)).isoformat() + _fraction(rest, per_second)
        return f"{text}Z" if of is not None and of.kind is Kind.TIMESTAMP_LTZ else text

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


def _decimal(value: Any, parameters: Parameters, _: DataType | None) -> Decimal | Any:
    if not isinstance(value, str):
        return value
    return _unscaled(value, int(parameters.get("scale", 0)))


def _variable_decimal(value: Any, _: Parameters, __: DataType | None) -> Decimal:
    return _unscaled(value["value"], _whole(value["scale"]))


def _unscaled(text: str, scale: int) -> Decimal:
    number = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


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
}
