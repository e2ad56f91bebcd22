"""The schema of a published table in Delta's form: a type for every kind (decision 31)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

DeltaType = Callable[[DataType], Any]


def _map(key: DataType, value: DataType) -> Any:
    return {"type": "map", "keyType": delta_type(key), "valueType": delta_type(value), "valueContainsNull": True}


def _always(name: str) -> DeltaType:
    return lambda _: name


DELTA_TYPES: Mapping[Kind, DeltaType | None] = {
    Kind.BOOLEAN: _always("boolean"),
    Kind.TINYINT: _always("byte"),
    Kind.SMALLINT: _always("short"),
    Kind.INT: _always("integer"),
    Kind.BIGINT: _always("long"),
    Kind.FLOAT: _always("float"),
    Kind.DOUBLE: _always("double"),
    Kind.DECIMAL: lambda t: f"decimal({t.precision},{t.scale})",
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.STRING), _always("string")),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BYTES), _always("binary")),
    Kind.DATE: _always("date"),
    Kind.TIME: None,  # stored as milliseconds of the day, which every reader would take for a number
    Kind.TIMESTAMP: _always("timestamp_ntz"),
    Kind.TIMESTAMP_LTZ: _always("timestamp"),
    Kind.ARRAY: lambda t: {"type": "array", "elementType": delta_type(t.element_type), "containsNull": True},
    Kind.MULTISET: lambda t: _map(*t.map_types),
    Kind.MAP: lambda t: _map(*t.map_types),
    Kind.ROW: lambda t: _struct((field.name, field.type) for field in t.fields),
}
"""The type in a Delta schema by kind; None where Delta has none that shows what is stored."""


def delta_type(data_type: DataType) -> Any:
    """Return the type as a Delta schema has it. Raise ``ValueError`` if Delta has none, which
    ``PUBLICATION_CHECKS`` refuses.
    """
    of_kind = DELTA_TYPES[data_type.kind]
    if of_kind is None:
        raise ValueError(f"Delta has no type for {data_type.base_sql}")
    return of_kind(data_type)


def _struct(fields: Iterator[tuple[str, DataType]]) -> dict[str, Any]:
    # NOT NULL is a promise to writers; that a column may be null takes nothing from readers.
    members = [{"name": n, "type": delta_type(t), "nullable": True, "metadata": {}} for n, t in fields]
    return {"type": "struct", "fields": members}


def delta_schema(schema: TableSchema) -> dict[str, Any]:
    """Return the visible columns of a table that publishes, as Delta's ``schemaString`` says them."""
    return _struct((column.name, column.type) for column in schema.columns)
