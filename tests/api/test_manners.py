"""What every route does alike, walked over the OpenAPI document so that a new route cannot forget it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.shared.paging import page_size
from tests.api.conftest import DATABASES, TABLES, fields_of, new_table
from tests.api.walk import BODIES, DOCUMENT, OPERATIONS, READS, TABLE, Fill, headers_of, query

PAGED = [
    path
    for path in READS
    if any(parameter["name"] == "maxResults" for parameter in DOCUMENT[path]["get"].get("parameters", []))
]


@pytest.fixture
def shop(walked: tuple[TestClient, Fill]) -> TestClient:
    return walked[0]


@pytest.fixture
def fill(walked: tuple[TestClient, Fill]) -> Fill:
    return walked[1]


def problem(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_the_document_has_routes_to_walk() -> None:
    assert len(OPERATIONS) > 40
    assert len(PAGED) > 8


def seen(client: TestClient) -> list[Any]:
    paths = (DATABASES, TABLES, TABLE, *(f"{TABLE}/{name}" for name in ("batches", "tags", "merges", "snapshots")))
    return [client.get(path).json() for path in paths]


@pytest.mark.parametrize("slash", ["", "/"])
def test_an_unknown_parameter_is_refused_and_changes_nothing(shop: TestClient, fill: Fill, slash: str) -> None:
    before = seen(shop)
    for path, method in OPERATIONS:
        operation = DOCUMENT[path][method]
        answer = shop.request(
            method,
            fill(path) + (slash if not path.endswith("{key}:explain") else ""),  # it would be part of a key
            params={**query(path), "surprise": "1"},
            json=BODIES.get(operation["operationId"]),
            follow_redirects=False,
        )
        faults = problem(answer)["errors"]
        assert [(fault["code"], fault["pointer"]) for fault in faults] == [("unknown_parameter", "")], path
        declared = [parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"]
        assert all(name in faults[0]["fix"] for name in declared), path
    assert seen(shop) == before


def test_a_misspelled_parameter_is_reported_the_nearest_name(shop: TestClient, fill: Fill) -> None:
    reported = problem(shop.get(f"{TABLE}/rows", params={"key": "1", "consistancy": "latest", "snapshots": "1"}))
    assert [fault["fix"] for fault in reported["errors"]] == ["did you mean consistency?", "did you mean snapshot?"]
    assert reported["errorCount"] == 2


def test_what_paimons_clients_send_is_declared(shop: TestClient) -> None:
    assert shop.get("/v1/config", params={"warehouse": "somewhere"}).status_code == 200
    paged = {"maxResults": "0", "pageToken": ""}
    assert shop.get(DATABASES, params={**paged, "databaseNamePattern": "s%"}).json()["databases"] == ["shop"]
    for of_tables in (TABLES, f"{DATABASES}/shop/table-details"):
        sent = {**paged, "tableNamePattern": "%", "tableType": "table"}
        assert shop.get(of_tables, params=sent).status_code == 200
    assert shop.get(f"{TABLE}/partitions", params={**paged, "partitionNamePattern": "day=%"}).status_code == 200
    assert shop.get(f"{TABLE}/partitions", params={"partitionNamePattern": "\\"}).status_code == 400


@pytest.mark.parametrize("slash", ["", "/"])
def test_head_answers_the_headers_of_get_and_no_body(shop: TestClient, fill: Fill, slash: str) -> None:
    for path in READS:
        asked = fill(path) + (slash if "{key}" not in path else "")
        plain = {"Accept-Encoding": "identity"}  # HEAD has no body to compress
        got, headers = (shop.request(one, asked, params=query(path), headers=plain) for one in ("GET", "HEAD"))
        assert got.status_code in (200, 503), got.text  # readiness: no Spark here
        assert (headers.status_code, headers.content) == (got.status_code, b""), path
        assert headers_of(headers) == headers_of(got)
        assert int(headers.headers["content-length"]) == len(got.content)


def test_head_of_a_missing_row_is_a_404_without_a_body(shop: TestClient, fill: Fill) -> None:
    answer = shop.head(f"{TABLE}/rows/77")
    assert (answer.status_code, answer.content) == (404, b"")
    assert answer.headers["content-type"] == "application/problem+json"


def test_head_of_events_ends(shop: TestClient, fill: Fill) -> None:
    answer = shop.head(f"{TABLE}/changelog", headers={"Accept": "text/event-stream"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_allow_names_every_method_of_the_path(shop: TestClient, fill: Fill) -> None:
    for path in DOCUMENT:
        found = [item for pattern, item in DOCUMENT.items() if pattern == path or same_route(pattern, path)]
        expected = {method.upper() for item in found for method in item}
        expected |= {"HEAD"} if "GET" in expected else set()
        for slash in ("", "/") if "{key}" not in path else ("",):
            answer = shop.request("PROPFIND", fill(path) + slash)
            assert (answer.status_code, answer.json()["errorCode"]) == (405, "method_not_allowed"), path
            assert set(answer.headers["allow"].split(", ")) == expected
            assert all(method in answer.json()["detail"] for method in expected)


def same_route(pattern: str, path: str) -> bool:
    """Whether the last segment of ``path`` is one that ``pattern`` takes as a name."""
    head, _, last = pattern.rpartition("/")
    same, _, name = path.rpartition("/")
    return last.startswith("{") and last.endswith("}") and same == head and (":" not in name or last == "{key}")


def test_a_batch_posted_with_a_slash_is_stored(shop: TestClient, fill: Fill) -> None:
    answer = shop.post(f"{TABLE}/batches/", json={"records": [{"id": 9}]}, follow_redirects=False)
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{TABLE}/batches/{answer.json()['id']}"
    assert shop.get(answer.headers["location"]).json()["records"] == 1


@pytest.mark.parametrize("slashes", [2, 3, 600])
def test_two_slashes_at_the_end_are_no_route(shop: TestClient, caplog: pytest.LogCaptureFixture, slashes: int) -> None:
    for path in (f"{TABLE}/batches", f"{TABLE}/nothing%20here", ""):
        sent = path + "/" * slashes
        answer = shop.get(f"http://localhost{sent}", follow_redirects=False)
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "route_not_found")
        assert answer.json()["instance"] == sent
    assert [record for record in caplog.records if record.name.startswith("app")] == []


@pytest.fixture(scope="module")
def texts(walked: tuple[TestClient, Fill]) -> str:
    """The path of a table whose keys are texts that a path must not change."""
    fields = fields_of(id="STRING NOT NULL", n="INT")
    shop = walked[0]
    assert shop.post(TABLES, json=new_table("texts", fields=fields)).status_code == 200
    rows = [{"id": key, "n": place} for place, key in enumerate(KEYS)]
    assert shop.post(f"{TABLES}/texts/batches", json={"records": rows}).status_code == 202
    return f"{TABLES}/texts"


KEYS = ("a", "a/", "/a", "a//", "/", "\n", "a\n", "a\nb", "a/b", "")


SENT = [
    ("a", "a"),
    ("a%2F", "a/"),
    ("a/", "a/"),
    ("%2Fa", "/a"),
    ("a%2F%2F", "a//"),
    ("a%2F/", "a//"),
    ("%2F", "/"),
    ("%0A", "\n"),
    ("a%0A", "a\n"),
    ("a%0Ab", "a\nb"),
    ("a/b", "a/b"),
]


def test_a_key_in_the_path_is_what_was_sent(shop: TestClient, texts: str) -> None:
    for sent, key in SENT:
        for method in ("GET", "HEAD"):
            answer = shop.request(method, f"{texts}/rows/{sent}?consistency=latest", follow_redirects=False)
            assert answer.status_code == 200, answer.text
        assert shop.get(f"{texts}/rows/{sent}?consistency=latest").json() == {"id": key, "n": KEYS.index(key)}, sent


def test_a_query_of_rows_may_end_its_path_in_a_slash(shop: TestClient, texts: str) -> None:
    for key in KEYS:
        answer = shop.get(f"{texts}/rows/", params={"key": key, "consistency": "latest"}, follow_redirects=False)
        assert answer.json() == {"id": key, "n": KEYS.index(key)}


def test_an_encoded_slash_belongs_to_the_name(shop: TestClient) -> None:
    answer = shop.get(f"{DATABASES}/shop%2F", follow_redirects=False)
    assert answer.status_code == 404
    assert answer.json()["errorCode"] == "route_not_found"


def test_a_page_size_out_of_range_is_clamped(shop: TestClient, fill: Fill) -> None:
    for path in PAGED:
        whole = shop.get(fill(path))
        for size in ("0", "-1", str(-(2**63)), "1001", "10001", str(2**63 - 1)):
            answer = shop.get(fill(path), params={"maxResults": size})
            assert (answer.status_code, answer.content) == (200, whole.content), answer.text
        assert shop.get(fill(path), params={"maxResults": "1"}).status_code == 200
        for size in ("ten", str(2**63), str(-(2**63) - 1)):  # the document says that it has 64 bits
            assert "maxResults" in problem(shop.get(fill(path), params={"maxResults": size}))["detail"]


def test_a_page_is_as_large_as_asked_within_bounds() -> None:
    assert [page_size(asked) for asked in (None, -5, 0, 1, 1000, 1001)] == [100, 100, 100, 1, 1000, 1000]
