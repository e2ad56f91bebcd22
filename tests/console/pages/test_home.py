"""The first page: how the service is, what its tables hold, wait for and fail at."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.catalog.shared.models import batches
from app.core.access import Role
from app.http.parts import Parts
from app.services.explaining.examples import EXAMPLES
from tests.api.conftest import TABLES, Create, new_table
from tests.console.conftest import Browser, SignedIn, fail_merge, link_of, live_part
from tests.console.merged import Merged

HOSTILE = "<b onx=1>\"'&{{7*7}}"


def test_a_table_is_shown_with_what_waits(wide: object, browser: Browser) -> None:
    browser.client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}, {"id": 2}]})
    text = browser.text("/")
    assert re.search(r"shop\. wide (overdue )?deduplicate 0 0 B 2 1 \d+ s never", text)
    assert "2 records 1 batch," in text


def test_tables_that_miss_their_max_staleness_are_marked(app: FastAPI, create: Create, browser: Browser) -> None:
    create("late")
    create("fine")
    browser.client.post(f"{TABLES}/late/batches", json={"records": [{"id": 1}]})
    parts: Parts = app.state.parts
    with parts.database.transaction() as repository:
        an_hour_ago = repository.now() - timedelta(hours=1)
        repository.transaction.execute(batches.update().values(accepted_at=an_hour_ago))
    text = browser.text("/")
    assert "1 table overdue" in text
    assert text.count(" overdue") == 2
    assert "shop. late overdue" in text
    assert "overdue other merges are due before it" in browser.text("/console/tables/shop/late")
    reported = browser.client.get(f"{TABLES}/late/stats").json()["overdue"]
    assert reported["reason"] == "waiting"
    assert reported["byMillis"] >= 3_599_000


def test_catalog_warehouse_and_spark_are_reported(browser: Browser) -> None:
    assert "Catalog ready Warehouse ready Spark ready" in browser.text("/")


def test_a_part_that_is_as_it_was_is_not_sent_again(create: Create, browser: Browser) -> None:
    create("wide")
    path = live_part(browser.get("/").text)
    assert browser.get(path).status_code == 204
    create("other")
    changed = browser.get(path)
    assert (changed.status_code, "shop.</span>other" in changed.text, "<html" in changed.text) == (200, True, False)


def test_hostile_names_are_text_and_their_links_lead_to_them(create: Create, browser: Browser) -> None:
    create(HOSTILE)
    assert HOSTILE in browser.text("/")
    assert "<b onx" not in browser.shown
    assert "/console/tables/shop/%3Cb%20onx%3D1%3E%22%27%26%7B%7B7%2A7%7D%7D" in browser.shown
    assert "<b onx" not in browser.get(f"/?q={HOSTILE}").text


def test_tables_are_found_and_paged(create: Create, browser: Browser) -> None:
    for number in range(53):
        create(f"t{number:02}")
    first = browser.get("/").text
    assert len(re.findall(r'<th scope="row">', first)) == 50
    second = browser.text(link_of(first, "Next page"))
    assert re.findall(r"shop\. (t\d\d)", second) == ["t50", "t51", "t52"]
    assert re.findall(r"shop\. (t\d\d)", browser.text("/?q=OP.T1")) == [f"t1{number}" for number in range(10)]
    assert "No table has “%”" in browser.text("/?q=%25")


def test_a_merge_that_fails_is_reported_with_its_reason(app: FastAPI, create: Create, browser: Browser) -> None:
    create("wide")
    create("fine")
    fail_merge(app, "wide", "<i>disk full</i>: make room")
    text = browser.text("/")
    assert "Merges that fail" in text
    assert "<i>disk full</i>: make room" in text
    assert text.count("merge fails") == 1


def test_a_token_shows_and_counts_what_it_is_for(create: Create, signed_in: SignedIn) -> None:
    for name in ("seen", "unseen"):
        create(name)
    browser = signed_in(Role.READ, ("shop.seen", "other.*"))
    text = browser.text("/")
    assert "shop. seen" in text
    assert "unseen" not in text
    assert "Tables 1 " in text
    assert "shop 1 table " in text
    text = browser.text("/?database=shop")
    assert ("shop. seen" in text, "unseen" in text) == (True, False)
    assert "seen" not in browser.text("/?database=other")


def test_an_example_is_loaded_played_once_a_record_and_dropped(browser: Browser) -> None:
    assert "No table yet: try an example" in browser.text("/")
    away = browser.send("/console/examples/sequence_groups/load")
    assert away.headers["location"] == "/console/examples/sequence_groups"
    for number in range(3):
        browser.get("/console/examples/sequence_groups")
        for _ in range(2):  # pressed twice
            assert browser.send("/console/examples/sequence_groups/play", record=str(number)).status_code == 303
    text = browser.text("/console/examples/sequence_groups")
    assert "3 of 3 played" in text
    assert "The row now k 1 a 2 b 2 g_1 2 c 3 d 3 g_2 3" in text
    assert "sequence 1 < 2: ignored" in text
    assert browser.client.get("/v1/catalog/databases/examples/tables/sequence_groups/rows?key=1").json()["a"] == 2
    assert browser.send("/console/examples/sequence_groups/drop").status_code == 303
    assert browser.client.get("/v1/catalog/databases").json()["databases"] == []


@pytest.mark.parametrize("other", [new_table("parcels")["schema"], {"options": {}}, {"comment": "mine"}])
def test_a_table_that_somebody_made_is_no_example(browser: Browser, other: dict[str, object]) -> None:
    browser.client.post("/v1/catalog/databases", json={"name": "examples"})
    body = {
        "identifier": {"database": "examples", "object": "parcels"},
        "schema": EXAMPLES["parcels"].schema.to_json() | other,
    }
    made = browser.client.post("/v1/catalog/databases/examples/tables", json=body)
    assert made.status_code == 200, made.text
    browser.get("/console/examples/parcels")
    refused = browser.send("/console/examples/parcels/drop")
    assert (refused.status_code, "is not the example" in refused.text) == (409, True)
    assert browser.client.get("/v1/catalog/databases/examples/tables/parcels").status_code == 200


def test_who_may_not_play_sees_no_button_and_is_refused(client: TestClient, signed_in: SignedIn) -> None:
    browser = signed_in(Role.READ)
    for path in ("/", "/console/examples", "/console/examples/parcels"):
        browser.get(path)
        assert not re.search(r"<button[^>]*>(Load|Play|Drop)", browser.shown), path
    for action in ("load", "play", "drop"):
        browser.get("/")
        refused = browser.send(f"/console/examples/parcels/{action}", record="0")
        assert refused.status_code == 403
        assert "this needs the role" in refused.text


def test_a_database_has_its_own_address_with_its_tables_alone(wide: object, browser: Browser) -> None:
    browser.client.post("/v1/catalog/databases", json={"name": "shop2"})
    body = new_table("shopping") | {"identifier": {"database": "shop2", "object": "shopping"}}
    browser.client.post("/v1/catalog/databases/shop2/tables", json=body)
    text = browser.text("/?database=shop")
    assert "shop. wide" in text
    assert "shopping" not in text
    assert browser.get(live_part(browser.shown)).status_code == 204


def test_tables_stand_below_their_database_with_how_many_it_has(create: Create, browser: Browser) -> None:
    for number in range(52):
        create(f"t{number:02}")
    browser.client.post("/v1/catalog/databases", json={"name": "crm"})
    body = new_table("calls") | {"identifier": {"database": "crm", "object": "calls"}}
    browser.client.post("/v1/catalog/databases/crm/tables", json=body).raise_for_status()
    browser.get("/")
    heads = re.findall(
        r'scope="rowgroup" colspan="8"><a href="([^"]+)">(\w+)</a> <span class="soft">([^<]+)<', browser.shown
    )
    assert heads == [("/?database=crm", "crm", "1 table"), ("/?database=shop", "shop", "52 tables")]
    assert browser.shown.index(">calls<") < browser.shown.index("/?database=shop") < browser.shown.index(">t00<")
    for path in ("/?q=t0", "/?database=shop"):
        assert "rowgroup" not in browser.get(path).text


def test_a_table_says_its_merge_engine_and_what_it_takes(merged: Merged, browser: Browser) -> None:
    merged(**{"merge-engine": "partial-update"}).merge({"id": 1, "note": "a"})
    assert re.search(r"shop\. wide partial-update 1 [\d.]+ (B|KiB) 0 0 ", browser.text("/"))
