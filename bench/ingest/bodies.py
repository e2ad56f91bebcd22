"""Bodies with the same records in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.ingest.routes.order import COLUMNS
from bench.over_http.client import request


@dataclass(frozen=True)
class Body:
    """What a POST carries."""

    media_type: str
    content: bytes

    def post(self, path: str) -> bytes:
        """The request that carries it, as the client sends it."""
        return request("POST", path, f"Content-Type: {self.media_type}\r\n", self.content)


def rows_of(count: int) -> list[dict[str, Any]]:
    """Records with the keys from 0 on, as JSON has them."""
    return [
        {
            "id": n,
            "customer": f"c{n * 7919 % 999983}",
            "city": ("Oslo", "Rome", "Lyon")[n % 3],
            "status": "new",
            "qty": n % 100,
            "stock": n * 31,
            "price": n / 7,
            "weight": n / 13,
            "paid": f"{n % 9999}.25",
            "booked": f"2026-03-01T10:{n % 60:02}:00",
            "active": n % 2 == 0,
            "note": "some text here",
        }
        for n in range(count)
    ]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    inferred = pa.Table.from_pylist(rows)
    types = {"paid": pa.decimal128(10, 2), "booked": pa.timestamp("ms"), "qty": pa.int32()}
    return pa.table({name: inferred[name].cast(types.get(name, inferred[name].type)) for name in COLUMNS})


def _csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(COLUMNS))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _arrow(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def json_body(records: int) -> Body:
    """So many records as JSON."""
    return Body("application/json", json.dumps({"records": rows_of(records)}).encode())


def bodies(records: int) -> Mapping[str, Body]:
    """So many records, by the name of the format."""
    rows = rows_of(records)
    table = _table(rows)
    return {
        "JSON": json_body(records),
        "NDJSON": Body("application/x-ndjson", "\n".join(map(json.dumps, rows)).encode()),
        "CSV": Body("text/csv", _csv(rows)),
        "Arrow": Body("application/vnd.apache.arrow.stream", _arrow(table)),
        "Parquet": Body("application/vnd.apache.parquet", _parquet(table)),
    }


def event_body(records: int, tables: Sequence[str]) -> Body:
    """The same records as inserts of Debezium, in turn of each of the tables."""
    events = [
        {
            "before": None,
            "after": row,
            "source": {"connector": "postgresql", "db": "src", "schema": "bench", "table": name, "lsn": row["id"]},
            "op": "c",
            "ts_ms": 1_772_359_200_000,
        }
        for row, name in zip(rows_of(records), cycle(tables), strict=False)
    ]
    return Body("application/json", json.dumps(events).encode())
