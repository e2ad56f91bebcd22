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

Rows = list[dict[str, Any]]
Reader = Callable[[str], Rows]


def with_deltalake(folder: str) -> Rows:
    """DataFusion, by deltalake's query builder."""
    found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t")
    return _plain(found.read_all())


def with_polars(folder: str) -> Rows:
    return _plain(polars.scan_delta(folder).collect().to_arrow())


def with_duckdb(folder: str) -> Rows:
    """DuckDB's own extension, which its wheel carries: nothing is fetched."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.load_extension(duckdb_extension())
        return _plain(connection.execute("SELECT * FROM delta_scan(?)", [folder]).to_arrow_table())


@cache
def duckdb_extension() -> str:
    """Where the wheel has it."""
    [found] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    return str(found)


READERS: Mapping[str, Reader] = {"deltalake": with_deltalake, "polars": with_polars, "duckdb": with_duckdb}


def _plain(table: Any) -> Rows:
    import pyarrow as pa  # noqa: PLC0415  # deltalake answers arro3's tables

    read: Rows = pa.table(table).to_pylist()
    return read
