"""Columns as JSON Schema: the values of answers and records, with an example of each type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.plan.records.integers import as_text
from app.core.table.options.entries import Integers
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind

Json = dict[str, Any]


@dataclass(frozen=True)
class Typed:
    """The JSON form of a type family: functions from a type and the spelling of BIGINT to
    ``schema`` and ``example``.
    """

    schema: Callable[[DataType, Integers], Json]
    example: Callable[[DataType, Integers], Any]


def _integer(data_type: DataType, integers: Integers) -> Json:
    if data_type.kind is not Kind.BIGINT:
        return {"type": "integer", "format": "int32"}
    if integers is Integers.TEXT:
        return {"type": "string", "pattern": "^-?[0-9]+$"}
    return {"type": "integer", "format": "int64"}


def _integer_example(data_type: DataType, integers: Integers) -> Any:
    return "7" if integers is Integers.TEXT and as_text(data_type) else 7


def _array(data_type: DataType, integers: Integers) -> Json:
    return {"type": "array", "items": schema_of(data_type.element_type, integers)}


def _map(data_type: DataType, integers: Integers) -> Json:
    key, value = data_type.map_types
    if key.legal_key:
        return {"type": "object", "additionalProperties": schema_of(value, integers)}
    pair = {"anyOf": [schema_of(key, integers), schema_of(value, integers)]}
    return {"type": "array", "items": {"type": "array", "items": pair, "minItems": 2, "maxItems": 2}}


def _map_example(data_type: DataType, integers: Integers) -> Any:
    key, value = (example_of(member_type, integers) for member_type in data_type.map_types)
    return {str(key): value} if data_type.map_types[0].legal_key else [[key, value]]


def _row(data_type: DataType, integers: Integers) -> Json:
    fields = {field.name: schema_of(field.type, integers) for field in data_type.fields}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _always(schema: Json, example: Any) -> Typed:
    return Typed(lambda *_: dict(schema), lambda *_: example)


_TEXT: Json = {"type": "string"}
_FLOATING: Json = {"anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]}
TYPED: Mapping[Family, Typed] = {
    Family.BOOLEAN: _always({"type": "boolean"}, True),
    Family.INTEGER: Typed(_integer, _integer_example),
    Family.FLOATING: _always(_FLOATING, 1.5),
    Family.DECIMAL: _always(_TEXT, "5"),
    Family.TEXT: _always(_TEXT, "a"),
    Family.BINARY: _always({"type": "string", "contentEncoding": "base64"}, "a2V5"),
    Family.DATE: _always(_TEXT, "2026-03-01"),
    Family.TIME: _always(_TEXT, "10:00:00"),
    Family.TIMESTAMP: Typed(
        lambda *_: dict(_TEXT), lambda data_type, _: _MOMENT + "Z" * (data_type.kind is Kind.TIMESTAMP_LTZ)
    ),
    Family.ARRAY: Typed(_array, lambda data_type, integers: [example_of(data_type.element_type, integers)]),
    Family.MAP: Typed(_map, _map_example),
    Family.ROW: Typed(
        _row, lambda data_type, integers: {f.name: example_of(f.type, integers) for f in data_type.fields}
    ),
}
_MOMENT = "2026-03-01T10:00:00"


def schema_of(data_type: DataType, integers: Integers) -> Json:
    """Return the schema of the type's values, including null if it is nullable."""
    schema = TYPED[data_type.family].schema(data_type, integers)
    return {"anyOf": [schema, {"type": "null"}]} if data_type.nullable else schema


def example_of(data_type: DataType, integers: Integers) -> Any:
    """Return an example value of the type, as in answers and records."""
    return TYPED[data_type.family].example(data_type, integers)


def columns_schema(columns: Sequence[Column], integers: Integers) -> Json:
    """Return an object of some columns, each of which may be left out."""
    return {
        "type": "object",
        "properties": {column.name: _described(column, schema_of(column.type, integers)) for column in columns},
        "additionalProperties": False,
        "examples": [{column.name: example_of(column.type, integers) for column in columns}],
    }


def _described(column: Column, schema: Json) -> Json:
    words = column.type.sql if column.description is None else f"{column.type.sql}: {column.description}"
    return {**schema, "description": words}
