"""Small pieces of Spark SQL text."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.types import DataType, quote, walk_types


def literal(text: str) -> str:
    """``text`` as a string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def member(value: str, name: str) -> str:
    """Field ``name`` of the struct ``value``."""
    return f"{value}.{quote(name)}"


def members(value: str, names: Sequence[str]) -> str:
    """The fields ``names`` of the struct ``value`` as one comparable value."""
    return f"struct({', '.join(member(value, name) for name in names)})"


def comparable(data_type: DataType, value: str, depth: int = 0) -> str:
    """``value`` in a form that ``<=>`` compares: Spark has no equality of maps, so they become sorted entries."""
    if not any(inner.kind in ("MAP", "MULTISET") for inner in walk_types(data_type)):
        return value
    variable = f"c{depth}"
    if data_type.kind == "ARRAY":
        return f"transform({value}, {variable} -> {comparable(data_type.element_type, variable, depth + 1)})"
    if data_type.kind == "ROW":
        fields = (comparable(field.type, member(value, field.name), depth + 1) for field in data_type.fields)
        return f"IF({value} IS NULL, NULL, struct({', '.join(fields)}))"
    element = data_type.element_type if data_type.kind == "MAP" else DataType("INT")
    entry = f"struct({variable}.key, {comparable(element, f'{variable}.value', depth + 1)})"
    return f"array_sort(transform(map_entries({value}), {variable} -> {entry}))"
