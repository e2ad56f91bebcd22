"""``onFault=set-aside``: change events with faults are kept apart, and retried or withdrawn later."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.catalog.batches import set_aside_events
from app.core.access import Role
from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, TABLES, Create, Merge, fields_of

T, ALL = f"{TABLES}/t", f"{DATABASES}/shop/batches"
ASIDE = f"{T}/set-aside-events"
COLUMNS = {"id": "INT NOT NULL", "v": "TINYINT", "lsn": "BIGINT"}
ORDERED = {"events.source": "shop.t", "fields.lsn.from-event": "source.lsn", "sequence.field": "lsn"}
Table = Callable[..., None]
Widen = Callable[[str], None]


@pytest.fixture
def table(create: Create) -> Table:
    def make(name: str = "t", columns: dict[str, str] | None = None, **options: str) -> None:
        fields = fields_of(**columns or COLUMNS)
        create(name, fields=fields, primaryKeys=["id"], options=options or ORDERED)

    return make


def event(key: int, v: object, lsn: int, table: str = "t", op: str = "c") -> dict[str, Any]:
    row = {"id": key, "v": v}
    at = {"db": "crm", "schema": "shop", "table": table, "lsn": lsn}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": at}


def post(shop: TestClient, events: Iterable[object], url: str = f"{T}/batches", **params: str) -> Any:
    lines = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in events)
    params = {"format": "debezium-json", "onFault": "set-aside"} | params
    return shop.post(url, params=params, content=lines, headers={"Content-Type": "application/x-ndjson"})


def kept(shop: TestClient, url: str = ASIDE) -> list[dict[str, Any]]:
    return list(shop.get(url).json()["events"])


def values(shop: TestClient, *keys: int) -> list[Any]:
    rows = [shop.get(f"{T}/rows/{key}") for key in keys]
    return [row.json()["v"] if row.status_code == 200 else None for row in rows]


@pytest.fixture
def widen(shop: TestClient, merge: Merge) -> Widen:
    """Makes the column wider, which waits for a merge of what is staged."""

    def change_type(to: str) -> None:
        merge(name="t")
        change = {"action": "updateColumnType", "fieldNames": ["v"], "newDataType": to}
        assert shop.post(T, json={"changes": [change]}).status_code == 200

    return change_type


def test_the_others_are_stored_and_the_event_is_kept_with_its_faults(table: Table, shop: TestClient) -> None:
    table()
    bad = event(2, 1000, 11) | {"transaction": {"id": "1.50", "amount": 1}}
    answer = post(shop, [event(1, 1, 10), bad, event(3, 3, 12), {"op": "c", "after": None}])
    assert answer.status_code == 202, answer.text
    assert answer.json()["records"] == 2
    assert answer.json()["setAsideEvents"] == 2
    assert values(shop, 1, 2, 3) == [1, None, 3]
    first, second = kept(shop)
    assert json.loads(first["event"]) == bad
    assert [(fault["pointer"], fault["code"], fault["column"]) for fault in first["faults"]] == [
        ("/v", "out_of_range", "v")
    ]
    assert all(fault["detail"] and fault["fix"] for fault in first["faults"])
    assert (first["format"], first["times"], first["batchId"]) == ("debezium-json", 1, answer.json()["id"])
    assert second["faults"][0]["code"] == "unusable_event"
    assert shop.get(f"{ASIDE}/{first['id']}").json() == first
    assert shop.get(f"{T}/stats").json()["setAsideEvents"] == 2
    assert "keyfold_set_aside_events 2" in shop.get("/metrics").text


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_every_event_of_a_body_may_be_set_aside_in_its_order(table: Table, shop: TestClient, kind: str) -> None:
    table()
    events = [event(n, 1000 + n, n) for n in range(250)]
    content = json.dumps(events) if kind == "application/json" else "\n".join(map(json.dumps, events))
    params = {"format": "debezium-json", "onFault": "set-aside"}
    answer = shop.post(f"{T}/batches", params=params, content=content, headers={"Content-Type": kind}).json()
    assert (answer["records"], answer["setAsideEvents"]) == (0, 250)
    found, token = [], ""
    while token is not None:
        page = shop.get(ASIDE, params={"maxResults": 100, "pageToken": token}).json()
        found += [json.loads(one["event"])["after"]["id"] for one in page["events"]]
        token = page["nextPageToken"]
    assert found == list(range(250))


def test_what_is_retried_after_an_alter_comes_in_its_order(table: Table, shop: TestClient, widen: Widen) -> None:
    table()
    post(shop, [event(1, 1000, 10), event(2, 2000, 11), event(1, 2, 20)])
    widen("SMALLINT")
    answer = shop.post(f"{ASIDE}:retry")
    assert answer.status_code == 202, answer.text
    assert (answer.json()["records"], answer.json()["setAsideEvents"]) == (2, 0)
    assert kept(shop) == []
    assert values(shop, 1, 2) == [2, 2000]
    assert shop.post(f"{ASIDE}:retry").json()["errorCode"] == "set_aside_event_not_found"


def test_events_of_several_formats_have_their_own_places_in_the_batch(
    table: Table, shop: TestClient, widen: Widen, merge: Merge
) -> None:
    table()
    for value, flat in ((1000, False), (2000, True), (3000, False)):
        row = {"id": 1, "v": value, "lsn": 10, "__op": "c", "__source_lsn": 10}
        post(
            shop,
            [row if flat else event(1, value, 10)],
            format="debezium-flat-json" if flat else "debezium-json",
        )
    assert len(kept(shop)) == 3
    widen("SMALLINT")
    assert shop.post(f"{ASIDE}:retry").json()["records"] == 3
    merge(name="t")
    explained = shop.get(f"{T}/rows/1:explain").json()
    assert [step["record"]["position"] for step in explained["steps"] if step["record"]] == [0, 1, 2]
    assert (explained["exact"], explained["row"]["v"]) == (True, 3000)


def test_what_still_has_faults_stays_with_those_of_now(table: Table, shop: TestClient, widen: Widen) -> None:
    table()
    post(shop, [event(1, 1000, 10), event(2, 70_000, 11)])
    first, second = kept(shop)
    widen("SMALLINT")
    answer = shop.post(f"{ASIDE}:retry", params={"id": [second["id"], first["id"]]}).json()
    assert (answer["records"], answer["setAsideEvents"]) == (1, 1)
    [left] = kept(shop)
    assert (left["id"], left["number"]) == (second["id"], second["number"])
    assert left["faults"] != second["faults"]
    assert "SMALLINT" in left["faults"][0]["detail"] + left["faults"][0]["fix"]
    assert values(shop, 1, 2) == [1000, None]


def test_an_event_that_is_sent_again_is_counted_and_kept_once(table: Table, shop: TestClient) -> None:
    table()
    for _ in range(3):
        post(shop, [event(1, 1000, 10), event(1, 1000, 10)])
    [one] = kept(shop)
    assert one["times"] == 6


def test_the_answer_of_a_repeated_key_sets_nothing_aside_again(table: Table, shop: TestClient) -> None:
    table()
    headers = {"Idempotency-Key": "k", "Content-Type": "application/x-ndjson"}
    params = {"format": "debezium-json", "onFault": "set-aside"}
    content = json.dumps(event(1, 1000, 10))
    for replayed in (None, "true"):
        answer = shop.post(f"{T}/batches", params=params, content=content, headers=headers)
        assert answer.headers.get("Idempotency-Replayed") == replayed
    assert [one["times"] for one in kept(shop)] == [1]


def test_an_event_is_withdrawn_once_and_readers_see_them_but_only_writers_retry(
    table: Table, shop: TestClient, app: FastAPI
) -> None:
    table()
    post(shop, [event(1, 1000, 10)])
    [one] = kept(shop)
    assert shop.delete(f"{ASIDE}/{one['id']}").json() == one
    for method in ("GET", "DELETE"):
        answer = shop.request(method, f"{ASIDE}/{one['id']}")
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "set_aside_event_not_found")
    assert shop.post(f"{ASIDE}:retry", params={"id": one["id"]}).status_code == 404

    post(shop, [event(1, 1000, 10)])
    shop.headers["Authorization"] = f"Bearer {create_token(app.state.parts.database, 'reader', Role.READ, ['*'])}"
    [one] = kept(shop)
    assert shop.post(f"{ASIDE}:retry").status_code == 403
    assert shop.delete(f"{ASIDE}/{one['id']}").status_code == 403


def test_of_several_that_retry_events_one_stores_them(table: Table, shop: TestClient, widen: Widen) -> None:
    """Twice would count twice where values add up."""
    sums = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table(**ORDERED | sums)
    post(shop, [event(1, 1000 + n, 10 + n) for n in range(20)])
    widen("BIGINT")
    ids = [one["id"] for one in kept(shop)]
    statuses: list[int] = []

    def retry() -> None:
        statuses.append(shop.post(f"{ASIDE}:retry", params={"id": ids}).status_code)

    threads = [threading.Thread(target=retry) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [202, 404, 404, 404]
    assert (values(shop, 1), kept(shop)) == ([sum(1000 + n for n in range(20))], [])


def test_a_retry_whose_answer_was_lost_is_answered_by_its_key(table: Table, shop: TestClient, widen: Widen) -> None:
    table()
    post(shop, [event(1, 1000, 10)])
    widen("SMALLINT")
    key = {"Idempotency-Key": "again"}
    first, second = (shop.post(f"{ASIDE}:retry", headers=key) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert (first.headers.get("Idempotency-Replayed"), second.headers["Idempotency-Replayed"]) == (None, "true")
    assert first.json()["id"] == second.json()["id"]
    other = shop.post(f"{ASIDE}:retry", headers=key, params={"id": "another"})
    assert (other.status_code, other.json()["errorCode"]) == (422, "idempotency_key_reused")


def test_several_tables_each_keep_their_own(table: Table, shop: TestClient) -> None:
    table()
    table("u", **ORDERED | {"events.source": "shop.u"})
    events = [event(1, 1, 10), event(1, 1000, 11, "u"), event(2, 2, 12, "u"), event(2, 1000, 13)]
    answer = post(shop, events, ALL)
    assert answer.status_code == 202, answer.text
    assert {batch["table"]: (batch["records"], batch["setAsideEvents"]) for batch in answer.json()["batches"]} == {
        "t": (1, 1),
        "u": (1, 1),
    }
    assert [json.loads(one["event"])["after"]["id"] for one in kept(shop)] == [2]
    assert [json.loads(one["event"])["after"]["id"] for one in kept(shop, f"{TABLES}/u/set-aside-events")] == [1]


def test_a_table_without_an_order_refuses_it_in_one_of_several_tables_too(table: Table, shop: TestClient) -> None:
    """An event that is retried would overwrite what came later."""
    table()
    table("u", **{"events.source": "shop.u"})
    for url in (ALL, f"{TABLES}/u/batches"):
        answer = post(shop, [event(1, 1, 10, "u")], url)
        assert answer.status_code == 400
        assert [(error["code"], error["table"]) for error in answer.json()["errors"]] == [
            ("contradicting_parameters", "u")
        ]
    table("k", {"id": "INT NOT NULL"}, **{"events.source": "shop.k"})  # no column that could tell
    assert post(shop, [event(1, 1, 10, "k")], f"{TABLES}/k/batches").json()["errors"][0]["pointer"] == "/onFault"
    grouped = {
        "merge-engine": "partial-update",
        "fields.lsn.sequence-group": "v",
        "fields.lsn.from-event": "source.lsn",
    }
    table("g", **grouped)
    assert post(shop, [event(1, 1, 10, "g"), event(1, 1000, 10, "g")], f"{TABLES}/g/batches").status_code == 202


def test_what_is_no_event_or_no_json_is_refused_and_without_it_a_fault_still_refuses_all(
    table: Table, shop: TestClient
) -> None:
    table()
    plain = shop.post(f"{T}/batches", params={"onFault": "set-aside"}, json={"records": [{"id": 1, "v": 1}]})
    assert plain.json()["errors"][0]["pointer"] == "/onFault"
    tables = shop.post(ALL, params={"onFault": "set-aside"}, json={"tables": {"t": {"records": [{"id": 1}]}}})
    assert tables.json()["errors"][0]["pointer"] == "/onFault"
    assert post(shop, [event(1, 1, 10), "{"]).json()["errors"][0]["code"] == "not_json"
    assert post(shop, [event(1, 1, 10)], onFault="drop").status_code == 400
    assert values(shop, 1) == [None]
    assert kept(shop) == []

    assert post(shop, [event(1, 1, 10), event(2, 1000, 11)], onFault="refuse").status_code == 400
    assert (values(shop, 1), kept(shop)) == ([None], [])


def test_events_of_another_table_are_kept_until_the_table_takes_them(table: Table, shop: TestClient) -> None:
    table()
    post(shop, [event(1, 1, 10), event(2, 2, 11, "other")])
    assert kept(shop)[0]["faults"][0]["code"] == "foreign_event"
    source = {"action": "setOption", "key": "events.source", "value": "shop.t, shop.other"}
    assert shop.post(T, json={"changes": [source]}).status_code == 200
    assert shop.post(f"{ASIDE}:retry").json()["records"] == 1
    assert values(shop, 1, 2) == [1, 2]


def test_columns_are_added_and_only_what_they_cannot_hold_is_set_aside(table: Table, shop: TestClient) -> None:
    table()
    new = [event(n, n, n) | {"after": {"id": n, "v": n, "more": "x"}} for n in (1, 2)]
    answer = post(shop, [*new, event(3, 1000, 13)], unknownColumns="add").json()
    assert (answer["records"], answer["setAsideEvents"]) == (2, 1)
    assert [change["fieldNames"] for change in answer["changes"]] == [["more"]]
    assert shop.get(f"{T}/rows/2").json()["more"] == "x"


def test_a_column_becomes_wider_for_an_event_that_follows_an_unusable_one(table: Table, shop: TestClient) -> None:
    table()
    row = {"type": "struct", "field": "after", "fields": [{"field": "v", "type": "int32"}]}
    wide = {"schema": {"type": "struct", "fields": [row]}, "payload": event(2, 1000, 11)}
    answer = post(shop, [event(1, 1, 10, op="t"), wide], unknownColumns="add").json()
    assert (answer["records"], answer["setAsideEvents"]) == (1, 1)
    assert [change["newDataType"] for change in answer["changes"]] == ["INT"]
    assert values(shop, 2) == [1000]


def test_a_first_record_that_lacks_a_column_waits_for_its_row(table: Table, shop: TestClient) -> None:
    partial = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}
    table(columns=COLUMNS | {"v": "INT NOT NULL"}, **ORDERED | partial)
    lacking = event(1, 1, 20) | {"op": "u", "after": {"id": 1}}
    answer = post(shop, [lacking, event(2, 2, 11), event(2, 2, 12) | {"op": "u", "after": {"id": 2}}]).json()
    assert (answer["records"], answer["setAsideEvents"]) == (2, 1)
    post(shop, [event(1, 7, 10)])
    assert shop.post(f"{ASIDE}:retry").json()["records"] == 1
    assert values(shop, 1, 2) == [7, 2]


def test_the_list_of_events_has_a_bound(table: Table, shop: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside_events, "MOST_EVENTS", 2)
    table()
    post(shop, [event(1, 1000, 10), event(2, 1000, 11)])
    answer = post(shop, [event(3, 1000, 12), event(4, 4, 13)])
    assert answer.status_code == 400
    assert "set-aside-events" in answer.json()["errors"][0]["fix"]
    assert (len(kept(shop)), values(shop, 4)) == (2, [None])
    assert post(shop, [event(1, 1000, 10), event(4, 4, 13)]).status_code == 202  # it is there already


def test_a_member_that_is_half_a_surrogate_pair_is_a_fault_that_can_be_read(table: Table, shop: TestClient) -> None:
    table()
    row = {"id": 1, "v": 1, "lsn": None}
    bad = event(1, 1, 10) | {"after": row | {"\ud800": 1}}
    answer = post(shop, [json.dumps(bad), '{"\\ud800": 1}', event(2, 2, 11)])
    assert (answer.status_code, answer.json()["setAsideEvents"], values(shop, 2)) == (202, 2, [2])
    assert [one["faults"][0]["pointer"] for one in kept(shop)] == ["/\\ud800", ""]
    refused = post(shop, ['{"\\ud800": 1}'], onFault="refuse")
    assert refused.status_code == 400
    ignored = post(shop, [json.dumps(bad)], unknownColumns="ignore").json()
    assert ignored["ignoredColumns"] == [{"name": "\\ud800", "records": 1}]
    assert shop.get(f"{T}/stats").json()["ignoredColumns"] == ignored["ignoredColumns"]
    assert shop.get(f"{T}/batches/{ignored['id']}").json() == ignored
