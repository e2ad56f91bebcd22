"""What a client accepts: media types, and how answers are encoded on their way."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard
from fastapi.testclient import TestClient

from app.api.middleware.negotiation import chosen, takes_json
from app.core.errors import NotAcceptable
from tests.api.conftest import TABLES, new_table
from tests.api.walk import BODIES, DOCUMENT, OPERATIONS, TABLE, Fill, query

NDJSON, ARROW, CSV = "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/csv"
SCAN = f"{TABLE}/rows:scan"


@pytest.mark.parametrize(
    ("accept", "best"),
    [
        (None, "a/a"),
        ("", "a/a"),
        ("*/*", "a/a"),
        ("a/*, b/b;q=0.5", "a/a"),
        ("a/a;q=0.1, b/b", "b/b"),
        ("b/b;q=0.8, */*;q=0.1", "b/b"),
        ("text/html, */*;q=0.1", "a/a"),
        ("B/B", "b/b"),
    ],
)
def test_the_caller_has_the_type_that_it_likes_best(accept: str | None, best: str) -> None:
    assert chosen(accept, ("a/a", "b/b")) == best


@pytest.mark.parametrize("accept", ["text/html", "a/a;q=0", "nonsense", "a/a;q=0, c/c"])
def test_a_caller_that_takes_none_of_them_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable) as refused:
        chosen(accept, ("a/a", "b/b") if "q=0" not in accept else ("a/a",))
    assert refused.value.violations[0].code == "not_acceptable"


def test_json_is_taken_where_it_is_not_ruled_out() -> None:
    assert [takes_json(one) for one in (b"*/*", b"application/json", b"application/*", b"text/csv")] == [
        *(True, True, True, False)
    ]


def test_an_operation_that_makes_nothing_acceptable_does_nothing(walked: tuple[TestClient, Fill]) -> None:
    client, fill = walked
    before = client.get(TABLE).json(), client.get(f"{TABLE}/batches").json()
    refused = 0
    for path, method in OPERATIONS:
        operation = DOCUMENT[path][method]
        answered = {
            media_type
            for status, reported in operation["responses"].items()
            if status.startswith("2")
            for media_type in reported.get("content", {})
        }
        if not answered:
            continue
        sent = {"Accept": "application/x-nothing"}
        answer = client.request(
            method, fill(path), params=query(path), json=BODIES.get(operation["operationId"]), headers=sent
        )
        assert (answer.status_code, answer.json()["errorCode"]) == (406, "not_acceptable"), path
        assert all(media_type in answer.json()["detail"] for media_type in answered), path
        refused += 1
    assert refused > 40
    assert (client.get(TABLE).json(), client.get(f"{TABLE}/batches").json()) == before


@pytest.mark.parametrize(
    ("accept", "made"), [(None, NDJSON), (CSV, CSV), (f"{NDJSON};q=0.5, {ARROW}", ARROW), ("text/*", CSV)]
)
def test_a_scan_is_made_as_the_caller_likes(walked: tuple[TestClient, Fill], accept: str | None, made: str) -> None:
    answer = walked[0].get(SCAN, headers={"Accept": accept} if accept else {"Accept": "*/*"})
    assert answer.headers["content-type"].split(";")[0] == made


def test_a_lookup_that_takes_no_json_is_refused(walked: tuple[TestClient, Fill]) -> None:
    answer = walked[0].get(f"{TABLE}/rows?key=1", headers={"Accept": "text/csv"})
    assert (answer.status_code, answer.json()["errorCode"]) == (406, "not_acceptable")


def raw(client: TestClient, path: str, **headers: str) -> tuple[dict[str, str], bytes]:
    """The headers and the body as they came over the wire."""
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, path
        return dict(answer.headers), b"".join(answer.iter_raw())


@pytest.fixture
def large(shop: TestClient) -> str:
    """The path of a table whose description takes some kilobytes."""
    fields = [{"name": "id", "type": "BIGINT NOT NULL"}]
    fields += [{"name": f"column_{number}", "type": "STRING"} for number in range(50)]
    shop.post(TABLES, json=new_table("large", fields=fields)).raise_for_status()
    records = [{"id": key, **{f"column_{number}": "much the same" for number in range(50)}} for key in range(3)]
    shop.post(f"{TABLES}/large/batches", json={"records": records}).raise_for_status()
    return f"{TABLES}/large"


@pytest.mark.parametrize("asked", ["", "/rows:scan", "/rows?key=1"])
def test_an_answer_is_encoded_as_the_caller_takes_it(shop: TestClient, large: str, asked: str) -> None:
    plain, whole = raw(shop, large + asked, **{"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain
    tags = {plain["etag"]}
    for taken, coding, decoded in (
        ("gzip", "gzip", gzip.decompress),
        ("gzip, zstd", "zstd", lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body)),
        ("gzip;q=0.5, zstd;q=0", "gzip", gzip.decompress),
    ):
        headers, body = raw(shop, large + asked, **{"Accept-Encoding": taken})
        assert headers["content-encoding"] == coding
        assert decoded(body) == whole
        assert len(body) < len(whole) / 3
        tags.add(headers["etag"])
        again = shop.get(large + asked, headers={"Accept-Encoding": taken, "If-None-Match": headers["etag"]})
        assert (again.status_code, again.headers["etag"]) == (304, headers["etag"])
    assert len(tags) == 3, "each encoding is a representation of its own"
    assert "accept-encoding" in plain["vary"].lower()


def test_a_condition_may_name_the_etag_of_a_compressed_answer(shop: TestClient, large: str) -> None:
    headers, _ = raw(shop, large, **{"Accept-Encoding": "gzip"})
    assert headers["etag"].endswith('--gzip"')
    change = {"changes": [{"action": "updateComment", "comment": "other"}]}
    sent = {"If-Match": headers["etag"], "Accept-Encoding": "gzip"}
    assert shop.post(large, json=change, headers=sent).status_code == 200
    assert shop.post(large, json=change | {"changes": change["changes"] * 2}, headers=sent).status_code == 412


def test_who_takes_no_encoding_any_more_may_name_that_etag_too(shop: TestClient, large: str) -> None:
    headers, _ = raw(shop, large, **{"Accept-Encoding": "gzip"})
    change = {"changes": [{"action": "updateComment", "comment": "other"}]}
    asked = shop.build_request("POST", large, json=change, headers={"If-Match": headers["etag"]})
    asked.headers.pop("Accept-Encoding", None)
    assert shop.send(asked).status_code == 200


def test_what_is_small_or_no_text_goes_as_it_is(shop: TestClient, large: str) -> None:
    small, _ = raw(shop, "/healthz", **{"Accept-Encoding": "gzip"})
    arrow, _ = raw(shop, f"{large}/rows:scan", **{"Accept-Encoding": "gzip", "Accept": ARROW})
    assert "content-encoding" not in small | arrow


def test_problems_are_encoded_too(shop: TestClient, large: str) -> None:
    records = [{"id": "x"}] * 50
    with shop.stream(
        "POST", f"{large}/batches", json={"records": records}, headers={"Accept-Encoding": "gzip"}
    ) as answer:
        body = b"".join(answer.iter_raw())
    assert (answer.status_code, answer.headers["content-encoding"]) == (400, "gzip")
    assert json.loads(gzip.decompress(body))["errorCount"] == 50
