"""What a table says about itself: its rules in words, warnings, simulations."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, fields_of

SCHEMA = {
    "fields": fields_of(id="INT", g="INT", note="STRING", paid="INT", free="INT"),
    "primaryKeys": ["id"],
    "options": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "note,paid",
        "fields.paid.aggregate-function": "sum",
    },
}


def create(shop: TestClient, **options: str) -> str:
    body = {"identifier": {"database": "shop", "object": "t"}, "schema": SCHEMA}
    body = {**body, "schema": {**SCHEMA, "options": {**SCHEMA["options"], **options}}}  # type: ignore[dict-item]
    assert shop.post(TABLES, json=body).status_code == 200
    return f"{TABLES}/t"


def steps(answer: Any) -> dict[int, dict[str, str]]:
    assert answer.status_code == 200, answer.text
    (row,) = answer.json()["rows"]
    return {step["record"]: {column["column"]: column["reason"] for column in step["columns"]} for step in row["steps"]}


def test_rules_say_each_column_in_words_and_what_depends_on_arrival(shop: TestClient) -> None:
    rules = shop.get(f"{create(shop)}/rules").json()
    words = {column["column"]: column for column in rules["columns"]}
    assert words["id"]["rule"] == "primary key"
    assert "sum" in words["paid"]["rule"]
    assert "latest record" in words["note"]["rule"]
    assert [name for name, column in words.items() if column["dependsOnArrival"]] == ["free"]
    assert {kind["kind"]: kind["treatment"] for kind in rules["kinds"]} == dict.fromkeys(
        ("+I", "-U", "+U", "-D"), "accepted"
    )


def test_rules_tell_which_row_kinds_are_ignored(shop: TestClient) -> None:
    rules = shop.get(f"{create(shop, **{'ignore-delete': 'true'})}/rules").json()
    treatments = {kind["kind"]: kind["treatment"] for kind in rules["kinds"]}
    assert treatments == {"+I": "accepted", "-U": "ignored", "+U": "accepted", "-D": "ignored"}


def test_a_simulation_on_live_rows_gives_reasons_for_all_columns_and_stores_nothing(shop: TestClient) -> None:
    path = create(shop)
    assert (
        shop.post(f"{path}/batches", json={"records": [{"id": 1, "g": 2, "note": "a", "paid": 5}]}).status_code == 202
    )
    records = [{"id": 1, "g": 1, "note": "b", "paid": 3}, {"id": 1, "free": None}, {"_kind": "-U", "id": 1, "g": 3}]
    answer = shop.post(f"{path}/rows:simulate", json={"records": records})
    why = steps(answer)
    assert why[0]["note"] == "sequence 1 < 2: ignored"
    assert why[0]["paid"] == "late but summed"
    assert why[1]["free"] == "null never overwrites"
    assert why[1]["note"] == "g null: the group is not touched"
    assert why[2]["note"] == "sequence 3 >= 2: set to null by the retract"
    (row,) = answer.json()["rows"]
    assert (row["before"]["paid"], row["after"]["paid"]) == (5, 8)
    live = shop.get(f"{path}/rows", params={"key": "1", "consistency": "latest"}).json()
    assert live == {"id": 1, "g": 2, "note": "a", "paid": 5, "free": None}


def test_a_simulation_on_nothing_needs_no_table_and_refuses_what_a_table_or_a_batch_would_refuse(
    shop: TestClient,
) -> None:
    body = {"schema": SCHEMA, "records": [{"id": 1, "g": 1, "paid": 2}, {"id": 2, "free": 1}]}
    rows = shop.post("/v1/catalog/merges:simulate", json=body).json()["rows"]
    assert [row["after"]["paid"] for row in rows] == [2, None]
    assert [row["before"] for row in rows] == [None, None]

    wrong = {"schema": {**SCHEMA, "options": {"merge-engine": "zzz"}}, "records": []}
    assert shop.post("/v1/catalog/merges:simulate", json=wrong).status_code == 400
    answer = shop.post("/v1/catalog/merges:simulate", json={"schema": SCHEMA, "records": [{"id": "x"}]})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/records/0/id")


def test_a_simulation_says_that_a_record_is_ignored(shop: TestClient) -> None:
    schema = {**SCHEMA, "options": {"merge-engine": "partial-update", "ignore-delete": "true"}}
    body = {"schema": schema, "records": [{"id": 1, "free": 1}, {"_kind": "-D", "id": 1}]}
    (row,) = shop.post("/v1/catalog/merges:simulate", json=body).json()["rows"]
    assert "ignore-delete" in row["steps"][1]["ignored"]
    assert row["after"]["free"] == 1


REMOVAL = {"partial-update.remove-record-on-sequence-group": "g"}


def test_records_older_than_a_removal_change_nothing_of_its_group_and_every_column_depends_on_arrival(
    shop: TestClient,
) -> None:
    path = create(shop, **REMOVAL)
    sent = [{"id": 1, "g": 1, "paid": 5}, {"_kind": "-D", "id": 1, "g": 4}, {"id": 1, "g": 5, "paid": 1}]
    answer = shop.post(f"{path}/rows:simulate", json={"records": [*sent, {"id": 1, "g": 3, "paid": 9, "free": 2}]})
    assert "older than the removal" in steps(answer)[3]["paid"]
    (row,) = answer.json()["rows"]
    assert row["after"] == {"id": 1, "g": 5, "note": None, "paid": 1, "free": 2}

    rules = shop.get(f"{path}/rules").json()
    assert [column["column"] for column in rules["columns"] if not column["dependsOnArrival"]] == ["id"]
    assert "older than the removal" in rules["row"]
