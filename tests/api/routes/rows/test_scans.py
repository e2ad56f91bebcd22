"""``GET T/rows:scan`` through HTTP: media types, pages, what is refused."""

from __future__ import annotations

import csv
import io
import itertools
import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from app.services.upkeep.sweeps import sweep
from tests.api.conftest import TABLES, Merge, new_table, parts_of

TABLE = f"{TABLES}/wide"
SCAN = f"{TABLE}/rows:scan"


@pytest.fixture
def filled(shop: TestClient, merge: Merge) -> TestClient:
    """A table of ten merged rows, two of which are changed by what is staged, and one that is staged only."""
    shop.post(TABLES, json=new_table(options={"merge.max-staleness": "1 d"}))
    merge(*({"id": n, "note": f"n{n % 3}"} for n in range(10)))
    shop.post(f"{TABLE}/batches", json={"records": [{"id": n, "note": "new"} for n in (1, 2, 77)]})
    return shop


def rows(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_a_scan_and_a_count_see_what_is_staged_unless_they_ask_for_less(filled: TestClient) -> None:
    answer = filled.get(SCAN)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["keyfold-snapshot"] == "1"
    assert answer.headers["keyfold-batch"] == "2"
    assert sorted(row["id"] for row in rows(answer)) == [*range(10), 77]
    merged = filled.get(SCAN, params={"consistency": "merged"})
    assert merged.headers["keyfold-batch"] == "1"
    assert sorted(row["id"] for row in rows(merged)) == [*range(10)]
    assert rows(filled.get(SCAN, params={"snapshot": "1"})) == rows(merged)
    for row in rows(answer):
        assert filled.get(f"{TABLE}/rows", params={"key": row["id"]}).json() == row

    assert filled.get(f"{TABLE}/rows:count").json() == {"count": 11, "exact": True, "snapshotId": 1}
    asked = {"filter": ["note.eq.new", "id.lt.50"], "exact": "true"}
    assert filled.get(f"{TABLE}/rows:count", params=asked).json()["count"] == 2
    merged = {"filter": "note.eq.new", "consistency": "merged"}
    assert filled.get(f"{TABLE}/rows:count", params=merged).json()["count"] == 0
    assert filled.get(f"{TABLE}/rows:count", params={"exact": "perhaps"}).status_code == 400
    assert filled.get(f"{TABLE}/rows:count", params={"filter": "x"}).status_code == 400


def test_the_media_types_hold_the_same_rows(filled: TestClient) -> None:
    whole = rows(filled.get(SCAN))
    arrow = filled.get(SCAN, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == whole
    parquet = filled.get(SCAN, headers={"Accept": "application/vnd.apache.parquet"})
    assert pq.read_table(io.BytesIO(parquet.content)).to_pylist() == whole
    text = filled.get(SCAN, headers={"Accept": "text/html, text/csv;q=0.5"})
    assert text.headers["content-type"].startswith("text/csv")
    read = list(csv.DictReader(io.StringIO(text.text)))
    assert [{"id": int(row["id"]), "note": row["note"]} for row in read] == whole
    posted = filled.post(f"{TABLE}/batches", content=text.content, headers={"Content-Type": "text/csv"})
    assert posted.json()["records"] == len(whole)


def test_an_empty_table_is_a_whole_answer(shop: TestClient) -> None:
    shop.post(TABLES, json=new_table())
    assert filled_lines(shop, "application/x-ndjson") == b""
    assert filled_lines(shop, "text/csv") == b"id,note\r\n"
    arrow = pa.ipc.open_stream(filled_lines(shop, "application/vnd.apache.arrow.stream")).read_all()
    parquet = pq.read_table(io.BytesIO(filled_lines(shop, "application/vnd.apache.parquet")))
    assert arrow.schema == parquet.schema
    assert (arrow.num_rows, parquet.num_rows, arrow.column_names) == (0, 0, ["id", "note"])


def filled_lines(client: TestClient, kind: str) -> bytes:
    response = client.get(SCAN, headers={"Accept": kind})
    assert response.status_code == 200
    return bytes(response.content)


@pytest.mark.parametrize("size", [1, 4, 11])
def test_the_links_of_pages_lead_to_the_end(filled: TestClient, size: int) -> None:
    whole = rows(filled.get(SCAN, params={"columns": "note", "filter": "note.ne.n0"}))
    found: list[dict[str, Any]] = []
    answer = filled.get(SCAN, params={"columns": "note", "filter": "note.ne.n0", "limit": size})
    while True:
        found += rows(answer)
        if "link" not in answer.headers:
            break
        link = answer.headers["link"]
        assert answer.headers["keyfold-next-page"] in link
        filled.post(f"{TABLE}/batches", json={"records": [{"id": 1000 + len(found)}]})
        answer = filled.get(link[1 : link.index(">")])
    assert found == whole


def test_what_a_scan_cannot_have_is_refused(filled: TestClient) -> None:
    token = filled.get(SCAN, params={"limit": 1}).headers["keyfold-next-page"]
    for params, code in (
        ({"limit": 0}, "out_of_range"),
        ({"limit": 1_000_000}, "out_of_range"),
        ({"limit": "x"}, "int_parsing"),
        ({"columns": "nope"}, "unknown_column"),
        ({"filter": "nte.eq.1"}, "unknown_column"),
        ({"filter": "id.eq.x"}, "wrong_type"),
        ({"filter": "note.near.x"}, "enum"),
        ({"filter": "note.like." + "x" * 1001}, "too_long"),
        ({"pageToken": "x"}, "not_a_position"),
        ({"pageToken": token, "filter": "id.eq.1"}, "not_a_position"),
        ({"pageToken": token, "snapshot": "1"}, "contradicting_parameters"),
        ({"pageToken": token, "lastToken": "0"}, "not_a_position"),
        ({"firstToken": str(2**63)}, "wrong_type"),
        ({"lastToken": "x"}, "int_parsing"),
        ({"limt": 1}, "unknown_parameter"),
    ):
        answer = filled.get(SCAN, params=params)
        assert answer.status_code == 400, (params, answer.text)
        assert [fault["code"] for fault in answer.json()["errors"]] == [code], params
    assert "did you mean note?" in filled.get(SCAN, params={"filter": "nte.eq.1"}).text
    assert filled.get(SCAN, params={"snapshot": "9"}).status_code == 404
    assert filled.get(f"{TABLE}x/rows:scan").status_code == 404


@pytest.mark.parametrize("consistency", ["latest", "merged"])
def test_ranges_of_tokens_are_shares_of_the_table(filled: TestClient, consistency: str) -> None:
    whole = rows(filled.get(SCAN, params={"consistency": consistency}))
    bounds = [-(2**63), -(2**62), 0, 2**62, 2**63]
    shares = []
    for first, end in itertools.pairwise(bounds):
        tokens = {"firstToken": str(first), "lastToken": str(end - 1), "consistency": consistency}
        share = rows(filled.get(SCAN, params=tokens))
        pages, params = [], {**tokens, "limit": "1"}
        while True:  # the same, a row at a time
            answer = filled.get(SCAN, params=params)
            pages += rows(answer)
            if "keyfold-next-page" not in answer.headers:
                break
            params = {"firstToken": tokens["firstToken"], "lastToken": tokens["lastToken"], "limit": "1"}
            params["pageToken"] = answer.headers["keyfold-next-page"]
        assert pages == share
        shares.append(share)
    assert [row for share in shares for row in share] == whole
    assert sum(bool(share) for share in shares) > 1
    assert rows(filled.get(SCAN, params={"firstToken": "1", "lastToken": "0"})) == []


def test_a_page_whose_staged_records_were_merged_and_swept_says_to_begin_again(
    filled: TestClient, merge: Merge
) -> None:
    page = {"limit": "1", "pageToken": filled.get(SCAN, params={"limit": "1"}).headers["keyfold-next-page"]}
    merge()
    assert filled.get(SCAN, params=page).status_code == 200
    parts = parts_of(filled)
    sweep(parts.database, parts.warehouse, timedelta(0))
    answer = filled.get(SCAN, params=page)
    assert answer.status_code == 404
    assert "begin it again, without pageToken" in answer.text


def test_files_are_named(filled: TestClient) -> None:
    answer = filled.get(f"{TABLE}/files").json()
    assert (answer["snapshotId"], answer["complete"], answer["nextPageToken"]) == (1, True, None)
    assert [(file["rows"], file["liveRows"]) for file in answer["files"]] == [(10, 10)]
    assert answer["files"][0]["uri"].endswith(".parquet")
    assert filled.get(f"{TABLE}/files", params={"snapshot": "9"}).status_code == 404
    assert filled.get(f"{TABLE}/files", params={"pageToken": "x"}).status_code == 400


def test_a_long_scan_is_streamed_whole(shop: TestClient, merge: Merge) -> None:
    shop.post(TABLES, json=new_table(options={"merge.max-staleness": "1 d"}))
    merge(*({"id": n, "note": "x" * 200} for n in range(9_000)))
    answer = shop.get(SCAN)
    assert "content-length" not in answer.headers
    assert sorted(row["id"] for row in rows(answer)) == list(range(9_000))
