"""``T/snapshots``, ``T/snapshot`` and ``T/rollback`` over HTTP, as Paimon's clients and others use them."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.routes.snapshots.snapshots import COMMIT_KINDS
from app.core.table.history import SnapshotKind
from tests.api.conftest import TABLES, Create, Merge

TABLE = f"{TABLES}/wide"


@pytest.fixture
def merge(create: Create, merge: Merge) -> Merge:
    """Posts records to the new table ``wide`` and merges them."""
    create(options={"num-sorted-run.compaction-trigger": "99"})
    return merge


def note(client: TestClient) -> Any:
    """What the row 1 says."""
    return client.get(f"{TABLE}/rows", params={"key": "1"}).json().get("note")


# What pypaimon's Snapshot cannot do without.
PAIMONS = {
    *("version", "id", "schemaId", "baseManifestList", "deltaManifestList", "totalRecordCount", "deltaRecordCount"),
    *("commitUser", "commitIdentifier", "commitKind", "timeMillis"),
}


def test_every_kind_of_snapshot_has_a_kind_that_paimons_clients_know() -> None:
    assert set(COMMIT_KINDS) == set(SnapshotKind)
    assert set(COMMIT_KINDS.values()) <= {"APPEND", "COMPACT", "OVERWRITE", "ANALYZE"}


def test_pages_of_snapshots_come_newest_first(shop: TestClient, merge: Merge) -> None:
    assert shop.get(f"{TABLE}/snapshots").json() == {"snapshots": [], "nextPageToken": None}
    for _ in range(5):
        merge({"id": 1})
    seen, token = [], ""
    while token is not None:
        page = shop.get(f"{TABLE}/snapshots", params={"maxResults": 2, "pageToken": token}).json()
        seen += [(snapshot["id"], snapshot["deltaRecordCount"]) for snapshot in page["snapshots"]]
        token = page["nextPageToken"]
    assert seen == [(5, 1), (4, 1), (3, 1), (2, 1), (1, 1)]
    assert len(shop.get(f"{TABLE}/snapshots?maxResults=0").json()["snapshots"]) == 5
    assert shop.get(f"{TABLE}/snapshots?pageToken=x").status_code == 400


def test_a_version_is_a_word_a_number_or_a_tag(shop: TestClient, merge: Merge) -> None:
    merge({"id": 1})
    merge({"id": 2})
    shop.post(f"{TABLE}/tags", json={"tagName": "v 1+", "snapshotId": 1})
    versions = {"1": 1, "EARLIEST": 1, "LATEST": 2, "v%201%2B": 1, "v+1%2B": 1, "%2B2": 2, "002": 2}
    for version, number in versions.items():
        assert shop.get(f"{TABLE}/snapshots/{version}").json()["snapshot"]["id"] == number, version
    for version in ("7", "3", "0", "-1", "1.0", "earliest", "v2"):
        missing = shop.get(f"{TABLE}/snapshots/{version}")
        assert (missing.status_code, missing.json()["errorCode"]) == (404, "snapshot_not_found"), version
        assert (missing.json()["resourceType"], missing.json()["resourceName"]) == ("SNAPSHOT", version)
        assert "the earliest is 1, the latest 2" in missing.json()["detail"]


def test_a_snapshot_has_paimons_members_and_keyfolds_and_the_current_one_its_size(
    shop: TestClient, merge: Merge
) -> None:
    before = shop.get(f"{TABLE}/snapshot")
    assert (before.status_code, before.json()["resourceType"]) == (404, "SNAPSHOT")
    merge({"id": 1}, {"id": 2})
    now = shop.get(f"{TABLE}/snapshot").json()["snapshot"]
    assert (now["recordCount"], now["fileCount"], now["snapshot"]["id"]) == (2, 1, 1)
    assert now["fileSizeInBytes"] == now["snapshot"]["sizeBytes"] > 0
    assert now["lastFileCreationTime"] == now["snapshot"]["timeMillis"]

    merge({"id": 1})
    body = shop.get(f"{TABLE}/snapshots/2").json()["snapshot"]
    assert body.keys() >= PAIMONS
    assert (body["id"], body["kind"], body["runs"], body["files"], body["rows"]) == (2, "merge", 2, 2, None)
    assert (body["commitIdentifier"], body["commitKind"], body["version"]) == (2, "APPEND", 3)
    assert (body["storedRows"], body["totalRecordCount"], body["deltaRecordCount"]) == (3, 3, 1)
    assert body["committedAt"] == body["timeMillis"] > 1_600_000_000_000
    merges = shop.get(f"{TABLE}/merges").json()["merges"]
    assert body["mergeId"] == merges[0]["id"]


BODIES: list[dict[str, Any]] = [
    {"instant": {"type": "snapshot", "snapshotId": 1}},
    {"instant": {"type": "tag", "tagName": "v1"}},
    {"instant": {"type": "snapshot", "snapshotId": 1}, "fromSnapshot": 2},
    {"snapshot": 1},
    {"tag": "v1", "somethingNewer": True},
]


@pytest.mark.parametrize("body", BODIES)
def test_a_rollback_shows_again_what_was_there(shop: TestClient, merge: Merge, body: dict[str, Any]) -> None:
    merge({"id": 1, "note": "old"})
    merge({"id": 1, "note": "new"})
    shop.post(f"{TABLE}/tags", json={"tagName": "v1", "snapshotId": 1})
    answer = shop.post(f"{TABLE}/rollback", json=body)
    assert answer.status_code == 200, answer.text
    made = answer.json()["snapshot"]
    assert (made["id"], made["kind"], made["commitKind"], made["deltaRecordCount"]) == (3, "rollback", "OVERWRITE", -1)
    assert note(shop) == "old"
    assert shop.post(f"{TABLE}/rollback", json={"snapshot": 2}).json()["snapshot"]["id"] == 4
    assert note(shop) == "new"


def test_a_batch_that_was_rolled_back_comes_back_under_a_new_idempotency_key(shop: TestClient, merge: Merge) -> None:
    merge({"id": 1, "note": "old"})
    body = {"records": [{"id": 1, "note": "new"}]}
    shop.post(f"{TABLE}/batches", json=body, headers={"Idempotency-Key": "a"})
    merge({"id": 2})
    shop.post(f"{TABLE}/rollback", json={"snapshot": 1})
    again = shop.post(f"{TABLE}/batches", json=body, headers={"Idempotency-Key": "a"}).json()
    assert (again["state"], note(shop)) == ("merged", "old")
    shop.post(f"{TABLE}/batches", json=body, headers={"Idempotency-Key": "b"})
    merge({"id": 2})
    assert note(shop) == "new"


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "invalid_request"),
    ({"snapshot": 1, "tag": "v1"}, 400, "invalid_request"),
    ({"snapshot": 1, "instant": {"type": "snapshot", "snapshotId": 1}}, 400, "invalid_request"),
    ({"instant": {"type": "time", "snapshotId": 1}}, 400, "invalid_request"),
    ({"instant": {"type": "snapshot", "tagName": "v1"}}, 400, "invalid_request"),
    ({"snapshot": "1"}, 400, "invalid_request"),
    ({"snapshot": True}, 400, "invalid_request"),
    ({"snapshot": 9}, 404, "snapshot_not_found"),
    ({"snapshot": 10**30}, 404, "snapshot_not_found"),
    ({"tag": "v9"}, 404, "tag_not_found"),
    ({"instant": {"type": "tag", "tagName": "v9"}}, 404, "tag_not_found"),
    ({"snapshot": 1, "fromSnapshot": 1}, 409, "commit_conflict"),
]


def test_a_rollback_to_nowhere_changes_nothing(shop: TestClient, merge: Merge) -> None:
    merge({"id": 1, "note": "old"})
    merge({"id": 1, "note": "new"})
    for body, status, code in REFUSED:
        answer = shop.post(f"{TABLE}/rollback", json=body)
        assert (answer.status_code, answer.json()["errorCode"]) == (status, code), body
    assert shop.get(f"{TABLE}/snapshot").json()["snapshot"]["snapshot"]["id"] == 2


def test_snapshots_of_a_table_that_does_not_exist_are_not_found(shop: TestClient) -> None:
    for path in ("snapshots", "snapshots/1", "snapshot", "tags", "tags/v1", "stats"):
        assert shop.get(f"{TABLES}/none/{path}").json()["errorCode"] == "table_not_found", path
    assert shop.post(f"{TABLES}/none/rollback", json={"snapshot": 1}).json()["errorCode"] == "table_not_found"
    assert shop.post(f"{TABLES}/none/tags", json={"tagName": "v1"}).json()["errorCode"] == "table_not_found"
