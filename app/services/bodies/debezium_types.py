"""The types of a table's columns that Kafka Connect's schemas declare, by Debezium's names of semantic types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from app.core.plan.records.unknown_columns import DeclaredColumn
from app.core.types.kinds import Kind
from app.services.bodies.debezium_values import Unreadable, field_reader, row_fields, text_of

_MOST_DIGITS: Final = 38
_PLAIN: Final[Mapping[str, str]] = {
    "boolean": Kind.BOOLEAN,
    "int8": Kind.TINYINT,
    "int16": Kind.SMALLINT,
    "int32": Kind.INT,
    "int64": Kind.BIGINT,
    "float": Kind.FLOAT,
    "float32": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "float64": Kind.DOUBLE,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
}
_DIGITS: Final = re.compile("-?[0-9]{1,9}")
_INSTANT: Final = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
# Times with more than three digits are texts: TIME holds three.
_NAMED: Final[Mapping[str, str]] = {
    "io.debezium.time.Date": Kind.DATE,
    "org.apache.kafka.connect.data.Date": Kind.DATE,
    "io.debezium.time.IsoDate": Kind.DATE,
    "io.debezium.time.Timestamp": "TIMESTAMP(3)",
    "org.apache.kafka.connect.data.Timestamp": "TIMESTAMP(3)",
    "io.debezium.time.MicroTimestamp": "TIMESTAMP(6)",
    "io.debezium.time.IsoTimestamp": "TIMESTAMP(6)",
    "io.debezium.time.NanoTimestamp": "TIMESTAMP(9)",
    "io.debezium.time.ZonedTimestamp": _INSTANT,
    "io.debezium.time.Time": "TIME(3)",
    "org.apache.kafka.connect.data.Time": "TIME(3)",
    "io.debezium.time.MicroTime": Kind.STRING,
    "io.debezium.time.NanoTime": Kind.STRING,
    "io.debezium.data.VariableScaleDecimal": Kind.STRING,
}


def declared_columns(schema: object, side: str | None) -> dict[str, DeclaredColumn]:
    """Return the columns of a row whose types a schema declares; ``side`` is as that of ``debezium_values.readers``."""
    columns: dict[str, DeclaredColumn] = {}
    for field in row_fields(schema, side):
        data_type = _type(field)
        if data_type is not None and "field" in field:
            columns[str(field["field"])] = DeclaredColumn(data_type, _default(field))
    return columns


def _type(field: Mapping[str, Any]) -> str | None:
    """Return the type of a field in SQL; None if only the values show it."""
    name, kind = str(field.get("name")), str(field.get("type"))
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(field.get("parameters"))
    if name in _NAMED:
        return _NAMED[name]
    if kind == "array":
        inner = _inner(field.get("items"))
        return None if inner is None else f"ARRAY<{inner}>"
    if kind == "map":
        inner = _inner(field.get("values"))
        return None if inner is None else f"MAP<STRING, {inner}>"
    return _PLAIN.get(kind)


def _inner(schema: object) -> str | None:
    return _type(schema) if isinstance(schema, Mapping) else None


def _decimal(parameters: object) -> str:
    """Return a type that holds the decimal; STRING if no DECIMAL is wide enough."""
    known = parameters if isinstance(parameters, Mapping) else {}
    scale = _whole(known.get("scale"), 0)
    precision = _whole(known.get("connect.decimal.precision"), _MOST_DIGITS)
    return f"DECIMAL({precision}, {scale})" if 0 <= scale <= precision <= _MOST_DIGITS else Kind.STRING


def _whole(text: object, absent: int) -> int:
    return int(text) if isinstance(text, str | int) and _DIGITS.fullmatch(str(text)) else absent


def _default(field: Mapping[str, Any]) -> str | None:
    """Return the text of a field's default, as a column's DEFAULT has it; None for one that no column can hold, such as
    PostgreSQL's infinity.
    """
    sent, read = field.get("default"), field_reader(field)
    if field.get("type") == "bytes" and read is None:
        return None
    try:
        value = sent if read is None or sent is None else read(sent, None)
        if isinstance(value, Decimal):
            return text_of(value)
    except Unreadable:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None
