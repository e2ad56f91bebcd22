"""``GET T/openapi.json``: the operations of one table, typed by its columns."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from app.core.plan.records.integers import encoder_of
from app.core.table.options.entries import Integers
from app.core.types.kinds import Family, Kind
from app.core.types.parser import parse_type
from app.http.typed_columns import TYPED, example_of, schema_of
from tests.api.conftest import TABLES, Create

FIELDS = [
    {"name": "day", "type": "DATE NOT NULL"},
    {"name": "id", "type": "BIGINT NOT NULL"},
    {"name": "total", "type": "DECIMAL(10, 2)", "description": "in euro"},
    {"name": "titles", "type": "ARRAY<ROW<title STRING, n BIGINT>>"},
]
OPTIONS = {"merge-engine": "partial-update"}
EVERY = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT NOT NULL", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "CHAR(3)"),
    *("VARCHAR(5)", "STRING", "BINARY(3)", "VARBINARY(5)", "BYTES", "DATE", "TIME(0)", "TIMESTAMP(3)"),
    *("TIMESTAMP(3) WITH LOCAL TIME ZONE", "ARRAY<BIGINT>", "MULTISET<STRING>", "MAP<BIGINT, BIGINT>"),
    *("MAP<ARRAY<INT>, STRING>", "ROW<a BIGINT, b ARRAY<STRING>>"),
]


@pytest.fixture
def orders(create: Create, shop: TestClient) -> TestClient:
    create("orders", fields=FIELDS, primaryKeys=["day", "id"], options=OPTIONS)
    create("by id", fields=FIELDS, primaryKeys=["id"], options=OPTIONS | {"lookup.integers": "text"})
    return shop


def _document(client: TestClient, table: str = "orders", **params: str) -> dict[str, Any]:
    answer = client.get(f"{TABLES}/{table}/openapi.json", params=params)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_it_is_valid_and_of_one_table_alone_with_the_key_in_the_path_where_it_is_one_column(orders: TestClient) -> None:
    document = _document(orders)
    validate(document)
    assert all(path.startswith("/v1/catalog/databases/shop/tables/orders") for path in document["paths"])
    operations = {one["operationId"] for item in document["paths"].values() for one in item.values()}
    assert {"getTable", "postBatch", "getRow", "scanRows", "getChangelog"} <= operations
    assert not {"createTable", "listTables", "getRowByPath", "putRowByPath"} & operations
    named = {
        parameter["name"]
        for item in document["paths"].values()
        for op in item.values()
        for parameter in op["parameters"]
    }
    assert not {"database", "table"} & named

    of_one_key = _document(orders, "by id")
    assert "/v1/catalog/databases/shop/tables/by%20id/rows/{key}" in of_one_key["paths"]


def test_its_components_are_the_columns_and_the_row_kinds_that_the_table_takes(orders: TestClient) -> None:
    schemas = _document(orders)["components"]["schemas"]
    names = [field["name"] for field in FIELDS]
    assert [*schemas["Row"]["properties"]] == [*schemas["Columns"]["properties"]] == names
    assert [*schemas["Record"]["properties"]] == [*names, "_kind"]
    assert schemas["Record"]["required"] == schemas["Key"]["required"] == ["day", "id"]
    assert [*schemas["Key"]["properties"]] == ["day", "id"]
    total = schemas["Row"]["properties"]["total"]
    assert total == {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "DECIMAL(10, 2): in euro"}
    assert "NewSchema" not in schemas
    assert "Problem" in schemas

    rules = orders.get(f"{TABLES}/orders/rules").json()
    taken = [kind["kind"] for kind in rules["kinds"] if kind["treatment"] != "refused"]
    record = _document(orders)["components"]["schemas"]["Record"]
    assert record["properties"]["_kind"]["enum"] == taken
    assert "-D" not in taken


def test_its_examples_are_rows_keys_and_records_of_the_table(orders: TestClient) -> None:
    for table in ("orders", "by id"):
        document = _document(orders, table)
        schemas = document["components"]["schemas"]
        for name in ("Row", "Key", "Columns", "Record"):
            [example] = schemas[name]["examples"]
            Draft202012Validator(schemas[name]).validate(example)
        [record] = schemas["Record"]["examples"]
        posted = orders.post(f"{TABLES}/{table}/batches", json={"records": [record]})
        assert posted.status_code == 202, posted.text
        rows = next(path for path in document["paths"] if path.endswith("/rows"))
        [key] = [parameter for parameter in document["paths"][rows]["get"]["parameters"] if parameter["name"] == "key"]
        row = orders.get(rows, params={"key": key["example"]})
        assert row.status_code == 200, row.text
        Draft202012Validator(schemas["Row"]).validate(row.json())


def test_bigint_is_typed_as_it_is_answered(orders: TestClient) -> None:
    number, text = {"type": "integer", "format": "int64"}, {"type": "string", "pattern": "^-?[0-9]+$"}
    asked: tuple[dict[str, str], ...] = ({}, {"integers": "text"}, {"integers": "number"})
    for table, answers in (("orders", (number, text, number)), ("by id", (text, text, number))):
        for params, expected in zip(asked, answers, strict=True):
            typed = _document(orders, table, **params)["components"]["schemas"]["Row"]["properties"]["id"]
            assert typed == {**expected, "description": typed["description"]}


@pytest.mark.parametrize("asked", ["number", "text"])
@pytest.mark.parametrize("table", ["orders", "by id"])
def test_only_the_spelling_that_is_typed_can_be_asked_for(orders: TestClient, table: str, asked: str) -> None:
    """Rows in the other one would not be what their schema says."""
    own = "text" if table == "by id" else "number"
    said = {
        (parameter["name"], *parameter["schema"].get("enum", []))
        for path, item in _document(orders, table, integers=asked)["paths"].items()
        for operation in item.values()
        for parameter in operation["parameters"]
        if parameter["name"] in ("integers", "prefer")
        and not path.endswith("/openapi.json")
        and operation is item.get("get")
    }
    assert said == (set() if asked == own else {("integers", asked), ("prefer",)})


def test_names_that_mean_something_to_openapi_are_only_names(create: Create, shop: TestClient) -> None:
    names = ["$ref", "title", "example", "examples", "mapping", "type", "properties", "{a}", "~/x", "enum", "required"]
    odd = [{"name": name, "type": "BIGINT", "description": "#/components/schemas/Nothing"} for name in names]
    create("a{b}c", fields=[{"name": "id", "type": "BIGINT NOT NULL"}, *odd])
    document = _document(shop, "a%7Bb%7Dc")
    validate(document)
    assert [*document["components"]["schemas"]["Row"]["properties"]] == ["id", *names]


def test_every_family_of_types_is_typed() -> None:
    assert TYPED.keys() == set(Family)
    assert {parse_type(one).kind for one in EVERY} == set(Kind)


@pytest.mark.parametrize("sql", EVERY)
@pytest.mark.parametrize("integers", Integers)
def test_examples_are_values_and_answers_are_what_the_schema_says(sql: str, integers: Integers) -> None:
    data_type = parse_type(sql)
    example = example_of(data_type, integers)
    read = data_type.decoder(example)
    validator = Draft202012Validator(schema_of(data_type, integers))
    validator.validate(example)
    validator.validate(encoder_of(data_type, integers)(read))
    if data_type.nullable:
        validator.validate(None)
    else:
        assert not validator.is_valid(None)
