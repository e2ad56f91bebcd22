"""Rows at a snapshot: ``?snapshot=`` on every lookup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.services.upkeep.sweeps import expire_snapshots
from tests.api.conftest import TABLES, Create, Merge, parts_of

TABLE = f"{TABLES}/wide"
ROWS = f"{TABLE}/rows"
Read = Callable[..., Any]


@pytest.fixture
def history(create: Create, shop: TestClient, merge: Merge) -> Read:
    """Reads row 1 of the table ``wide`` after three merges: a row, another note, and a column more."""
    options = {"num-sorted-run.compaction-trigger": "99", "snapshot.num-retained.max": "2"}
    create(options={**options, "snapshot.num-retained.min": "2"})
    merge({"id": 1, "note": "first"})
    merge({"id": 1, "note": "second"}, {"id": 2, "note": "other"})
    changes = [
        {"action": "addColumn", "fieldNames": ["n"], "dataType": "INT"},
        {"action": "renameColumn", "fieldNames": ["note"], "newName": "remark"},
    ]
    assert shop.post(TABLE, json={"changes": changes}).status_code == 200
    merge({"id": 1, "remark": "third", "n": 3})
    return lambda **params: shop.get(ROWS, params={"key": "1", **params})


def test_a_row_is_shown_as_it_was_and_what_came_later_is_not_there(history: Read, shop: TestClient) -> None:
    for version, row in {
        "1": {"id": 1, "note": "first"},
        "2": {"id": 1, "note": "second"},
        "3": {"id": 1, "remark": "third", "n": 3},
        "EARLIEST": {"id": 1, "note": "first"},
        "LATEST": {"id": 1, "remark": "third", "n": 3},
    }.items():
        answer = history(snapshot=version)
        assert answer.json() == row, version
        assert shop.get(f"{ROWS}/1", params={"snapshot": version}).json() == row
        assert answer.headers["keyfold-snapshot"] == {"EARLIEST": "1", "LATEST": "3"}.get(version, version)

    assert history(snapshot="2", columns="note").json() == {"note": "second"}
    for version, columns in {"2": "n", "3": "note"}.items():
        refused = history(snapshot=version, columns=columns)
        assert refused.status_code == 400
        assert [fault["code"] for fault in refused.json()["errors"]] == ["unknown_column"]

    answer = shop.get(ROWS, params={"key": "2", "snapshot": "1"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == 'no row {"id": 2} in snapshot 1 of shop.wide: it was never written'


def test_a_tag_names_a_snapshot(history: Read, shop: TestClient) -> None:
    shop.post(f"{TABLE}/tags", json={"tagName": "v1", "snapshotId": 1})
    assert history(snapshot="v1").json() == {"id": 1, "note": "first"}
    expire_snapshots(parts_of(shop).database, parts_of(shop).warehouse)
    assert history(snapshot="1").json() == history(snapshot="v1").json() == {"id": 1, "note": "first"}


def test_a_snapshot_that_is_not_there_says_which_are(history: Read, shop: TestClient) -> None:
    expire_snapshots(parts_of(shop).database, parts_of(shop).warehouse)
    for version in ("1", "4", "v1", "", "9" * 30, "9" * 5000):
        for answer in (
            history(snapshot=version),
            shop.post(f"{ROWS}:batchGet", json={"keys": []}, params={"snapshot": version}),
        ):
            assert (answer.status_code, answer.json()["errorCode"]) == (404, "snapshot_not_found"), version
            assert "the earliest is 2, the latest 3" in answer.json()["detail"]


def test_many_keys_are_read_at_one_snapshot_and_what_is_staged_belongs_to_no_earlier_one(
    history: Read, shop: TestClient
) -> None:
    body = {"keys": [{"id": 2}, {"id": 1}]}
    answer = shop.post(f"{ROWS}:batchGet", json=body, params={"snapshot": "1", "columns": "note"})
    assert answer.json() == {
        "rows": [
            {"key": {"id": 2}, "found": False, "row": None},
            {"key": {"id": 1}, "found": True, "row": {"note": "first"}},
        ],
        "snapshotId": 1,
    }
    refused = shop.post(f"{ROWS}:batchGet", json=body, params={"snapshot": "1", "columns": "n"})
    assert refused.status_code == 400

    refused = history(snapshot="1", consistency="latest")
    assert (refused.status_code, refused.json()["errorCode"]) == (400, "invalid_request")
    assert [fault["code"] for fault in refused.json()["errors"]] == ["contradicting_parameters"]
    body = {"keys": [{"id": 1}]}
    params = {"snapshot": "1", "consistency": "latest"}
    assert shop.post(f"{ROWS}:batchGet", json=body, params=params).status_code == 400
    assert history(snapshot="1", consistency="merged").status_code == 200


def test_an_etag_tells_snapshots_and_schemas_apart(history: Read, shop: TestClient, merge: Merge) -> None:
    merge({"id": 2, "remark": "more"})
    tags = {version: history(snapshot=version).headers["etag"] for version in ("3", "4")}
    current = history()
    assert len({*tags.values(), current.headers["etag"]}) == 3
    assert history(snapshot="3").json() == history(snapshot="4").json() == current.json()
    spared = shop.get(
        ROWS, params={"key": "1", "snapshot": "3"}, headers={"If-None-Match": history(snapshot="3").headers["etag"]}
    )
    assert spared.status_code == 304
    shop.post(TABLE, json={"changes": [{"action": "addColumn", "fieldNames": ["m"], "dataType": "INT"}]})
    assert history(columns="id").headers["etag"] != current.headers["etag"]
    assert history(snapshot="3").headers["etag"] == tags["3"]


def test_the_rows_of_a_rollback_are_read_under_todays_columns(history: Read, shop: TestClient) -> None:
    shop.post(f"{TABLE}/rollback", json={"snapshot": 1})
    assert history().json() == {"id": 1, "remark": "first", "n": None}
    assert history(snapshot="1").json() == {"id": 1, "note": "first"}
