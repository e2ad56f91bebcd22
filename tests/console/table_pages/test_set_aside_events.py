"""The page of change events that are set aside: why, tried again, withdrawn."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.core.access import Role
from tests.api.conftest import TABLES, Create, Merge, fields_of
from tests.console.conftest import Browser, SignedIn, words
from tests.services.builders import QUIET

PAGE = "/console/tables/shop/wide/set-aside-events"
FIELDS = fields_of(id="INT NOT NULL", v="TINYINT", lsn="BIGINT")
ORDERED = {"fields.lsn.from-event": "source.lsn", "sequence.field": "lsn", **QUIET}


@pytest.fixture
def table(create: Create) -> str:
    return str(create("wide", fields=FIELDS, options=ORDERED)["id"])


def post(browser: Browser, *values: int) -> None:
    """Change events, each with one of the values; those above 127 are at fault."""
    source = {"db": "crm", "schema": "shop", "table": "wide"}
    events = [{"op": "c", "after": {"id": n, "v": n}, "source": {**source, "lsn": n}} for n in values]
    body = "\n".join(map(json.dumps, events))
    params = {"format": "debezium-json", "onFault": "set-aside"}
    headers = {"Content-Type": "application/x-ndjson"}
    url = f"{TABLES}/wide/batches"
    assert browser.client.post(url, params=params, content=body, headers=headers).status_code == 202


def kept(browser: Browser) -> list[dict[str, Any]]:
    return list(browser.client.get(f"{TABLES}/wide/set-aside-events").json()["events"])


def test_each_event_is_shown_with_what_is_wrong_and_what_to_do(table: str, browser: Browser) -> None:
    assert "No change event is set aside" in words(browser.get(PAGE).text)
    assert "Events set aside" not in browser.get("/console/tables/shop/wide").text
    post(browser, 1, 1000, 2000)
    shown = browser.get(PAGE).text
    assert "2 change events set aside" in words(shown)
    [first, second] = kept(browser)
    for event in (first, second):
        assert event["faults"][0]["detail"] in words(shown)
        assert event["faults"][0]["fix"] in words(shown)
    assert "Events set aside 2" in words(browser.get("/console/tables/shop/wide").text)


def test_an_event_is_tried_again_once_the_table_takes_it(merge: Merge, table: str, browser: Browser) -> None:
    post(browser, 1, 1000, 100_000)
    merge()
    change = {"action": "updateColumnType", "fieldNames": ["v"], "newDataType": "SMALLINT"}
    assert browser.client.post(f"{TABLES}/wide", json={"changes": [change]}).status_code == 200
    browser.get(PAGE)
    answer = browser.send(f"{PAGE}/retry")
    assert answer.status_code == 303
    shown = words(browser.get(answer.headers["location"]).text)
    assert re.search(r"1 record stored as batch 2\b", shown)
    assert "still have faults" in shown
    assert [json.loads(event["event"])["after"]["id"] for event in kept(browser)] == [100_000]
    assert browser.client.get(f"{TABLES}/wide/rows/1000").json()["v"] == 1000


def test_an_event_is_withdrawn(table: str, browser: Browser) -> None:
    post(browser, 1000, 2000)
    event, other = kept(browser)
    browser.get(PAGE)
    assert browser.send(f"{PAGE}/withdraw", event=event["id"]).status_code == 303
    assert kept(browser) == [other]
    browser.get(PAGE)
    for what in ("withdraw", "retry"):
        again = browser.send(f"{PAGE}/{what}", event=event["id"])
        assert again.status_code == 404
        assert "does not exist" in words(again.text)


def test_who_only_reads_has_no_buttons(table: str, signed_in: SignedIn, browser: Browser) -> None:
    post(browser, 1000)
    reader = signed_in(Role.READ)
    shown = reader.get(PAGE).text
    assert "1 change event set aside" in words(shown)
    assert f'action="{PAGE}' not in shown
    assert reader.send(f"{PAGE}/retry").status_code == 403
