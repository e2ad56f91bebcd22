"""The tables of the guides for SQL Server and Oracle take what Debezium's documents say that it sends of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from tests.api.conftest import DATABASES, TABLES

GUIDE = (Path(__file__).parents[4] / "docs" / "cdc.md").read_text()
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def ddl(database: str, columns: str) -> str:
    """The guide's CREATE TABLE, with more columns."""
    found = re.search(rf"\n## {database}\n.*?```sql\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1].replace(" PRIMARY KEY", f" {columns} PRIMARY KEY", 1)


def event(fields: list[dict[str, Any]], row: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    halves = [{"type": "struct", "fields": fields, "field": half, "optional": True} for half in ("before", "after")]
    payload = {"op": "c", "before": None, "after": row, "source": source}
    return {"schema": {"type": "struct", "fields": halves}, "payload": payload}


def field(of: str, name: str, meaning: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": of, "name": meaning, "field": name, "optional": True, **more}


def follow(shop: TestClient, statement: str, sent: dict[str, Any], key: int) -> Any:
    shop.post(f"{TABLES}:fromDdl", json={"ddl": statement}).raise_for_status()
    for _ in range(2):
        answer = shop.post(f"{DATABASES}/shop/batches", params={"format": "debezium-json"}, json=sent)
        assert answer.status_code == 202, answer.text
    return shop.get(f"{TABLES}/orders/rows/{key}").json()


def test_sql_server(shop: TestClient) -> None:
    fields = [
        field("int64", "id"),
        field("string", "status"),
        field("bytes", "paid", DECIMAL, parameters={"scale": "4", "connect.decimal.precision": "19"}),
        field("int64", "at", "io.debezium.time.NanoTimestamp"),
        field("int64", "t", "io.debezium.time.NanoTime"),
        field("string", "z", "io.debezium.time.ZonedTimestamp"),
        field("bytes", "rv"),
    ]
    row = {"id": 1, "status": None, "paid": "AMNQ", "at": 1704070923123456700, "t": 3600123000000}
    row |= {"z": "2024-01-01T01:02:03.1234567+02:00", "rv": "AAAAAAAAB9E="}
    source = {"connector": "sqlserver", "db": "crm", "schema": "dbo", "table": "orders"}
    source |= {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1}
    statement = ddl("SQL Server", "at TIMESTAMP(6), t TIME(3), z TIMESTAMP_LTZ(6), rv BYTES,")
    assert follow(shop, statement, event(fields, row, source), 1) == {
        "id": 1,
        "status": None,
        "paid": "5.0000",
        "lsn": "00000027:00000758:0005 00000027:00000758:0003 0000000001",
        "at": "2024-01-01T01:02:03.123456",
        "t": "01:00:00.123",
        "z": "2023-12-31T23:02:03.123456Z",
        "rv": "AAAAAAAAB9E=",
    }


def test_oracle(shop: TestClient) -> None:
    parts = [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ]
    fields = [
        field("int64", "ID"),
        field("string", "STATUS"),
        field("bytes", "PAID", DECIMAL, parameters={"scale": "2", "connect.decimal.precision": "10"}),
        field("struct", "NUM", "io.debezium.data.VariableScaleDecimal", fields=parts),
        field("int64", "DAY", "io.debezium.time.Timestamp"),
    ]
    row = {"ID": 1, "STATUS": "new", "PAID": "AMNQ", "NUM": {"scale": 3, "value": "MDk="}, "DAY": 1704070923000}
    source = {"connector": "oracle", "db": "ORCL", "schema": "INVENTORY", "table": "ORDERS", "scn": "2868546"}
    statement = ddl("Oracle", "NUM STRING, DAY TIMESTAMP(0),")
    assert follow(shop, statement, event(fields, row, source), 1) == {
        "ID": 1,
        "STATUS": "new",
        "PAID": "500.00",
        "scn": 2868546,
        "NUM": "12.345",
        "DAY": "2024-01-01T01:02:03",
    }
