"""Arrow types and schemas of staging files and runs; Parquet field ids are column ids (design §5)."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from app.core.table.named_columns import named_words
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

FOUND_COLUMN = "_kf_found"  # no column of a table is called so
_FIELD_ID = b"PARQUET:field_id"

ARROW_TYPES: Mapping[Kind, Callable[[DataType], pa.DataType]] = {
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
    Kind.TIME: lambda _: pa.int32(),
    Kind.TIMESTAMP: lambda _: pa.timestamp("us"),
    Kind.TIMESTAMP_LTZ: lambda _: pa.timestamp("us", "UTC"),
    Kind.ARRAY: lambda t: pa.list_(arrow_type(t.element_type)),
    Kind.MULTISET: lambda t: pa.map_(arrow_type(t.element_type), pa.int32()),
    Kind.MAP: lambda t: pa.map_(arrow_type(t.key_type), arrow_type(t.element_type)),
    Kind.ROW: lambda t: pa.struct([pa.field(field.name, arrow_type(field.type)) for field in t.fields]),
}


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type that holds ``data_type`` as Spark reads and writes it."""
    return ARROW_TYPES[data_type.kind](data_type)


def arrow_field(column: Column) -> pa.Field:
    """A table's column with its id as Parquet field id."""
    return pa.field(column.name, arrow_type(column.type), metadata={_FIELD_ID: str(column.id).encode()})


def staging_schema(schema: TableSchema) -> pa.Schema:
    """What a staging file holds: the columns, the row kind, the position in the batch; which columns a record names,
    where the table's records tell.
    """
    own = [pa.field(KIND_COLUMN, pa.int8()), pa.field(POSITION_COLUMN, pa.int32())]
    own += [pa.field(word, pa.int64()) for word in named_words(schema)]
    return pa.schema([*map(arrow_field, schema.columns), *own])


def rows_stream(columns: Sequence[Column], found: Sequence[bool], values: Mapping[str, Sequence[Any]]) -> bytes:
    """An Arrow stream of a row for each key that was looked up: whether it was ``found``, then ``values`` by column."""
    fields = [pa.field(FOUND_COLUMN, pa.bool_()), *(pa.field(one.name, arrow_type(one.type)) for one in columns)]
    arrays = [pa.array(found, pa.bool_()), *(pa.array(values[one.name], arrow_type(one.type)) for one in columns)]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema(fields)) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=pa.schema(fields)))
    return sink.getvalue()


def field_id(field: pa.Field) -> int | None:
    """The Parquet field id of a field that was read, None if it has none."""
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)
