"""Other engines that read a table by its Delta log: each gives the rows as Arrow's Python values, by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars
from deltalake import DeltaTable, QueryBuilder

from app.core.plan.records.answers import row_json
from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

Rows = list[dict[str, Any]]
Reader = Callable[..., Rows]  # the table's folder, and a condition in SQL


def with_deltalake(folder: str, where: str = "TRUE") -> Rows:
    """DataFusion, by deltalake's query builder."""
    found = QueryBuilder().register("t", DeltaTable(folder)).execute(f"SELECT * FROM t WHERE {where}")  # noqa: S608  # a test's own
    return plain(found.read_all())


def with_polars(folder: str, where: str = "TRUE") -> Rows:
    return plain(polars.scan_delta(folder).filter(polars.sql_expr(where)).collect().to_arrow())


def with_duckdb(folder: str, where: str = "TRUE") -> Rows:
    """DuckDB's own extension, which its wheel carries: nothing is fetched."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.load_extension(duckdb_extension())
        return plain(connection.execute(f"SELECT * FROM delta_scan(?) WHERE {where}", [folder]).to_arrow_table())  # noqa: S608  # the same


@cache
def duckdb_extension() -> str:
    """Where the wheel has it."""
    [found] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    return str(found)


READERS: Mapping[str, Reader] = {"deltalake": with_deltalake, "polars": with_polars, "duckdb": with_duckdb}


def plain(table: Any) -> Rows:
    """Rows of whatever speaks Arrow."""
    import pyarrow as pa  # noqa: PLC0415  # deltalake answers arro3's tables

    read: Rows = pa.table(table).to_pylist()
    return read


def as_answered(schema: TableSchema, rows: Rows) -> list[bytes]:
    """The rows as the service answers them, in the order of their bytes; another column than the table's is a fault."""
    for row in rows:
        assert list(row) == [column.name for column in schema.columns]
    return sorted(
        row_json(schema, {column.name: _value(row[column.name], column.type) for column in schema.columns})
        for row in rows
    )


def _value(value: Any, data_type: DataType) -> Any:
    """Maps as lists of pairs, whatever the engine makes of them."""
    if value is None:
        return None
    if data_type.kind is Kind.ARRAY:
        return [_value(item, data_type.element_type) for item in value]
    if data_type.kind is Kind.ROW:
        return {field.name: _value(value[field.name], field.type) for field in data_type.fields}
    if data_type.kind in (Kind.MAP, Kind.MULTISET):
        key, element = data_type.map_types
        pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in value]
        return [(_value(k, key), _value(v, element)) for k, v in pairs]
    return value
