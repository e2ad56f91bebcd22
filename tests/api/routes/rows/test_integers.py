"""BIGINT as text wherever rows are answered: what JavaScript reads without loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import DATABASES, TABLES, Merge, fields_of, new_table

LARGE = 2**53 + 1
FIELDS = fields_of(
    id="BIGINT NOT NULL",
    n="BIGINT",
    small="INT",
    many="ARRAY<BIGINT>",
    named="MAP<BIGINT, BIGINT>",
    inside="ROW<a BIGINT, b STRING, c ARRAY<ROW<d BIGINT>>>",
    odd="MAP<ARRAY<BIGINT>, INT>",
)
ROW = {
    "id": LARGE,
    "n": -LARGE,
    "small": 5,
    "many": [LARGE, None],
    "named": {str(LARGE): LARGE},
    "inside": {"a": LARGE, "b": "x", "c": [{"d": 1}, None]},
    "odd": [[[LARGE], 1]],
}
TEXT = {
    "id": str(LARGE),
    "n": str(-LARGE),
    "small": 5,
    "many": [str(LARGE), None],
    "named": {str(LARGE): str(LARGE)},
    "inside": {"a": str(LARGE), "b": "x", "c": [{"d": "1"}, None]},
    "odd": [[[str(LARGE)], 1]],
}
EMPTY = dict.fromkeys(ROW) | {"id": 1}
WIDE = f"{TABLES}/wide"
Asking = dict[str, dict[str, str]]
WAYS: list[Asking] = [{"params": {"integers": "text"}}, {"headers": {"Prefer": 'wait=1, Integers="text"'}}]


@pytest.fixture
def wide(shop: TestClient, merge: Merge) -> Callable[..., TestClient]:
    """Makes the table with a row that has large numbers and one that has none, merged or staged."""

    def made(*, merged: bool, **options: str) -> TestClient:
        table = new_table(fields=FIELDS, options={"changelog-producer": "input", **options})
        shop.post(TABLES, json=table).raise_for_status()
        shop.post(f"{WIDE}/batches", json={"records": [ROW, {"id": 1}]}).raise_for_status()
        if merged:
            merge()
        return shop

    return made


def _rows(client: TestClient, asking: Asking) -> dict[str, Any]:
    """The row as each route answers it."""
    params, headers = asking.get("params", {}), asking.get("headers", {})
    key = {"key": str(LARGE), **params}
    scanned = client.get(f"{WIDE}/rows:scan", params=params, headers=headers).text.splitlines()
    page = client.get(f"{WIDE}/rows:scan", params={"limit": "10", **params}, headers=headers).text.splitlines()
    many = client.post(f"{WIDE}/rows:batchGet", json={"keys": [{"id": LARGE}]}, params=params, headers=headers).json()
    tried = client.post(f"{WIDE}/rows:simulate", json={"records": [{"id": LARGE}]}, params=params, headers=headers)
    return {
        "direct": client.get(f"{WIDE}/rows", params=key, headers=headers).json(),
        "by path": client.get(f"{WIDE}/rows/{LARGE}", params=params, headers=headers).json(),
        "documented": client.get(f"{WIDE}/rows", params={"columns": "", **key}, headers=headers).json(),
        "many": many["rows"][0]["row"],
        "scan": next(row for row in map(json.loads, scanned) if row["small"] == 5),
        "page": next(row for row in map(json.loads, page) if row["small"] == 5),
        "tried": tried.json()["rows"][0]["before"],
    }


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "staged"])
@pytest.mark.parametrize("asking", WAYS, ids=["parameter", "preference"])
def test_every_route_can_answer_bigint_as_text(wide: Callable[..., TestClient], asking: Asking, merged: bool) -> None:
    client = wide(merged=merged)
    assert _rows(client, asking) == dict.fromkeys(_rows(client, {}), TEXT)
    assert _rows(client, {}) == dict.fromkeys(_rows(client, {}), ROW)


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "staged"])
def test_a_table_may_say_so_for_all_and_a_request_otherwise(wide: Callable[..., TestClient], merged: bool) -> None:
    client = wide(merged=merged, **{"lookup.integers": "text"})
    assert _rows(client, {}) == dict.fromkeys(_rows(client, {}), TEXT)
    number: Asking = {"params": {"integers": "number"}}
    assert _rows(client, number) == dict.fromkeys(_rows(client, number), ROW)


def test_keys_and_changes_are_told_so_too(wide: Callable[..., TestClient]) -> None:
    client, text = wide(merged=True), {"integers": "text"}
    many = client.post(f"{WIDE}/rows:batchGet", json={"keys": [{"id": LARGE}, {"id": 2}]}, params=text).json()
    assert [row["key"] for row in many["rows"]] == [{"id": str(LARGE)}, {"id": "2"}]
    tried = client.post(f"{WIDE}/rows:simulate", json={"records": [{"id": 3, "n": 4}]}, params=text).json()["rows"][0]
    assert (tried["key"], tried["after"]["n"], tried["steps"][0]["after"]["n"]) == ({"id": "3"}, "4", "4")
    assert ("n", "4") in [(column["column"], column["after"]) for column in tried["steps"][0]["columns"]]
    changed = client.get(f"{WIDE}/changelog", params={**text, "fromSnapshot": "1", "maxResults": "1"})
    assert isinstance(json.loads(changed.text)["id"], str)
    following = client.get(changed.headers["Link"][1:].split(">")[0])
    assert isinstance(json.loads(following.text)["id"], str)
    [file] = client.get(f"{WIDE}/files", params=text).json()["files"]
    assert isinstance(file["minToken"], str)
    assert abs(int(file["maxToken"])) > 2**53


def test_nulls_stay_nulls_and_what_was_answered_as_text_can_be_sent_back(wide: Callable[..., TestClient]) -> None:
    client = wide(merged=True)
    assert client.get(f"{WIDE}/rows", params={"key": "1", "integers": "text"}).json() == EMPTY | {"id": "1"}
    rows = client.get(f"{WIDE}/rows:scan", params={"integers": "text"}).text.splitlines()
    assert EMPTY | {"id": "1"} in [json.loads(row) for row in rows]

    client.post(f"{WIDE}/batches", json={"records": [TEXT | {"n": "7"}]}).raise_for_status()
    assert client.get(f"{WIDE}/rows", params={"key": str(LARGE)}).json() == ROW | {"n": 7}


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "staged"])
def test_caches_and_clients_can_tell_the_two_apart(wide: Callable[..., TestClient], merged: bool) -> None:
    client = wide(merged=merged)
    key = {"key": str(LARGE)}
    number = client.get(f"{WIDE}/rows", params=key)
    text = client.get(f"{WIDE}/rows", params=key, headers={"Prefer": "integers=text"})
    assert number.headers["Vary"] == text.headers["Vary"]
    assert "Prefer" in text.headers["Vary"].split(", ")
    assert "Preference-Applied" not in number.headers
    assert text.headers["Preference-Applied"] == "integers=text"
    assert number.headers["ETag"] != text.headers["ETag"]
    known = {"If-None-Match": text.headers["ETag"]}
    assert client.get(f"{WIDE}/rows", params=key, headers=known).status_code == 200
    again = client.get(f"{WIDE}/rows", params=key, headers={**known, "Prefer": "integers=text"})
    assert (again.status_code, again.headers["Vary"]) == (304, text.headers["Vary"])
    for route in ("rows:scan", "changelog", "files"):
        answer = client.get(f"{WIDE}/{route}", headers={"Prefer": "integers=text"})
        assert "Prefer" in answer.headers["Vary"].split(", ")
        assert answer.headers["Preference-Applied"] == "integers=text"


def test_a_preference_may_stand_on_a_line_of_its_own_and_an_unknown_one_is_ignored_but_a_parameter_refused(
    wide: Callable[..., TestClient],
) -> None:
    client, key = wide(merged=True), {"key": str(LARGE)}
    answer = client.get(f"{WIDE}/rows", params=key, headers={"Prefer": "integers=roman"})
    assert answer.json() == ROW
    assert "Preference-Applied" not in answer.headers
    refused = client.get(f"{WIDE}/rows", params={**key, "integers": "roman"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "enum")

    lines = [("Prefer", "wait=1"), ("Prefer", "integers=text")]
    for params in ({"key": str(LARGE)}, {"key": str(LARGE), "snapshot": "1"}):
        assert client.get(f"{WIDE}/rows", params=params, headers=lines).json() == TEXT


def test_partitions_are_named_by_text_too(shop: TestClient, merge: Merge) -> None:
    fields = [{"name": "id", "type": "BIGINT NOT NULL"}]
    shop.post(TABLES, json=new_table(fields=fields, partitionKeys=["id"])).raise_for_status()
    merge({"id": LARGE})
    assert shop.get(f"{DATABASES}/shop/tables/wide/partitions").json()["partitions"][0]["spec"] == {"id": LARGE}
    reported = shop.get(f"{WIDE}/partitions", params={"integers": "text"}).json()["partitions"][0]
    assert reported["spec"] == {"id": str(LARGE)}
