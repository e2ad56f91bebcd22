"""BIGINT as text in answers: JavaScript reads no whole number beyond 2^53 without loss (docs/decisions/0032).

Only BIGINT is that wide; DECIMAL is text anyway. A row's finished JSON stays the one with numbers, and is read for the
other form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from app.core.plan.records.answers import to_json
from app.core.table.options.entries import Integers
from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

Change = Callable[[Any], Any]


def integers_of(schema: TableSchema, requested: Integers | None) -> Integers:
    """Return how an answer spells BIGINT: as the request says, or else the table's ``lookup.integers``."""
    spelling: Integers = requested or schema.parsed["lookup.integers"]
    return spelling


@lru_cache(maxsize=4096)
def as_text(data_type: DataType) -> Change | None:
    """Return a function from a value's JSON form to the one with BIGINT as text; None if no BIGINT is inside."""
    if data_type.kind is Kind.BIGINT:
        return lambda shown: None if shown is None else str(shown)
    if not any(map(as_text, data_type.nested)):
        return None
    change = _INSIDE[data_type.kind](data_type)
    return lambda shown: None if shown is None else change(shown)


def _same(shown: Any) -> Any:
    return shown


def _array(data_type: DataType) -> Change:
    element = as_text(data_type.element_type) or _same
    return lambda shown: [element(item) for item in shown]


def _map(data_type: DataType) -> Change:
    key, value = (as_text(inner) or _same for inner in data_type.map_types)
    if data_type.map_types[0].legal_key:  # then it is an object, whose names are texts
        return lambda shown: {name: value(item) for name, item in shown.items()}
    return lambda shown: [[key(one), value(other)] for one, other in shown]


def _row(data_type: DataType) -> Change:
    fields = {field.name: as_text(field.type) or _same for field in data_type.fields}
    return lambda shown: {name: change(shown[name]) for name, change in fields.items()}


_INSIDE: Mapping[Kind, Callable[[DataType], Change]] = {
    Kind.ARRAY: _array,
    Kind.MULTISET: _map,
    Kind.MAP: _map,
    Kind.ROW: _row,
}


def encoder_of(data_type: DataType, integers: Integers) -> Change:
    """Return a function from a value of the type (or None) to its JSON form."""
    change = as_text(data_type) if integers is Integers.TEXT else None
    encode = data_type.encoder
    return encode if change is None else lambda value: change(encode(value))


def row_as_text(schema: TableSchema, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's JSON object, of some columns, with BIGINT as text."""
    return {name: (as_text(schema.by_name[name].type) or _same)(shown) for name, shown in row.items()}


def body_as_text(schema: TableSchema, body: bytes) -> bytes:
    """Return the same of a row's finished JSON."""
    if not any(as_text(column.type) for column in schema.columns):
        return body
    return to_json(row_as_text(schema, json.loads(body)))
