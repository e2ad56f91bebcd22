"""``PUT``, ``PATCH`` and ``DELETE T/rows/{key}``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, Create, fields_of

ROWS = f"{TABLES}/wide/rows"
PAIR = fields_of(a="BIGINT", b="STRING", n="INT")


def row(client: TestClient, **key: Any) -> Any:
    answer = client.get(ROWS, params={"key": list(key.values()), "consistency": "latest"})
    return answer.json() if answer.status_code == 200 else answer.status_code


def faults(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 400, answer.text
    return [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]


def test_a_row_is_put_and_deleted_by_its_key(wide: object, shop: TestClient) -> None:
    answer = shop.put(f"{ROWS}/7", json={"note": "a"})
    assert answer.status_code == 202
    assert shop.get(answer.headers["location"]).json() == answer.json()
    assert row(shop, id=7) == {"id": 7, "note": "a"}
    assert shop.put(f"{ROWS}/7", json={"id": "7", "note": "b"}).json()["number"] == 2
    assert row(shop, id=7) == {"id": 7, "note": "b"}
    assert shop.delete(f"{ROWS}/7").json()["records"] == 1
    assert row(shop, id=7) == 404


@pytest.mark.parametrize("text", ["a/b", "", "ä+%", "..", "x "])
def test_a_composite_key_of_any_text_is_given_by_the_query(create: Create, shop: TestClient, text: str) -> None:
    create(fields=PAIR, primaryKeys=["b", "a"])
    key = {"key": [text, "5"]}
    assert shop.put(ROWS, params=key, json={"n": 1}).status_code == 202
    assert row(shop, b=text, a=5) == {"a": 5, "b": text, "n": 1}
    assert shop.request("DELETE", ROWS, params=key).status_code == 202
    assert row(shop, b=text, a=5) == 404
    assert shop.put(ROWS, params={"key": ["x"]}, json={}).json()["errors"][0]["code"] == "wrong_key_length"


def test_a_body_that_is_no_such_row_is_refused_by_pointers_into_it(wide: object, shop: TestClient) -> None:
    assert faults(shop.put(f"{ROWS}/7", json={"id": 8})) == [("/id", "contradicting_key")]
    assert faults(shop.put(f"{ROWS}/7", json={"note": 5, "x": 1})) == [
        ("/note", "wrong_type"),
        ("/x", "unknown_column"),
    ]
    assert faults(shop.put(f"{ROWS}/7", json={"_kind": "-D"})) == [("/_kind", "unknown_member")]
    assert faults(shop.put(f"{ROWS}/7", json=[1])) == [("", "not_an_object")]
    assert faults(shop.put(f"{ROWS}/x", json={})) == [("/key/id", "wrong_type")]
    assert shop.get(f"{TABLES}/wide/batches").json()["batches"] == []


WIDE = fields_of(id="BIGINT", a="INT", b="STRING")
TELLING = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}


def patch(client: TestClient, body: Any, media_type: str = "application/merge-patch+json") -> Any:
    return client.patch(f"{ROWS}/7", content=json.dumps(body), headers={"Content-Type": media_type})


def test_a_patch_sets_what_it_names_clears_named_nulls_and_leaves_the_rest(create: Create, shop: TestClient) -> None:
    create(fields=WIDE, options=TELLING)
    assert patch(shop, {"a": 1, "b": "x"}).status_code == 202
    assert patch(shop, {"a": 2}, "application/json").status_code == 202
    assert row(shop, id=7) == {"id": 7, "a": 2, "b": "x"}
    patch(shop, {"b": None})
    assert row(shop, id=7) == {"id": 7, "a": 2, "b": None}
    patch(shop, {})
    assert row(shop, id=7) == {"id": 7, "a": 2, "b": None}


@pytest.mark.parametrize("options", [{}, {"merge-engine": "partial-update"}])
def test_a_patch_of_a_table_in_which_absent_is_null_is_refused_with_the_option_to_set(
    create: Create, shop: TestClient, options: dict[str, str]
) -> None:
    create(fields=WIDE, options=options)
    answer = patch(shop, {"a": 1})
    assert (answer.status_code, answer.json()["errorCode"]) == (409, "patch_not_taken")
    assert "record.absent-columns = unchanged" in answer.json()["detail"]
    assert shop.get(f"{TABLES}/wide/batches").json()["batches"] == []


def test_a_patch_inside_a_column_and_a_body_that_is_no_patch_are_refused(create: Create, shop: TestClient) -> None:
    create(fields=[*WIDE, {"name": "r", "type": "ROW<x INT, y INT>"}], options=TELLING)
    assert faults(patch(shop, {"r": {"x": 1}, "a": 1})) == [("/r", "wrong_type")]
    assert faults(patch(shop, {"id": 8})) == [("/id", "contradicting_key")]
    assert patch(shop, {"a": 1}, "text/plain").status_code == 415
    assert row(shop, id=7) == 404


@pytest.mark.parametrize(
    "options", [{"merge-engine": "partial-update"}, {"merge-engine": "first-row"}, {"ignore-delete": "true"}]
)
def test_a_table_that_takes_no_deletes_refuses_one(create: Create, shop: TestClient, options: dict[str, str]) -> None:
    create(options=options)
    answer = shop.delete(f"{ROWS}/7")
    assert [code for _, code in faults(answer)] == ["refused_row_kind"]
    assert answer.json()["errors"][0]["fix"]


def test_a_delete_may_say_its_sequence(create: Create, shop: TestClient) -> None:
    fields = fields_of(id="BIGINT", n="INT")
    create(fields=fields, options={"sequence.field": "n"})
    shop.put(f"{ROWS}/7", json={"n": 5})
    shop.request("DELETE", f"{ROWS}/7", json={"n": 4})
    assert row(shop, id=7) == {"id": 7, "n": 5}
    shop.request("DELETE", f"{ROWS}/7", json={"n": 6})
    assert row(shop, id=7) == 404


def test_a_delete_goes_by_the_row_kind_column_where_the_table_has_one(create: Create, shop: TestClient) -> None:
    fields = fields_of(id="BIGINT", kind="STRING")
    create(fields=fields, options={"rowkind.field": "kind"})
    shop.put(f"{ROWS}/7", json={"kind": "+I"})
    shop.delete(f"{ROWS}/7")
    assert row(shop, id=7) == 404


def test_a_repeated_change_counts_once(wide: object, shop: TestClient) -> None:
    headers = {"Idempotency-Key": "k"}
    first = shop.put(f"{ROWS}/7", json={"note": "a"}, headers=headers).json()
    assert shop.put(f"{ROWS}/7", json={"note": "a"}, headers=headers).json() == first
    for answer in (
        shop.put(f"{ROWS}/8", json={"note": "a"}, headers=headers),
        shop.delete(f"{ROWS}/7", headers=headers),
    ):
        assert (answer.status_code, answer.json()["errorCode"]) == (422, "idempotency_key_reused")


def test_a_record_says_its_kind_in_words_of_any_case(create: Create, shop: TestClient) -> None:
    create()
    for word, found in (("Insert", {"id": 1, "note": "a"}), ("delete", 404), ("UPDATE", {"id": 1, "note": "a"})):
        record = {"id": 1, "note": "a", "_kind": word}
        assert shop.post(f"{TABLES}/wide/batches", json={"records": [record]}).status_code == 202
        assert row(shop, id=1) == found
