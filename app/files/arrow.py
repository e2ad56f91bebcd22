"""Arrow types and schemas of staging files and runs; Parquet field ids are column ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from app.core.table.named_columns import named_words
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN, TOKEN_COLUMN
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.field_ids import OfColumn, OfHidden, Place
from app.core.types.kinds import Kind

FOUND_COLUMN = "_kf_found"  # no column of a table is called so
_FIELD_ID = b"PARQUET:field_id"


def _types(time: pa.DataType) -> Mapping[Kind, Callable[[DataType], pa.DataType]]:
    def inner(data_type: DataType) -> pa.DataType:
        return of_kinds[data_type.kind](data_type)

    of_kinds: Mapping[Kind, Callable[[DataType], pa.DataType]] = {
        Kind.BOOLEAN: lambda _: pa.bool_(),
        Kind.TINYINT: lambda _: pa.int8(),
        Kind.SMALLINT: lambda _: pa.int16(),
        Kind.INT: lambda _: pa.int32(),
        Kind.BIGINT: lambda _: pa.int64(),
        Kind.FLOAT: lambda _: pa.float32(),
        Kind.DOUBLE: lambda _: pa.float64(),
        Kind.DECIMAL: lambda t: pa.decimal128(t.precision, t.scale),
        **{kind: lambda _: pa.string() for kind in (Kind.CHAR, Kind.VARCHAR, Kind.STRING)},
        **{kind: lambda _: pa.binary() for kind in (Kind.BINARY, Kind.VARBINARY, Kind.BYTES)},
        Kind.DATE: lambda _: pa.date32(),
        Kind.TIME: lambda _: time,
        Kind.TIMESTAMP: lambda _: pa.timestamp("us"),
        Kind.TIMESTAMP_LTZ: lambda _: pa.timestamp("us", "UTC"),
        Kind.ARRAY: lambda t: pa.list_(inner(t.element_type)),
        Kind.MULTISET: lambda t: pa.map_(inner(t.element_type), pa.int32()),
        Kind.MAP: lambda t: pa.map_(inner(t.key_type), inner(t.element_type)),
        Kind.ROW: lambda t: pa.struct([pa.field(field.name, inner(field.type)) for field in t.fields]),
    }
    return of_kinds


ARROW_TYPES = _types(time=pa.int32())  # Spark has no type of times of a day
_ANSWERED = _types(time=pa.time32("ms"))


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that holds ``data_type`` as Spark reads and writes it."""
    return ARROW_TYPES[data_type.kind](data_type)


def answered_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of answers in Arrow and Parquet. It differs from that of files in TIME, which is a time here
    and milliseconds of the day there.
    """
    return pa.schema([pa.field(column.name, _ANSWERED[column.type.kind](column.type)) for column in columns])


def arrow_field(column: Column) -> pa.Field:
    """Return a table's column with its id as Parquet field id, and ids of all that is inside it."""
    return _field(column.name, column.type, OfColumn(column.id))


def hidden_field(name: str, data_type: DataType) -> pa.Field:
    """Return a column that no table declares, with Parquet field ids that follow from its name."""
    return _field(name, data_type, OfHidden(name))


def staging_schema(schema: TableSchema) -> pa.Schema:
    """Return the schema of staged records: the columns, the row kind, the position in the batch, and, if the table
    keeps them, the names of the columns that a record has.
    """
    known: pa.Schema | None = schema.worked_out.get("staging schema")
    return known or schema.worked_out.setdefault("staging schema", _staging_schema(schema))


def staged_file_schema(schema: TableSchema) -> pa.Schema:
    """Return the schema of a staging file: the token, then the staged records. Older releases had no token."""
    known: pa.Schema | None = schema.worked_out.get("staged file schema")
    if known is None:
        token = hidden_field(TOKEN_COLUMN, DataType(Kind.BIGINT))
        known = schema.worked_out.setdefault("staged file schema", pa.schema([token, *staging_schema(schema)]))
    return known


def _staging_schema(schema: TableSchema) -> pa.Schema:
    hidden = [hidden_field(KIND_COLUMN, DataType(Kind.TINYINT)), hidden_field(POSITION_COLUMN, DataType(Kind.INT))]
    hidden += [hidden_field(word, DataType(Kind.BIGINT)) for word in named_words(schema)]
    return pa.schema([*map(arrow_field, schema.columns), *hidden])


def _field(name: str, data_type: DataType, place: Place, *, nullable: bool = True) -> pa.Field:
    made = _IDENTIFIED.get(data_type.kind)
    inner = arrow_type(data_type) if made is None else made(data_type, place)
    return pa.field(name, inner, nullable, metadata={_FIELD_ID: str(place.id).encode()})


def _list_type(data_type: DataType, place: Place) -> pa.DataType:
    return pa.list_(_field("item", data_type.element_type, place.inside("element")))


def _map_type(data_type: DataType, place: Place) -> pa.DataType:
    key, value = data_type.map_types
    return pa.map_(
        _field("key", key, place.inside("key"), nullable=False), _field("value", value, place.inside("value"))
    )


def _struct_type(data_type: DataType, place: Place) -> pa.DataType:
    return pa.struct([_field(field.name, field.type, place.member(field)) for field in data_type.fields])


_IDENTIFIED: Mapping[Kind, Callable[[DataType, Place], pa.DataType]] = {
    Kind.ARRAY: _list_type,
    Kind.MULTISET: _map_type,
    Kind.MAP: _map_type,
    Kind.ROW: _struct_type,
}


def field_id(field: pa.Field) -> int | None:
    """Return the Parquet field id of a field that was read, None if it has none."""
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)
