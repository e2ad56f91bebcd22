"""Engines that have their own virtual environment: it answers each line of JSON with a file of pickled rows.

A line names the engine, and what is read: a query of Trino, or columns of a table of the Iceberg catalog (Daft), of a
folder with Iceberg's metadata (ClickHouse). A row is a mapping of columns to Python's values: a ROW is a mapping too, a
MAP a list of pairs. The answer is a line with the count of rows, or with the engine's error.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import daft
import trino
from chdb import session
from pyiceberg.catalog import load_catalog

Rows = list[dict[str, Any]]


def of_trino(wanted: Mapping[str, Any]) -> Rows:
    cursor = trino.dbapi.connect(host="127.0.0.1", port=wanted["port"], user="keyfold", timezone="UTC").cursor()
    cursor.execute(wanted["query"])
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, map(plain, row), strict=True)) for row in cursor.fetchall()]


def of_daft(wanted: Mapping[str, Any]) -> Rows:
    catalog = load_catalog("keyfold", type="rest", uri=f"{wanted['service']}/iceberg", token=wanted["token"])
    read = daft.read_iceberg(catalog.load_table(("lake", wanted["table"])))
    rows: Rows = read.select(*wanted["columns"]).to_arrow().to_pylist()
    return rows


def of_clickhouse(wanted: Mapping[str, Any]) -> Rows:
    names = ", ".join(f"`{name}`" for name in wanted["columns"])
    query = f"SELECT {names} FROM icebergLocal('{wanted['folder']}')"  # noqa: S608  # our own
    rows: Rows = clickhouse.query(query, "ArrowTable").to_pylist()
    return rows


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
}
clickhouse = session.Session()


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
