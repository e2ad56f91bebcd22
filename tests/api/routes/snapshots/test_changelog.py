"""``T/changelog``: pages, media types, and what a request may ask for."""

from __future__ import annotations

import json
from datetime import time
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, Create, Merge, fields_of

CHANGELOG = f"{TABLES}/wide/changelog"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def wide(create: Create, shop: TestClient, merge: Merge) -> TestClient:
    """A client of a catalog with the table ``wide``, in which two merges wrote, changed and deleted rows."""
    create(options={"changelog-producer": "lookup"})
    merge({"id": 1, "note": "a"})
    merge({"id": 1, "note": "b"}, {"id": 2})
    return shop


FIRST = {"_kind": "+I", "_snapshot": 1, "id": 1, "note": "a"}
BEFORE = {"_kind": "-U", "_snapshot": 2, "id": 1, "note": "a"}
AFTER = {"_kind": "+U", "_snapshot": 2, "id": 1, "note": "b"}
SECOND = {"_kind": "+I", "_snapshot": 2, "id": 2, "note": None}


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def in_order(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(changes, key=lambda one: (one["_snapshot"], one["id"]))


def test_changes_are_lines_of_json_of_both_snapshots(wide: TestClient) -> None:
    answer = wide.get(CHANGELOG)
    assert in_order(lines(answer)) == [FIRST, BEFORE, AFTER, SECOND]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["keyfold-snapshot"] == "2"
    assert "next-page-token" not in answer.headers
    assert lines(wide.get(CHANGELOG, params={"toSnapshot": 1})) == [FIRST]
    assert lines(wide.get(CHANGELOG, params={"fromSnapshot": 2})) == lines(answer)[1:]


def test_pages_lead_to_each_other_by_link_and_by_token(wide: TestClient, merge: Merge) -> None:
    whole = lines(wide.get(CHANGELOG))
    answer = wide.get(CHANGELOG, params={"maxResults": 1})
    found = lines(answer)
    merge({"id": 3})  # what comes meanwhile is not in the range that the first page began
    while "link" in answer.headers:
        target, relation = answer.headers["link"].split("; ")
        assert relation == 'rel="next"'
        assert f"pageToken={answer.headers['next-page-token']}&" in target
        answer = wide.get(target.strip("<>"))
        found += lines(answer)
    assert found == whole
    token = wide.get(CHANGELOG, params={"maxResults": 2}).headers["next-page-token"]
    assert lines(wide.get(CHANGELOG, params={"pageToken": token, "fromSnapshot": 1, "toSnapshot": 2})) == whole[2:]


@pytest.mark.parametrize("accept", [ARROW, f"text/html, {ARROW};q=0.9, */*;q=0.1"])
def test_changes_are_an_arrow_stream_when_asked_for(accept: str, wide: TestClient) -> None:
    answer = wide.get(CHANGELOG, headers={"Accept": accept})
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.to_pylist() == lines(wide.get(CHANGELOG))
    assert table.schema.field("id").type == pa.int64()
    nothing = wide.get(CHANGELOG, params={"pageToken": "2.99"}, headers={"Accept": ARROW})
    assert pa.ipc.open_stream(nothing.content).read_all().schema == table.schema


def test_times_are_times_in_arrow(create: Create, shop: TestClient, merge: Merge) -> None:
    create(fields=fields_of(id="TIME NOT NULL", of="MAP<TIME, INT>"))
    merge({"id": "00:00:01", "of": {"00:00:02": 3}})
    answer = shop.get(CHANGELOG, headers={"Accept": ARROW})
    [row] = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    assert (row["id"], row["of"]) == (time(0, 0, 1), [(time(0, 0, 2), 3)])


def test_a_table_without_a_merge_has_an_empty_changelog(create: Create, shop: TestClient) -> None:
    create()
    assert lines(shop.get(CHANGELOG)) == []


def test_every_fault_of_the_parameters_is_reported_at_once(wide: TestClient) -> None:
    query = "fromSnapshot=x&toSnapshot=0&maxResults=1e3&pageToken=5"
    answer = wide.get(f"{CHANGELOG}?{query}", headers={"Last-Event-ID": "1.1.1.1"})
    assert answer.status_code == 400
    pointers = [fault["pointer"] for fault in answer.json()["errors"]]
    assert pointers == ["/fromSnapshot", "/toSnapshot", "/maxResults", "/pageToken", "/Last-Event-ID"]
    answer = wide.get(CHANGELOG, params={"fromSnapshot": 2, "toSnapshot": 1})
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/toSnapshot"]


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_snapshots_that_are_not_there_are_not_found(accept: str, wide: TestClient) -> None:
    answer = wide.get(CHANGELOG, params={"fromSnapshot": 4}, headers={"Accept": accept})
    assert (answer.status_code, answer.json()["errorCode"]) == (404, "snapshot_not_found")
    assert answer.json()["detail"] == "snapshot 4 of shop.wide does not exist yet: the changelog has snapshots 1 to 2"


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_a_table_whose_merges_say_nothing_of_rows_refuses(accept: str, create: Create, shop: TestClient) -> None:
    create(options={"merge-engine": "aggregation"})
    answer = shop.get(CHANGELOG, headers={"Accept": accept})
    assert (answer.status_code, answer.json()["errorCode"]) == (409, "changelog_not_kept")
    assert "set changelog-producer to lookup or full-compaction" in answer.json()["detail"]


def test_events_up_to_a_snapshot_end_there(wide: TestClient, merge: Merge) -> None:
    merge({"id": 9})
    params = {"fromSnapshot": 1, "toSnapshot": 2}
    answer = wide.get(CHANGELOG, params=params, headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in answer.text.split("\n\n")[1:-1]]
    assert events.pop(0)["event"] == "schema"
    assert [json.loads(event["data"]) for event in events] == lines(wide.get(CHANGELOG, params=params))
    assert [event["id"] for event in events] == ["2.0", "2.1", "2.2", "3.0"]


HOSTILE_IDS = [b"\xff", b"9" * 5000, b"-1.0", b"1.9999999999999999", b"0.0", b"1,2", b"1.0;"]


def test_hostile_event_ids_are_refused(wide: TestClient) -> None:
    for sent in HOSTILE_IDS:
        answer = wide.get(CHANGELOG, headers=[(b"Accept", b"text/event-stream"), (b"Last-Event-ID", sent)])
        assert answer.status_code == 400, sent
        assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/Last-Event-ID"], sent
