"""Conditional requests: 304 for what a client has, 412 for what has changed since it looked."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from app.api.shared.paths import TABLE_PATH
from tests.api.conftest import DATABASES, TABLES, Create
from tests.api.walk import BODIES, READS, TABLE, Fill, query

WIDE = f"{TABLES}/wide"
LIVE = ("/healthz", "/readyz", f"{TABLE_PATH}/delta", f"{TABLE_PATH}/iceberg")  # they tell the moment
SET_COMMENT = {"changes": [{"action": "updateComment", "comment": "other"}]}


@pytest.mark.parametrize("path", [path for path in READS if path not in LIVE])
def test_who_has_an_answer_is_told_so_without_it(walked: tuple[TestClient, Fill], path: str) -> None:
    client, fill = walked
    client.headers["Accept-Encoding"] = "identity"
    params = query(path)
    first = client.get(fill(path), params=params)
    etag = first.headers["etag"]
    assert etag.startswith('"')
    assert first.headers["cache-control"] == "private, no-cache"
    assert {"accept", "accept-encoding"} <= {name.strip().lower() for name in first.headers["vary"].split(",")}
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = client.get(fill(path), params=params, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag), known
        assert "content-type" not in again.headers
    assert client.get(fill(path), params=params, headers={"If-None-Match": '"other"'}).content == first.content


@pytest.mark.parametrize("path", LIVE)
def test_what_tells_the_moment_is_not_kept(walked: tuple[TestClient, Fill], path: str) -> None:
    client, fill = walked
    answer = client.get(fill(path), headers={"If-None-Match": "*"})
    assert answer.headers["cache-control"] == "no-store"
    assert answer.content


def test_refusals_are_not_kept(shop: TestClient) -> None:
    for answer in (shop.get(f"{TABLES}/none"), shop.get(f"{DATABASES}?misspelt=1"), shop.get("/nowhere")):
        assert answer.headers["cache-control"] == "no-store"


def test_the_etag_of_a_table_changes_with_its_schema_and_not_with_its_rows(shop: TestClient, wide: object) -> None:
    first = shop.get(WIDE).headers["etag"]
    shop.post(f"{WIDE}/batches", json={"records": [{"id": 1}]}).raise_for_status()
    assert shop.get(WIDE).headers["etag"] == first
    altered = shop.post(WIDE, json=SET_COMMENT)
    assert altered.headers["etag"] == shop.get(WIDE).headers["etag"] != first
    by_id = shop.get(f"/v1/catalog/tables/id/{altered.json()['id']}")
    assert by_id.headers["etag"] == altered.headers["etag"]


@pytest.mark.parametrize("validate_only", [False, True])
def test_an_alter_of_what_was_not_seen_changes_nothing(shop: TestClient, wide: object, validate_only: bool) -> None:
    seen = shop.get(WIDE).headers["etag"]
    params = {"validateOnly": "true"} if validate_only else {}
    assert shop.post(WIDE, json=SET_COMMENT, headers={"If-Match": seen}).status_code == 200
    now = shop.get(WIDE).json()
    late = {"changes": [{"action": "updateComment", "comment": "late"}]}
    for sent in (seen, f"W/{seen}", '"nonsense"'):
        refused = shop.post(WIDE, json=late, headers={"If-Match": sent}, params=params)
        assert (refused.status_code, refused.json()["errorCode"]) == (412, "precondition_failed")
        assert refused.json()["errors"][0]["code"] == "changed_since"
    assert shop.get(WIDE).json() == now
    known = f'"other", {shop.get(WIDE).headers["etag"]}'
    assert shop.post(WIDE, json=late, headers={"If-Match": known}, params=params).status_code == 200
    assert shop.post(WIDE, json=SET_COMMENT, headers={"If-Match": "*"}, params=params).status_code == 200


def test_a_table_made_again_under_the_same_name_is_not_dropped_for_the_old_one(
    shop: TestClient, create: Create
) -> None:
    create()
    seen = shop.get(WIDE).headers["etag"]
    shop.delete(WIDE).raise_for_status()
    made = create()
    assert shop.delete(WIDE, headers={"If-Match": seen}).status_code == 412
    assert shop.get(WIDE).json()["id"] == made["id"]
    assert shop.delete(WIDE, headers={"If-Match": shop.get(WIDE).headers["etag"]}).status_code == 200
    assert shop.delete(WIDE, headers={"If-Match": "*"}).status_code == 404


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
def test_a_condition_that_nobody_looks_at_is_refused(
    walked: tuple[TestClient, Fill], header: str, shop: TestClient, wide: object
) -> None:
    sent = {header: "Sun, 22 Nov 2026 10:00:00 GMT" if header == "If-Unmodified-Since" else '"1"'}
    refused = shop.put(f"{WIDE}/rows/1", json={"note": "x"}, headers=sent)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "condition_not_taken")
    assert shop.get(f"{WIDE}/rows/1").status_code == 404
    assert shop.get(WIDE, headers=sent).status_code == 200
    assert walked[0].post(f"{TABLE}/batches", json=BODIES["postBatch"], headers=sent).status_code == 400
