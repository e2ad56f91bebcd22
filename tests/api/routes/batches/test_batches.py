"""``POST T/batches`` and what becomes of them."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.paths import TABLE_PATH
from app.services.bodies.formats import FORMATS
from tests.api.conftest import TABLES, Create, Merge, Opened, faults_of, new_table

BATCHES = f"{TABLES}/wide/batches"
NDJSON = {"Content-Type": "application/x-ndjson"}
LINES = ["application/x-ndjson", "application/jsonl", "application/x-jsonlines; a=b"]


def post(client: TestClient, *records: Any, **headers: str) -> Any:
    return client.post(BATCHES, json={"records": records}, headers=headers)


def listed(client: TestClient) -> list[str]:
    return [batch["id"] for batch in client.get(BATCHES).json()["batches"]]


def test_a_batch_is_accepted_with_its_id_number_state_and_counts(wide: TestClient) -> None:
    answer = post(wide, {"id": 1, "note": "a"}, {"id": 2})
    assert answer.status_code == 202
    body = answer.json()
    assert answer.headers["location"] == f"{BATCHES}/{body['id']}"
    assert body["sizeBytes"] > 0
    assert 1_700_000_000_000 < body["acceptedAt"] < 10_000_000_000_000
    assert (body["number"], body["state"], body["records"], body["ignoredRecords"]) == (1, "staged", 2, 0)
    assert wide.get(answer.headers["location"]).json() == body


@pytest.mark.parametrize("sent", ["a%20b%2B%E6%97%A5", "a+b%2B%E6%97%A5"])
def test_the_location_leads_to_the_batch_of_an_oddly_named_table(create: Create, shop: TestClient, sent: str) -> None:
    create("a b+日")
    for what in ("batches", "merges"):
        answer = shop.post(f"{TABLES}/{sent}/{what}", json={"records": [{"id": 1}]})
        assert answer.status_code == 202
        assert answer.headers["location"] == f"{TABLES}/{sent}/{what}/{answer.json()['id']}"
        assert shop.get(answer.headers["location"]).json() == answer.json()


def test_records_that_the_table_ignores_are_counted(create: Create, shop: TestClient) -> None:
    create(options={"ignore-delete": "true"})
    body = post(shop, {"id": 1}, {"id": 1, "_kind": "-D"}, {"id": 2, "_kind": "-U"}).json()
    assert (body["records"], body["ignoredRecords"]) == (1, 2)


@pytest.mark.parametrize("media_type", [None, "application/json", "Application/JSON; charset=utf-8", *LINES])
def test_json_is_the_format_also_where_none_is_named_or_is_one_record_a_line(
    wide: TestClient, media_type: str | None
) -> None:
    body = b'{"id": 1}\n\n{"id": 2}\r\n  \n' if media_type in LINES else b'{"records": [{"id": 1}, {"id": 2}]}'
    answer = wide.post(BATCHES, content=body, headers={} if media_type is None else {"Content-Type": media_type})
    assert (answer.status_code, answer.json()["records"]) == (202, 2)


def test_every_format_is_described(app: FastAPI) -> None:
    described = app.openapi()["paths"][f"{TABLE_PATH}/batches"]["post"]["requestBody"]["content"]
    assert {FORMATS[media_type] for media_type in described} == set(FORMATS.values())


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {"Content-Type": one}
            for one in ("text/tsv", "application/x-www-form-urlencoded", "multipart/form-data", "x")
        ),
        {"Content-Encoding": "br"},
    ],
)
def test_another_format_is_refused_with_what_else_to_send(wide: TestClient, headers: dict[str, str]) -> None:
    answer = wide.post(BATCHES, content=b"id=1", headers=headers)
    assert (answer.status_code, answer.json()["errorCode"]) == (415, "unsupported_media_type")
    assert answer.headers["accept"] == ", ".join(FORMATS)
    assert "zstd" in answer.headers["accept-encoding"]
    assert listed(wide) == []


CHARSETS = ["utf-8", "UTF8", '"utf-8"', "us-ascii", "utf-8; header=present"]


def test_csv_says_that_it_is_utf_8(wide: TestClient) -> None:
    for charset in CHARSETS:
        answer = wide.post(BATCHES, content="id,note\n1,é\n", headers={"Content-Type": f"text/csv; charset={charset}"})
        assert answer.status_code == 202, answer.text


OTHER_CHARSETS = [("ISO-2022-JP", "iso-2022-jp"), ("gbk", "gbk"), ("no\0pe", "no\\x00pe")]


def test_csv_in_another_charset_is_refused_though_its_bytes_are_utf_8(wide: TestClient) -> None:
    body = "id,note\n1,日\n".encode("iso-2022-jp")
    assert body.decode("utf-8") != "id,note\n1,日\n"
    for charset, shown in OTHER_CHARSETS:
        answer = wide.post(BATCHES, content=body, headers={"Content-Type": f"text/csv; charset={charset}"})
        assert answer.status_code == 415, charset
        assert answer.json()["detail"] == f"cannot read CSV in the charset '{shown}'; send it in UTF-8", charset


def test_columns_and_change_events_are_posted_as_records_are(wide: TestClient) -> None:
    body = gzip.compress(b"id,note,_kind\r\n1,a,\r\n2,,delete\r\n")
    headers = {"Content-Type": "text/csv; charset=utf-8", "Content-Encoding": "gzip"}
    assert wide.post(BATCHES, content=body, headers=headers).json()["records"] == 2
    event = {"op": "c", "before": None, "after": {"id": 3, "note": "b"}}
    assert wide.post(BATCHES, params={"format": "debezium-json"}, json=event).json()["records"] == 1
    found = [wide.get(f"{TABLES}/wide/rows/{key}?consistency=latest").status_code for key in (1, 2, 3)]
    assert found == [200, 404, 200]
    wrong = wide.post(BATCHES, content=b"id,x\n1,2\n", headers={"Content-Type": "text/csv"})
    assert faults_of(wrong) == [("/columns/x", "unknown_column")]


NO_KINDS = ['"\\ud800"', '"\xfc"', '""', "5", "null", '"+X"']


def test_a_kind_that_is_none_is_a_fault_of_its_record_whatever_it_is(wide: TestClient) -> None:
    for kind in NO_KINDS:
        body = f'{{"records": [{{"id": 1, "_kind": "+U"}}, {{"id": 2, "_kind": {kind}}}]}}'.encode()
        answer = wide.post(BATCHES, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, kind
        assert faults_of(answer) == [("/records/1/_kind", "bad_row_kind")], kind


def test_every_fault_is_named_with_row_and_column_and_nothing_is_stored(wide: TestClient) -> None:
    answer = post(wide, {"id": 1}, {"id": "x", "note": 5}, {"note": "a"}, 7, {"id": 4, "nope": 1, "_kind": "?"})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert sorted(faults_of(answer)) == [
        ("/records/1/id", "wrong_type"),
        ("/records/1/note", "wrong_type"),
        ("/records/2/id", "missing_column"),
        ("/records/3", "not_an_object"),
        ("/records/4/_kind", "bad_row_kind"),
        ("/records/4/nope", "unknown_column"),
    ]
    assert answer.json()["errorCount"] == 6
    assert {(fault["row"], fault.get("column")) for fault in answer.json()["errors"]} >= {(1, "id"), (3, None)}
    assert all(fault["fix"] for fault in answer.json()["errors"])
    assert listed(wide) == []


def test_of_very_many_faults_a_hundred_are_named_and_all_are_counted(wide: TestClient) -> None:
    body = post(wide, *({"id": "x"} for _ in range(500))).json()
    assert (len(body["errors"]), body["errorCount"]) == (100, 500)
    lines = wide.post(BATCHES, content=b"x\n" * 500, headers=NDJSON).json()
    assert (len(lines["errors"]), lines["errorCount"]) == (100, 500)
    members = wide.post(BATCHES, json={"records": []} | {f"m{n}": 1 for n in range(500)}).json()
    assert (len(members["errors"]), members["errorCount"]) == (100, 500)


# Limits


@pytest.fixture
def small(opened: Opened) -> TestClient:
    """A client of a service that takes bodies of 2000 bytes and batches of 3 records."""
    client = opened(max_body_bytes=2000, max_batch_records=3)
    client.post(TABLES, json=new_table())
    return client


def test_the_largest_body_and_the_most_records_are_taken_and_one_more_byte_or_record_is_not(small: TestClient) -> None:
    body = b'{"records": [{"id": 1}]}'
    assert small.post(BATCHES, content=body.ljust(2000)).status_code == 202
    refused = small.post(BATCHES, content=body.ljust(2001))
    assert (refused.status_code, refused.json()["errorCode"]) == (413, "payload_too_large")
    assert len(listed(small)) == 1

    assert post(small, *({"id": n} for n in range(3))).status_code == 202
    refused = post(small, *({"id": n} for n in range(4)))
    assert (refused.status_code, refused.json()["code"]) == (413, 413)
    lines = small.post(BATCHES, content=b'{"id": 1}\n' * 4, headers=NDJSON)
    assert lines.status_code == 413
    assert len(listed(small)) == 2


def test_a_body_without_end_is_refused_before_it_is_read(small: TestClient) -> None:
    app, sent = small.app, 0

    async def receive() -> dict[str, Any]:
        nonlocal sent
        sent += 1
        assert sent < 10, "the service read on"
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": BATCHES,
        "raw_path": BATCHES.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    assert small.portal is not None
    small.portal.call(app, scope, receive, send)
    assert answers[0]["status"] == 413
    assert sent == 3


# Idempotency-Key


def test_a_retry_is_answered_with_the_batch_of_the_first_request(wide: TestClient, merge: Merge) -> None:
    key = {"Idempotency-Key": "order-17"}
    first = post(wide, {"id": 1}, **key)
    assert first.json()["idempotencyKey"] == "order-17"
    again = post(wide, {"id": 1}, **key)
    assert (again.status_code, again.json()) == (202, first.json())
    assert [answer.headers.get("idempotency-replayed") for answer in (first, again)] == [None, "true"]
    assert again.headers["location"] == first.headers["location"]
    merge()
    merged = post(wide, {"id": 1}, **key)
    assert (merged.json()["id"], merged.json()["state"]) == (first.json()["id"], "merged")
    assert len(listed(wide)) == 1


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
def test_a_key_with_another_request_is_refused(wide: TestClient, media_type: str) -> None:
    key = {"Idempotency-Key": "order-17"}
    post(wide, {"id": 1}, **key)
    other = wide.post(BATCHES, content=b'{"id": 2}', headers=key | {"Content-Type": media_type})
    assert (other.status_code, other.json()["errorCode"]) == (422, "idempotency_key_reused")
    assert len(listed(wide)) == 1


def test_a_refused_request_does_not_use_up_its_key(wide: TestClient) -> None:
    key = {"Idempotency-Key": "order-17"}
    assert post(wide, {"id": "x"}, **key).status_code == 400
    assert post(wide, {"id": 1}, **key).status_code == 202


def test_retries_that_come_at_once_are_one_batch(wide: TestClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(wide, {"id": 1}, **{"Idempotency-Key": "k"}), range(16)))
    done = [answer for answer in answers if answer.status_code == 202]
    assert {answer.json()["id"] for answer in done} == set(listed(wide))
    assert len(listed(wide)) == 1
    assert [answer.headers.get("idempotency-replayed") for answer in done].count(None) == 1
    for early in answers:
        if early not in done:  # the first was under way
            assert (early.status_code, early.json()["errorCode"]) == (409, "request_in_flight")
            assert early.headers["retry-after"] == "1"


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_that_is_no_key_is_refused(wide: TestClient, key: str) -> None:
    answer = post(wide, {"id": 1}, **{"Idempotency-Key": key})
    assert (answer.status_code, faults_of(answer)) == (400, [("/Idempotency-Key", "bad_header")])
    assert post(wide, {"id": 1}, **{"Idempotency-Key": "x" * 255}).status_code == 202


# Lists


def test_a_batch_of_another_table_is_not_found(create: Create, wide: TestClient) -> None:
    create("other")
    batch = post(wide, {"id": 1}).json()["id"]
    for answer in (
        wide.get(f"{TABLES}/other/batches/{batch}"),
        wide.delete(f"{TABLES}/other/batches/{batch}"),
        wide.get(f"{BATCHES}/nope"),
    ):
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "batch_not_found")
    for answer in (wide.get(f"{TABLES}/none/batches"), wide.post(f"{TABLES}/none/batches", json={"records": []})):
        assert answer.json()["errorCode"] == "table_not_found"


# Withdrawal


def test_a_staged_batch_can_be_withdrawn_twice_and_is_never_merged(wide: TestClient, merge: Merge) -> None:
    kept = post(wide, {"id": 1, "note": "kept"}).json()["id"]
    gone = post(wide, {"id": 1, "note": "gone"}).json()["id"]
    for _ in range(2):
        answer = wide.delete(f"{BATCHES}/{gone}")
        assert (answer.status_code, answer.json()["state"]) == (200, "deleted")
    merge()
    assert [(batch["id"], batch["state"]) for batch in wide.get(BATCHES).json()["batches"]] == [
        (gone, "deleted"),
        (kept, "merged"),
    ]
    assert wide.get(f"{TABLES}/wide/rows?key=1").json() == {"id": 1, "note": "kept"}


# Waiting for the merge


def test_wait_answers_200_once_the_batch_is_merged(wide: TestClient, merge: Merge) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, wide, {"id": 1}, Prefer="respond-async, wait=60")
        while not wide.get(f"{TABLES}/wide/merges").json()["merges"]:  # the waiting request asks for one
            pass
        merge()
        answer = waiting.result()
    assert (answer.status_code, answer.json()["state"], answer.json()["snapshotId"]) == (200, "merged", 1)
    assert answer.headers["preference-applied"] == "wait=60"


def test_wait_answers_200_for_a_batch_that_held_nothing_to_fold(create: Create, shop: TestClient, merge: Merge) -> None:
    create(options={"ignore-delete": "true"})
    key = {"Idempotency-Key": "k"}
    post(shop, {"id": 1, "_kind": "-D"}, **key)
    merge()
    answer = post(shop, {"id": 1, "_kind": "-D"}, Prefer="wait=1", **key)
    assert (answer.status_code, answer.json()["state"]) == (200, "merged")


def test_wait_answers_202_when_the_merge_takes_longer(wide: TestClient) -> None:
    answer = post(wide, {"id": 1}, Prefer="wait=1")
    assert (answer.status_code, answer.json()["state"]) == (202, "staged")


OTHER_PREFERENCES = ["", "wait", "wait=", "wait=x", "wait=-1", "wait=0", "return=minimal", ",,="]


def test_a_preference_that_is_not_understood_is_ignored(wide: TestClient) -> None:
    for prefer in OTHER_PREFERENCES:
        answer = post(wide, {"id": 1}, Prefer=prefer)
        assert answer.status_code == 202, prefer
        assert "preference-applied" not in answer.headers, prefer
