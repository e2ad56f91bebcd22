"""``T/tags`` over HTTP, as Paimon's clients and others use them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from app.api.routes.snapshots.tags import iso_duration
from tests.api.conftest import TABLES, Create, Merge

TAGS = f"{TABLES}/wide/tags"


@pytest.fixture
def tagged(create: Create, shop: TestClient, merge: Merge) -> TestClient:
    """A client of a table ``wide`` with two snapshots; tags are kept for a day there."""
    create(options={"tag.default-time-retained": "1 d"})
    for _ in range(2):
        merge({"id": 1})
    return shop


def create_tag(client: TestClient, name: str, **body: Any) -> Any:
    return client.post(TAGS, json={"tagName": name, **body})


def test_a_tag_is_created_read_listed_and_deleted(tagged: TestClient) -> None:
    made = create_tag(tagged, "v1", snapshotId=1, timeRetained="36 h")
    assert made.status_code == 200, made.text
    body = made.json()
    assert (body["tagName"], body["snapshot"]["id"], body["snapshot"]["tags"]) == ("v1", 1, ["v1"])
    assert body["tagTimeRetained"] == "PT36H"
    assert body["expiresAt"] - body["tagCreateTime"] == 36 * 3600 * 1000
    assert tagged.get(f"{TAGS}/v1").json() == body
    assert tagged.get(TAGS).json() == {"tags": ["v1"], "nextPageToken": None}
    deleted = tagged.delete(f"{TAGS}/v1")
    assert (deleted.status_code, deleted.content) == (200, b"")
    for answer in (tagged.get(f"{TAGS}/v1"), tagged.delete(f"{TAGS}/v1")):
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "tag_not_found")
        assert (answer.json()["resourceType"], answer.json()["resourceName"]) == ("TAG", "v1")


def test_the_current_snapshot_is_tagged_by_default_and_a_name_is_given_once_unless_the_client_does_not_mind(
    tagged: TestClient,
) -> None:
    body = create_tag(tagged, "now", snapshotId=None, timeRetained=None).json()
    assert (body["snapshot"]["id"], body["tagTimeRetained"]) == (2, "PT24H")

    create_tag(tagged, "v1", snapshotId=1)
    for number in (1, 2):
        twin = create_tag(tagged, "v1", snapshotId=number)
        assert (twin.status_code, twin.json()["errorCode"]) == (409, "tag_already_exists")
        assert twin.json()["resourceType"] == "TAG"
    kept = create_tag(tagged, "v1", snapshotId=2, ignoreIfExists=True)
    assert (kept.status_code, kept.json()["snapshot"]["id"]) == (200, 1)


ILLEGAL = ["", " ", ".", "..", "a/b", "a$b", "a\nb", "\u0000", "x" * 256, "EARLIEST", "LATEST", "12", "-3"]


LEGAL = ["100%", "2024-01-31", "a b", "a+b", "a:b", "latest", "v1.0", "ü"]
NO_TIMES = ["", "x", "0", "0 s", "-1 h", "1 year", "9" * 400 + " d"]


def test_names_that_no_path_can_carry_or_that_mean_a_snapshot_are_refused_as_are_no_times_and_any_other_is_a_tag(
    tagged: TestClient,
) -> None:
    for name, text in [*((name, "soon") for name in ILLEGAL), *(("12", text) for text in NO_TIMES)]:
        answer = create_tag(tagged, name, timeRetained=text)
        assert answer.status_code == 400
        assert {fault["pointer"] for fault in answer.json()["errors"]} == {"/tagName", "/timeRetained"}, (name, text)
        assert all(fault["fix"] for fault in answer.json()["errors"])
    assert tagged.get(TAGS).json()["tags"] == []

    for name in (*LEGAL, "%2F"):
        assert create_tag(tagged, name).status_code == 200
    for name in LEGAL:  # Starlette's test client decodes twice
        assert tagged.get(f"{TAGS}/{quote(name, safe='')}").json()["tagName"] == name
    assert tagged.get(TAGS).json()["tags"] == ["%2F", *LEGAL]


def test_pages_of_tags_come_in_name_order_and_may_be_of_a_prefix(tagged: TestClient) -> None:
    for name in ("b2", "a1", "b1", "a_2"):
        create_tag(tagged, name)
    first = tagged.get(TAGS, params={"maxResults": 3}).json()
    assert first == {"tags": ["a1", "a_2", "b1"], "nextPageToken": "b1"}
    assert tagged.get(TAGS, params={"pageToken": "b1"}).json() == {"tags": ["b2"], "nextPageToken": None}
    assert tagged.get(TAGS, params={"tagNamePrefix": "a_"}).json()["tags"] == ["a_2"]
    assert tagged.get(TAGS, params={"tagNamePrefix": ""}).json()["tags"] == ["a1", "a_2", "b1", "b2"]


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=2, minutes=3), "PT48H3M"),
        (timedelta(seconds=90), "PT1M30S"),
        (timedelta(milliseconds=500), "PT0.5S"),
        (timedelta(seconds=20), "PT20S"),
        (timedelta(0), "PT0S"),
    ],
)
def test_durations_are_spelled_as_paimon_spells_them(duration: timedelta, text: str) -> None:
    assert iso_duration(duration) == text
