"""``/metrics`` of one process, and the id that every answer carries."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.services.access.tokens import create_token
from app.services.operating.scrapes import scrape_readings
from app.services.shared.polled import Refreshed
from app.telemetry.entries import OTHERS
from app.telemetry.exposition import Reading
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, Opened, new_table, parts_of
from tests.services.builders import merge_staged
from tests.telemetry.test_metrics import Series, named, series

TABLE = f"{TABLES}/wide"


def scraped(client: TestClient) -> Series:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return series(answer.text)


def app_of(client: TestClient) -> FastAPI:
    assert isinstance(client.app, FastAPI)
    return client.app


def scrapes_of(client: TestClient) -> Refreshed[list[Reading]]:
    """A look that remembers nothing."""
    parts = parts_of(client)
    return Refreshed(lambda: scrape_readings(parts.database, parts.warehouse, parts.images, 50), 1.0, 5.0)


def requests(found: Series) -> dict[tuple[str, str], float]:
    reported: dict[tuple[str, str], float] = {}
    for (name, labels), value in found.items():
        if name == "keyfold_requests_total":
            label = dict(labels)
            reported[label["operation"], label["status"]] = value
    return reported


def test_requests_are_counted_by_what_they_asked_for_and_how_it_ended(opened: Opened) -> None:
    client = opened("127.0.0.1")
    client.post(TABLES, json=new_table())
    client.post(f"{TABLE}/batches", json={"records": [{"id": 1}]})
    client.post(f"{TABLE}/batches", json={"records": [{"id": "x"}]})
    client.get(f"{TABLE}/rows?key=1")
    client.get(f"{TABLE}/rows/1")
    client.get(f"{TABLE}/rows/2")
    client.head(f"{TABLE}/rows/1")
    client.get("/nothing")
    client.get(TABLE, headers={"Host": "evil.example"})
    assert requests(scraped(client)) == {
        ("createDatabase", "2xx"): 1,
        ("createTable", "2xx"): 1,
        ("postBatch", "2xx"): 1,
        ("postBatch", "4xx"): 1,
        ("getRow", "2xx"): 1,
        ("getRowByPath", "2xx"): 2,
        ("getRowByPath", "4xx"): 1,
        ("none", "4xx"): 2,
    }
    found = scraped(client)
    assert named(found, "keyfold_request_seconds_count", operation="postBatch") == 2
    assert named(found, "keyfold_accepted_records_total") == 1
    # A staged key takes state rows; that a key is nowhere is known without.
    assert named(found, "keyfold_looked_up_keys_total", asked="one", images="miss") == 3
    assert named(found, "keyfold_looked_up_keys_total", asked="one", images="hit") == 1


def test_only_the_tables_that_have_most_staged_have_series_of_their_own(opened: Opened) -> None:
    client = opened("127.0.0.1", metrics_tables=2)
    for number in range(5):
        client.post(TABLES, json=new_table(f"t{number}"))
        for record in range(number * 2):
            client.post(f"{TABLES}/t{number}/batches", json={"records": [{"id": record}]})
    found = scraped(client)
    reported = {
        dict(labels)["table"]: value for (name, labels), value in found.items() if name == "keyfold_staged_batches"
    }
    assert reported == {"t4": 8, "t3": 6, OTHERS: 6}
    assert named(found, "keyfold_staged_oldest_seconds", database=OTHERS, table=OTHERS) > 0
    assert named(found, "keyfold_staged_records", database="shop", table="t4") == 8


def test_merges_are_reported_by_outcome(opened: Opened) -> None:
    client = opened("127.0.0.1")
    table = client.post(TABLES, json=new_table()).json()
    client.post(f"{TABLE}/batches", json={"records": [{"id": 1}, {"id": 1}, {"id": 2}]})
    merge_staged(parts_of(client).database, parts_of(client).warehouse, table["id"])
    found = scraped(client)
    assert named(found, "keyfold_task_seconds_count", kind="merge", outcome="succeeded") == 1
    assert named(found, "keyfold_task_records_total", kind="merge", outcome="succeeded") == 3
    assert named(found, "keyfold_task_rows_total", kind="merge", outcome="succeeded") == 2
    assert named(found, "keyfold_task_seconds_count", kind="merge", outcome="failed") == 0
    assert named(found, "keyfold_spark_state", state="elsewhere") == 1


def test_metrics_need_a_token_where_all_else_does(opened: Opened) -> None:
    client = opened("127.0.0.1")
    token = create_token(parts_of(client).database, "ci")
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_setting_opens_the_metrics_to_this_machine_and_to_no_other(opened: Opened) -> None:
    client = opened("127.0.0.1", open_metrics=True)
    create_token(parts_of(client).database, "ci")
    assert client.get("/metrics").status_code == 200
    assert client.get(DATABASES).status_code == 401
    assert client.get("/metrics", headers={"Host": "keyfold.example"}).status_code == 403  # as a proxy names it
    assert client.get("/metrics", headers={"Origin": "http://evil.example"}).status_code == 403
    far = TestClient(app_of(client), LOOPBACK, client=("192.0.2.1", 50000))
    assert far.get("/metrics").status_code == 401


def test_metrics_are_reported_while_the_catalog_is_gone(opened: Opened, tmp_path: Path) -> None:
    client = opened("127.0.0.1")
    assert named(scraped(client), "keyfold_catalog_up") == 1
    parts_of(client).database.close()
    for name in ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "catalog.sqlite").mkdir()
    app_of(client).state.parts = replace(parts_of(client), scrapes=scrapes_of(client))
    found = scraped(client)
    assert named(found, "keyfold_catalog_up") == 0
    assert named(found, "keyfold_requests_total", operation="createDatabase", status="2xx") == 1


PATHS = ["/healthz", "/nothing", "/metrics", f"{TABLE}/rows/1", DATABASES]


def test_a_request_keeps_its_id_and_one_without_gets_one(client: TestClient) -> None:
    for path in PATHS:
        assert client.get(path, headers={"X-Request-Id": "a.B-9_:/+=@"}).headers["x-request-id"] == "a.B-9_:/+=@", path
        given = [client.get(path).headers["x-request-id"] for _ in range(3)]
        assert len(set(given)) == 3, path


GARBLED_IDS = ["", " ", "a b", "x" * 129, 'a"b', "é", "a,b", "a;b", "<b>"]


def test_an_id_that_would_garble_a_log_is_replaced(client: TestClient) -> None:
    for sent in GARBLED_IDS:
        answer = client.get("/healthz", headers={"X-Request-Id": sent.encode()})  # type: ignore[arg-type]  # as they are
        assert answer.headers.get_list("x-request-id") == [answer.headers["x-request-id"]], sent
        assert answer.headers["x-request-id"] not in (sent, ""), sent


def test_an_error_that_nobody_foresaw_is_answered_with_the_id_and_counted(client: TestClient, app: FastAPI) -> None:
    parts: Parts = app.state.parts
    app.state.parts = None
    try:
        answer = client.get(DATABASES, headers={"X-Request-Id": "mine"})
    finally:
        app.state.parts = parts
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "mine")
    assert answer.json()["errorCode"] == "internal"
    assert requests(scraped(client))["none", "5xx"] >= 1


class FailingViews:
    """On a disk that fails."""

    def recall(self, *_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/where/it/is")


def test_an_error_of_the_disk_asks_to_come_again_and_shows_no_path(client: TestClient, app: FastAPI) -> None:
    parts: Parts = app.state.parts
    app.state.parts = replace(parts, views=FailingViews())  # type: ignore[arg-type]  # a lookup asks no more of them
    answers = [client.get(f"{TABLE}/rows?key=1{odd}") for odd in ("", "&columns=")]  # before the router, and behind it
    app.state.parts = parts
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "Input/output error" in answer.json()["detail"]
        assert "/where" not in answer.text


def test_a_look_that_hangs_holds_up_no_scrape(opened: Opened) -> None:
    client = opened("127.0.0.1")
    hang, seen = threading.Event(), threading.Event()

    def look() -> list[Any]:
        seen.set()
        hang.wait()
        return []

    app_of(client).state.parts = replace(parts_of(client), scrapes=Refreshed(look, 1.0, 0.01))
    try:
        for _ in range(3):
            assert named(scraped(client), "keyfold_catalog_up") == 0
        assert seen.is_set()
        assert [thread.name for thread in threading.enumerate()].count("look") == 1
    finally:
        hang.set()
