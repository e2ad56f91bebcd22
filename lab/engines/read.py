"""Engines that have their own virtual environment: it answers each line of JSON with a file of pickled rows.

A line names the engine, and what is read: a query of Trino, or columns of a table of the Iceberg catalog (Daft,
DataFusion), of a folder with Iceberg's metadata (ClickHouse, Sail) or Delta's (Sail). Without columns, engines say
themselves how many rows there are. A row is a mapping of columns to Python's values: a ROW is a mapping too, a MAP a
list of pairs. The answer is a line with the count of rows, or with the engine's error.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import daft
import datafusion
import trino
from chdb import session
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
COUNT: Final = "rows"


def of_trino(wanted: Mapping[str, Any]) -> Rows:
    cursor = trino.dbapi.connect(host="127.0.0.1", port=wanted["port"], user="keyfold", timezone="UTC").cursor()
    cursor.execute(wanted["query"])
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, map(plain, row), strict=True)) for row in cursor.fetchall()]


def loaded(wanted: Mapping[str, Any]) -> Table:
    catalog = load_catalog("keyfold", type="rest", uri=f"{wanted['service']}/iceberg", token=wanted["token"])
    return catalog.load_table(("lake", wanted["table"]))


def of_daft(wanted: Mapping[str, Any]) -> Rows:
    read = daft.read_iceberg(loaded(wanted))
    if not wanted["columns"]:
        return [{COUNT: read.count_rows()}]
    rows: Rows = read.select(*wanted["columns"]).to_arrow().to_pylist()
    return rows


def of_clickhouse(wanted: Mapping[str, Any]) -> Rows:
    names = ", ".join(f"`{name}`" for name in wanted["columns"]) or f"count() AS {COUNT}"
    query = f"SELECT {names} FROM icebergLocal('{wanted['folder']}')"  # noqa: S608  # our own
    rows: Rows = clickhouse.query(query, "ArrowTable").to_pylist()
    return rows


def of_datafusion(wanted: Mapping[str, Any]) -> Rows:
    table = loaded(wanted)
    # pyiceberg-core 0.11 takes texts alone, and PyIceberg has the way of signing in among them.
    table.io.properties = {name: value for name, value in table.io.properties.items() if isinstance(value, str)}
    context = datafusion.SessionContext()
    context.register_table("read", table)
    names = ", ".join(f'"{name}"' for name in wanted["columns"]) or f"count(*) AS {COUNT}"
    rows: Rows = context.sql(f"SELECT {names} FROM read").to_arrow_table().to_pylist()  # noqa: S608  # our own
    return rows


def of_sail(wanted: Mapping[str, Any]) -> Rows:
    read = sail_session().read.format(wanted["format"]).load(wanted["folder"])
    if not wanted["columns"]:
        return [{COUNT: read.count()}]
    rows: Rows = read.select(*wanted["columns"]).toArrow().to_pylist()
    return rows


@cache
def sail_session() -> SparkSession:
    sail.start(background=True)
    _, port = sail.listening_address
    return SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()


def plain(value: Any) -> Any:
    if isinstance(value, trino.types.NamedRowTuple):
        return {name: plain(one) for name, one in zip(value.__annotations__["names"], value, strict=True)}
    if isinstance(value, dict):
        return [(plain(key), plain(one)) for key, one in value.items()]
    return [plain(one) for one in value] if isinstance(value, list) else value


ENGINES: Final[Mapping[str, Callable[[Mapping[str, Any]], Rows]]] = {
    "trino": of_trino,
    "daft": of_daft,
    "clickhouse": of_clickhouse,
    "datafusion": of_datafusion,
    "sail": of_sail,
}
clickhouse = session.Session()
sail = SparkConnectServer("127.0.0.1", 0)


def main() -> None:
    to = Path(sys.argv[1])
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            rows = ENGINES[wanted["engine"]](wanted)
            to.write_bytes(pickle.dumps(rows))
            answer: dict[str, Any] = {"rows": len(rows)}
        except Exception as error:  # it is compared with what is expected
            answer = {"error": str(error)}
        print(f"answer: {json.dumps(answer)}", flush=True)  # noqa: T201


main()
