"""The schema of a published table in Iceberg's form: a type for every kind, an id at every place (decision 53)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType, walk_types
from app.core.types.field_ids import OfColumn, Place
from app.core.types.kinds import Kind

IcebergType = Callable[[DataType, Place], Any]


def _always(name: str) -> IcebergType:
    return lambda _, __: name


def _list(data_type: DataType, place: Place) -> Any:
    element = place.inside("element")
    return {
        "type": "list",
        "element-id": element.id,
        "element": iceberg_type(data_type.element_type, element),
        "element-required": False,
    }


def _map(data_type: DataType, place: Place) -> Any:
    key, value = place.inside("key"), place.inside("value")
    key_type, value_type = data_type.map_types
    return {
        "type": "map",
        "key-id": key.id,
        "key": iceberg_type(key_type, key),
        "value-id": value.id,
        "value": iceberg_type(value_type, value),
        "value-required": False,
    }


def _row(data_type: DataType, place: Place) -> Any:
    return _struct((field.name, field.type, place.member(field)) for field in data_type.fields)


ICEBERG_TYPES: Mapping[Kind, IcebergType | None] = {
    Kind.BOOLEAN: _always("boolean"),
    **dict.fromkeys((Kind.TINYINT, Kind.SMALLINT, Kind.INT), _always("int")),
    Kind.BIGINT: _always("long"),
    Kind.FLOAT: _always("float"),
    Kind.DOUBLE: _always("double"),
    Kind.DECIMAL: lambda t, _: f"decimal({t.precision}, {t.scale})",
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.STRING), _always("string")),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BYTES), _always("binary")),
    Kind.DATE: _always("date"),
    Kind.TIME: None,  # stored as milliseconds of the day, Iceberg's are microseconds
    Kind.TIMESTAMP: _always("timestamp"),
    Kind.TIMESTAMP_LTZ: _always("timestamptz"),
    Kind.ARRAY: _list,
    Kind.MULTISET: _map,
    Kind.MAP: _map,
    Kind.ROW: _row,
}
"""The type in an Iceberg schema by kind; None where Iceberg has none that shows what is stored."""


def iceberg_type(data_type: DataType, place: Place) -> Any:
    """Return the type at ``place`` as an Iceberg schema has it. Raise ``ValueError`` if Iceberg has none;
    ``PUBLICATION_CHECKS`` refuses those.
    """
    of_kind = ICEBERG_TYPES[data_type.kind]
    if of_kind is None:
        raise ValueError(f"Iceberg has no type for {data_type.base_sql}")
    return of_kind(data_type, place)


def _struct(fields: Iterable[tuple[str, DataType, Place]]) -> dict[str, Any]:
    # NOT NULL is a promise to writers, as in ``delta_schema``.
    members = [{"id": p.id, "name": n, "required": False, "type": iceberg_type(t, p)} for n, t, p in fields]
    return {"type": "struct", "fields": members}


def iceberg_schema(schema: TableSchema) -> dict[str, Any]:
    """Return the visible columns of a table as Iceberg's metadata says them, without those that it has no type for: a
    run may have one that was dropped before the table was published.
    """
    columns = (column for column in schema.columns if has_type(column.type))
    return _struct((column.name, column.type, OfColumn(column.id)) for column in columns)


def has_type(data_type: DataType) -> bool:
    """Return whether Iceberg has a type for all of it."""
    return all(ICEBERG_TYPES[inside.kind] is not None for inside in walk_types(data_type))
