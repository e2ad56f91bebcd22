"""``T/compact`` and ``T/partitions`` over HTTP."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.services.shared.executor import MergeSite
from tests.api.conftest import TABLES, Create, Merge, fields_of
from tests.services.builders import run_next_compaction
from tests.services.executor import PythonExecutor

TABLE = f"{TABLES}/wide"
FIELDS = fields_of(day="DATE NOT NULL", id="BIGINT NOT NULL", note="STRING")


def site_of(app: FastAPI) -> MergeSite:
    parts: Parts = app.state.parts
    return MergeSite(parts.database, parts.warehouse, PythonExecutor(), 600)


def test_a_compaction_is_an_operation_watched_as_merges_are(
    app: FastAPI, wide: object, shop: TestClient, merge: Merge
) -> None:
    for _ in range(2):
        merge({"id": 1, "note": "x"})
    answer = shop.post(f"{TABLE}/compact")
    assert answer.status_code == 202
    asked = answer.json()
    assert answer.headers["location"] == f"{TABLE}/merges/{asked['id']}"
    assert (asked["job"], asked["full"], asked["state"], asked["trigger"]) == ("compaction", True, "pending", "request")
    assert shop.post(f"{TABLE}/compact", json={"full": False}).json()["id"] == asked["id"]
    assert run_next_compaction(site_of(app), "compactor")
    done = shop.get(answer.headers["location"]).json()
    assert (done["state"], done["rows"], done["error"]) == ("succeeded", 1, None)
    assert shop.get(f"{TABLE}/snapshots/{done['snapshotId']}").json()["snapshot"]["commitKind"] == "COMPACT"
    assert shop.get(f"{TABLE}/rows", params={"key": "1"}).json()["note"] == "x"


def test_a_compaction_with_a_wrong_body_is_refused(wide: object, shop: TestClient) -> None:
    for body in (b"{", b"[]", b"1", b'"x"', b'{"full": "maybe"}', b'{"full": []}', b"\xff"):
        assert shop.post(f"{TABLE}/compact", content=body).status_code == 400, body
    assert shop.get(f"{TABLE}/merges").json()["merges"] == []


def test_a_compaction_that_waits_can_be_cancelled(wide: object, shop: TestClient) -> None:
    asked = shop.post(f"{TABLE}/compact", json={"full": False}).json()
    assert asked["full"] is False
    assert shop.post(f"{TABLE}/merges/{asked['id']}:cancel").json()["state"] == "cancelled"


def test_partitions_are_listed_and_dropped(create: Create, shop: TestClient, merge: Merge) -> None:
    create(fields=FIELDS, primaryKeys=["day", "id"], partitionKeys=["day"])
    days = ("2024-05-01", "2024-05-02")
    merge(*({"day": day, "id": number, "note": "x"} for day in days for number in (1, 2)))
    listed = shop.get(f"{TABLE}/partitions").json()
    assert [(partition["spec"], partition["recordCount"], partition["runs"]) for partition in listed["partitions"]] == [
        ({"day": day}, 2, 1) for day in days
    ]
    page = shop.get(f"{TABLE}/partitions", params={"maxResults": 1}).json()
    rest = shop.get(f"{TABLE}/partitions", params={"maxResults": 1, "pageToken": page["nextPageToken"]}).json()
    assert [page["partitions"][0], rest["partitions"][0]] == listed["partitions"]
    assert rest["nextPageToken"] is None
    dropped = shop.post(f"{TABLE}/partitions/drop", json={"specs": [{"day": days[0]}]})
    assert dropped.json() == {"dropped": [{"day": days[0]}]}
    assert shop.get(f"{TABLE}/rows", params={"key": [days[0], "1"]}).status_code == 404
    assert shop.get(f"{TABLE}/rows", params={"key": [days[1], "1"]}).json()["note"] == "x"
    refused = shop.post(f"{TABLE}/partitions/drop", json={"specs": [{"id": 1}]})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/specs/0/id")
