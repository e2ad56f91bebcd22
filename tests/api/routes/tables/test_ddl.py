"""Tables from SQL over HTTP: all or none, every fault, what is told of each, and the statement of a table."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, TABLES

FROM_DDL = f"{TABLES}:fromDdl"
ORDERS = "CREATE TABLE orders (id BIGINT, n INT, PRIMARY KEY (id) NOT ENFORCED)"
PARTS = "CREATE TABLE IF NOT EXISTS parts (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '2')"


def post(client: TestClient, ddl: str, *, status: int = 200, query: str = "", **members: Any) -> dict[str, Any]:
    answer = client.post(f"{FROM_DDL}{query}", json={"ddl": ddl, **members})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def names(client: TestClient) -> list[str]:
    return list(client.get(TABLES).json()["tables"])


def test_the_tables_of_all_statements_are_made_and_shown(shop: TestClient) -> None:
    made = post(shop, f"{ORDERS};\n{PARTS};")
    assert made["dialect"] == "flink"
    assert [(table["name"], table["created"]) for table in made["tables"]] == [("orders", True), ("parts", True)]
    for table in made["tables"]:
        reported = {name: value for name, value in table.items() if name not in ("warnings", "created")}
        assert shop.get(f"{TABLES}/{table['name']}").json() == reported
    accepted = shop.post(f"{TABLES}/orders/batches", json={"records": [{"id": 1, "n": 2}]})
    assert accepted.status_code == 202


def test_what_is_left_out_and_what_surprises_is_warned_of(shop: TestClient) -> None:
    made = post(shop, f"{ORDERS[:-1]}, twice AS n * 2) WITH ('merge-engine' = 'partial-update', 'manifest.x' = 'y')")
    [table] = made["tables"]
    codes = [warning["code"] for warning in table["warnings"]]
    assert codes[0] == "clause_left_out"
    assert "option_without_effect" in codes
    assert [field["name"] for field in table["schema"]["fields"]] == ["id", "n"]


def test_of_statements_of_which_one_is_at_fault_no_table_is_made(shop: TestClient) -> None:
    statements = [
        ORDERS,
        "CREATE TABLE `a/b` (id INT,\n n STRNG, PRIMARY KEY (id) NOT ENFORCED)",
        "CREATE TABLE c (id INT,\n PRIMARY KEY (ident) NOT ENFORCED) WITH ('merge-engine' = 'nonsense')",
    ]
    refused = post(shop, ";\n".join(statements), status=400)
    assert [(fault["pointer"], fault["code"]) for fault in refused["errors"]] == [("/ddl", "unknown_type")]
    refused = post(shop, ";\n".join(statements).replace("STRNG", "STRING"), status=400)
    places = [(fault["code"], fault["detail"].split(":")[0]) for fault in refused["errors"]]
    assert places == [
        ("illegal_name", "line 2, column 14"),
        ("unknown_column", "line 5, column 15"),
        ("illegal_option_value", "line 5, column 42"),
    ]
    assert refused["message"].endswith("^")
    assert names(shop) == []


def test_if_one_of_the_tables_exists_already_none_is_made(shop: TestClient) -> None:
    post(shop, PARTS)
    again = post(shop, f"{ORDERS}; {PARTS}")
    assert [(table["name"], table["created"]) for table in again["tables"]] == [("orders", True), ("parts", False)]
    assert again["tables"][1]["schema"]["options"] == {"bucket": "2"}
    refused = post(shop, f"{ORDERS.replace('orders', 'more')}; {ORDERS}", status=409)
    assert refused["errorCode"] == "table_already_exists"
    assert names(shop) == ["orders", "parts"]


def test_a_table_named_twice_or_in_another_database_is_refused(shop: TestClient) -> None:
    refused = post(shop, f"{ORDERS};\n{ORDERS};\n{ORDERS};\n{PARTS.replace('parts', 'other.parts')}", status=400)
    reported = [(fault["code"], fault["detail"].split(":")[0]) for fault in refused["errors"]]
    assert sorted(reported) == [("contradicting_database", "line 4, column 34"), ("illegal_name", "line 2, column 14")]
    assert post(shop, ORDERS.replace("orders", "paimon.shop.orders"))["tables"][0]["name"] == "orders"


def test_validate_only_tells_the_warnings_and_makes_nothing(shop: TestClient) -> None:
    checked = post(shop, f"{ORDERS[:-1]}, v VARCHAR)", query="?validateOnly=true")
    assert (checked["violations"], [warning["code"] for warning in checked["warnings"]]) == ([], ["length_of_one"])
    assert names(shop) == []


def test_the_dialect_may_be_said(shop: TestClient) -> None:
    text = "CREATE TABLE t (id INT, at TIMESTAMP, PRIMARY KEY (id) NOT ENFORCED)"
    kinds = []
    for number, members in enumerate([{}, {"dialect": "flink"}, {"dialect": "spark"}]):
        made = post(shop, text.replace(" t ", f" t{number} "), **members)
        kinds.append((made["dialect"], made["tables"][0]["schema"]["fields"][1]["type"]))
    timestamp = "TIMESTAMP(6)"
    assert kinds == [("flink", timestamp)] * 2 + [("spark", f"{timestamp} WITH LOCAL TIME ZONE")]
    assert post(shop, ORDERS, dialect="mysql", status=400)["errors"][0]["code"] == "enum"


@pytest.mark.parametrize("dialect", ["flink", "spark"])
def test_the_statement_of_a_table_makes_the_same_table(shop: TestClient, dialect: str) -> None:
    post(
        shop, "CREATE TABLE orders (id BIGINT COMMENT 'it''s', r ROW<a INT>, PRIMARY KEY (id) NOT ENFORCED) COMMENT 'x'"
    )
    reported = shop.get(f"{TABLES}/orders/ddl", params={"dialect": dialect}).json()
    assert reported["dialect"] == dialect
    before = shop.get(f"{TABLES}/orders").json()["schema"]
    shop.delete(f"{TABLES}/orders")
    assert post(shop, reported["ddl"])["tables"][0]["schema"] == before


def test_each_table_needs_the_role_and_the_scope(app: FastAPI, shop: TestClient) -> None:
    database = app.state.parts.database
    reader = {"Authorization": f"Bearer {create_token(database, 'reader', on=['shop.*'], role='read')}"}  # type: ignore[arg-type]
    scoped = {"Authorization": f"Bearer {create_token(database, 'scoped', on=['shop.orders'])}"}
    for query, status in (("", 403), ("?validateOnly=true", 200)):
        assert shop.post(f"{FROM_DDL}{query}", json={"ddl": ORDERS}, headers=reader).status_code == status
    assert shop.post(FROM_DDL, json={"ddl": f"{ORDERS}; {PARTS}"}, headers=scoped).status_code == 403
    assert shop.get(TABLES, headers=reader).json()["tables"] == []
    assert shop.post(FROM_DDL, json={"ddl": ORDERS}, headers=scoped).status_code == 200


def test_an_unknown_database_is_not_found(client: TestClient) -> None:
    for text in (ORDERS, PARTS):
        answer = client.post(f"{DATABASES}/nowhere/tables:fromDdl", json={"ddl": text})
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "database_not_found")
