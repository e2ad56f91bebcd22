"""Values of a column whose type was changed, as values of the new type (docs/decisions/0007).

A type changes to one that holds every value of the old one in the same order (``app.core.alter.actions``), so every
conversion is exact. Fields of a ROW are found by id: what was added is null, what was dropped is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from app.core.types.datatype import DataType, Field
from app.core.types.kinds import Kind


@lru_cache(maxsize=4096)
def same_type(old: DataType, new: DataType) -> bool:
    """Return whether values of ``old`` are values of ``new`` as they are stored: comments and NOT NULL are not."""
    return stored_type(old) == stored_type(new)


def stored_type(data_type: DataType) -> DataType:
    """Return the type as values are stored: without comments and NOT NULL."""
    return replace(
        data_type,
        nullable=True,
        key=None if data_type.key is None else stored_type(data_type.key),
        element=None if data_type.element is None else stored_type(data_type.element),
        fields=tuple(Field(field.id, field.name, stored_type(field.type)) for field in data_type.fields),
    )


def widened(value: Any, old: DataType, new: DataType) -> Any:
    """Return a value of ``old`` as one of ``new``; maps are lists of pairs."""
    if value is None or same_type(old, new):
        return value
    convert = NESTED.get(new.kind)
    if convert is not None:
        return convert(value, old, new)
    return new.entry.widened(value, new)


def _row(value: Mapping[str, Any], old: DataType, new: DataType) -> dict[str, Any]:
    before = {field.id: field for field in old.fields}
    return {
        field.name: widened(value.get(before[field.id].name), before[field.id].type, field.type)
        if field.id in before
        else None
        for field in new.fields
    }


def _map(value: Any, old: DataType, new: DataType) -> list[tuple[Any, Any]]:
    return [(widened(k, old.key_type, new.key_type), widened(v, old.element_type, new.element_type)) for k, v in value]


NESTED: Mapping[Kind, Callable[[Any, DataType, DataType], Any]] = {
    Kind.ROW: _row,
    Kind.ARRAY: lambda value, old, new: [widened(element, old.element_type, new.element_type) for element in value],
    Kind.MAP: _map,
    Kind.MULTISET: lambda value, old, new: [(widened(k, old.element_type, new.element_type), n) for k, n in value],
}
