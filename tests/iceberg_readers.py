"""Other engines that read a table by its Iceberg metadata: each gives the rows as Arrow's Python values, by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg
import polars
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from tests.delta_readers import Rows, plain

Reader = Callable[..., Rows]  # the metadata file, and a condition in SQL


def with_pyiceberg(metadata: str, where: str | None = None) -> Rows:
    scan = StaticTable.from_metadata(metadata).scan(**({} if where is None else {"row_filter": where}))
    return plain(scan.to_arrow())


def with_polars(metadata: str, where: str = "TRUE") -> Rows:
    return plain(
        polars.scan_iceberg(metadata, reader_override="native").filter(polars.sql_expr(where)).collect().to_arrow()
    )


def with_duckdb(metadata: str, where: str = "TRUE") -> Rows:
    """DuckDB's own extensions, which their wheels carry: nothing is fetched."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for extension in duckdb_extensions():
            connection.load_extension(extension)
        query = f"SELECT * FROM iceberg_scan(?) WHERE {where}"  # noqa: S608  # a test's own
        return plain(connection.execute(query, [metadata]).to_arrow_table())


@cache
def duckdb_extensions() -> tuple[str, ...]:
    """Where the wheels have them, in the order that they need each other in."""
    wheels: Mapping[str, Any] = {
        "httpfs": duckdb_extension_httpfs,
        "avro": duckdb_extension_avro,
        "iceberg": duckdb_extension_iceberg,
    }
    return tuple(
        str(next(Path(wheel.__file__).parent.rglob(f"{name}.duckdb_extension"))) for name, wheel in wheels.items()
    )


def by_pyiceberg(service: str, name: str) -> Rows:
    catalog = load_catalog("keyfold", type="rest", uri=f"{service}/iceberg")
    return plain(catalog.load_table(name).scan().to_arrow())


def by_duckdb(service: str, name: str) -> Rows:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for extension in duckdb_extensions():
            connection.load_extension(extension)
        options = f"TYPE iceberg, ENDPOINT '{service}/iceberg', AUTHORIZATION_TYPE 'none'"
        connection.execute(f"ATTACH 'keyfold' AS keyfold ({options})")
        return plain(connection.execute(f"SELECT * FROM keyfold.{name}").to_arrow_table())  # noqa: S608  # the same


OVER_HTTP: Mapping[str, Callable[[str, str], Rows]] = {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb}
"""Those that ask the catalog of the service at an address for a table by its name."""

READERS: Mapping[str, Reader] = {"pyiceberg": with_pyiceberg, "polars": with_polars, "duckdb": with_duckdb}
