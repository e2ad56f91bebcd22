"""``T/rows:explain`` over HTTP: where its key is, what it refuses, how it spells numbers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.files.layout import staging_file
from app.services.rows.scan_pages import MOST_SCANS
from tests.api.conftest import TABLES, Create, Merge, fields_of, new_table

TABLE = f"{TABLES}/wide"
EXPLAIN = f"{TABLE}/rows:explain"
LARGE = 2**53 + 1
FIELDS = fields_of(word="STRING NOT NULL", n="BIGINT", note="STRING DEFAULT 'none'")
OPTIONS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.note.default-value": "none"}
WORDS = ("a", "a/b", "..", "ö +&%", "x:explain")


@pytest.fixture
def words(shop: TestClient, merge: Merge) -> TestClient:
    """A client of a table of words, each with two records, of which one is merged."""
    fields = [{"name": field["name"], "type": field["type"].split(" DEFAULT")[0]} for field in FIELDS]
    table = new_table(fields=fields, primaryKeys=["word"], options=OPTIONS)
    shop.post(TABLES, json=table).raise_for_status()
    for merged in (True, False):
        records = [{"word": word, "n": LARGE} for word in WORDS]
        shop.post(f"{TABLE}/batches", json={"records": records}).raise_for_status()
        if merged:
            merge()
    return shop


@pytest.mark.parametrize("word", WORDS)
def test_a_key_of_any_characters_is_explained(words: TestClient, word: str) -> None:
    reported = words.get(EXPLAIN, params={"key": word}).raise_for_status().json()
    assert reported["key"] == {"word": word}
    assert reported["row"] == words.get(f"{TABLE}/rows", params={"key": word}).json()
    assert [step["record"]["state"] for step in reported["steps"]] == ["merged", "staged"]
    assert reported["exact"] is True
    assert words.get(f"{TABLE}/rows/{quote(word, safe='')}:explain").json() == reported or word == ".."


def test_a_path_that_ends_in_explain_is_no_key(words: TestClient) -> None:
    assert "steps" in words.get(f"{TABLE}/rows/x%3Aexplain%3Aexplain").json()
    assert "never written" in words.get(f"{TABLE}/rows/x:explain").json()["detail"]
    assert words.get(f"{TABLE}/rows", params={"key": "x:explain"}).json()["n"] == 2 * LARGE


def test_what_a_default_shows_came_from_no_record(words: TestClient) -> None:
    reported = words.get(EXPLAIN, params={"key": "a", "column": "note"}).json()
    nothing = {"column": "note", "value": "none", "start": False, "records": [], "leftOut": 0}
    assert reported["columns"] == [nothing]
    assert [[column["column"] for column in step["columns"]] for step in reported["steps"]] == [["note"], ["note"]]


def test_whole_numbers_are_spelled_as_requested(words: TestClient) -> None:
    for asking in ({"params": {"key": "a", "integers": "text"}}, None):
        answer = words.get(EXPLAIN, **(asking or {"params": {"key": "a"}, "headers": {"Prefer": "integers=text"}}))
        reported = answer.json()
        assert reported["row"]["n"] == str(2 * LARGE)
        assert reported["columns"][0]["value"] == str(2 * LARGE)
        changes = [
            column["after"] for step in reported["steps"] for column in step["columns"] if column["column"] == "n"
        ]
        assert changes == [str(LARGE), str(2 * LARGE)]
    assert answer.headers["preference-applied"] == "integers=text"


REFUSED: list[tuple[dict[str, Any], int, str | None]] = [
    ({"key": "nobody"}, 404, "row_not_found"),
    ({"key": "a", "asOf": "9"}, 404, "snapshot_not_found"),
    ({"key": "a", "asOf": "nothing"}, 404, "snapshot_not_found"),
    ({"key": "a", "asOf": "2020-01-01T00:00:00Z"}, 404, "snapshot_not_found"),
    ({"key": "a", "asOf": "2020-01-01T00:00:00"}, 400, "invalid_request"),
    ({"key": "a", "asOf": "9999-12-31T23:59:59-23:59"}, 200, None),
    ({"key": "a", "column": "nothing"}, 400, "invalid_request"),
    ({"key": "a", "before": "1"}, 400, "invalid_request"),
    ({"key": "a", "before": "7.0"}, 400, "invalid_request"),
    ({"key": "a", "steps": "0"}, 400, "invalid_request"),
    ({"key": "a", "steps": "201"}, 400, "invalid_request"),
    ({"key": ["a", "b"]}, 400, "invalid_key"),
    ({"key": "a", "asOf": ""}, 404, "snapshot_not_found"),
    ({"key": "a", "asOf": "0001-01-01T00:00:00+23:59"}, 404, "snapshot_not_found"),
]


def test_what_cannot_be_is_refused(words: TestClient) -> None:
    for params, status, code in REFUSED:
        answer = words.get(EXPLAIN, params=params)
        assert (answer.status_code, answer.json().get("errorCode")) == (status, code), answer.text


def test_an_offset_whose_plus_was_not_encoded_is_one(words: TestClient) -> None:
    reported = words.get(f"{EXPLAIN}?key=a&asOf=2999-01-01T00:00:00+01:00").raise_for_status().json()
    assert (reported["snapshot"], reported["row"]["n"]) == (1, LARGE)


def test_a_damaged_history_says_what_to_do(create: Create, shop: TestClient, app: FastAPI, merge: Merge) -> None:
    parts: Parts = app.state.parts
    table = create()["id"]
    merge({"id": 1})
    with parts.database.reading() as repository:
        [batch] = repository.batches.page(table, limit=9)
    file = Path(parts.warehouse.path(*staging_file(table, batch.file)))
    file.write_bytes(file.read_bytes()[:-9])
    answer = shop.get(EXPLAIN, params={"key": "1"})
    assert (answer.status_code, answer.json()["errorCode"]) == (503, "damaged_file"), answer.text
    assert shop.get(f"{TABLE}/rows", params={"key": "1"}).status_code == 200


def test_explanations_have_the_places_of_scans(words: TestClient, app: FastAPI) -> None:
    parts: Parts = app.state.parts
    with ExitStack() as held:
        for _ in range(MOST_SCANS):
            held.enter_context(parts.scans.place())
        for url in (f"{EXPLAIN}?key=a", f"{TABLE}/rows/a:explain"):
            answer = words.get(url)
            assert (answer.status_code, answer.json()["errorCode"]) == (503, "unavailable"), answer.text
        assert words.get(f"{TABLE}/rows", params={"key": "a"}).status_code == 200
    assert words.get(EXPLAIN, params={"key": "a"}).status_code == 200
