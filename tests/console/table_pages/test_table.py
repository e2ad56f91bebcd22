"""A table's page: rules, rows, batches, merges, and what holds of all its tabs; hostile names, long values."""

from __future__ import annotations

import re
from html import unescape

import pytest

from tests.api.conftest import TABLES, Create, fields_of
from tests.console.conftest import Browser, link_of, words
from tests.console.merged import Merged

WIDE = "/console/tables/shop/wide"
TABS = ("", "/rows", "/batches", "/merges", "/snapshots", "/changelog", "/files", "/settings", "/code")
HOSTILE = "<b onx=1>\"'&{{7*7}}"


def post(browser: Browser, *records: dict[str, object], table: str = "wide") -> None:
    answer = browser.client.post(f"{TABLES}/{table}/batches", json={"records": records})
    assert answer.status_code == 202, answer.text


def test_the_overview_tells_figures_and_rules(wide: object, browser: Browser) -> None:
    post(browser, {"id": 1}, {"id": 2})
    text = browser.text(WIDE)
    assert "Staged 2 records 1 batch," in text
    assert "id BIGINT NOT NULL : primary key" in text
    assert "deduplicate" in text


def test_columns_of_equal_rules_are_one_line_with_their_names(create: Create, browser: Browser) -> None:
    names = ["updated", "fees", *(f"c{number}" for number in range(10))]
    fields = [{"name": name, "type": "BIGINT", "description": f"about {name}"} for name in names]
    options = {"merge-engine": "aggregation", "sequence.field": "updated", "fields.fees.aggregate-function": "sum"}
    create("wide", fields=[{"name": "id", "type": "BIGINT NOT NULL"}, *fields], options=options)
    text = browser.text(WIDE)
    assert re.search(r"10 columns : the latest value that is not null, by updated, then arrival[^:]* c0, c1,", text)
    assert "c6, c7 and 2 more c0 BIGINT about c0 c1 BIGINT about c1" in text
    assert "c9 BIGINT about c9" in text
    assert "fees BIGINT about fees : the sum of all values" in text
    assert text.count("the latest value that is not null") == 1
    rules = browser.client.get(f"{TABLES}/wide/rules").json()["columns"]
    assert [rule["column"] for rule in rules] == ["id", *names], "the API has one rule for each column"


def test_rules_that_differ_in_anything_are_lines_of_their_own(create: Create, browser: Browser) -> None:
    fields = [{"name": name, "type": "BIGINT", **more} for name, more in (("a", {}), ("b", {"defaultValue": "7"}))]
    create("wide", fields=[{"name": "id", "type": "BIGINT NOT NULL"}, *fields])
    text = browser.text(WIDE)
    assert "a BIGINT : the value" in text
    assert re.search(r"b BIGINT : the value of the latest record[^:]*; a null is (shown|stored) as", text)


@pytest.mark.parametrize("tab", TABS)
def test_every_part_tells_what_it_does_as_a_command(wide: object, browser: Browser, tab: str) -> None:
    page = browser.get(f"{WIDE}{tab}")
    assert page.status_code == 200
    assert "curl " in unescape(page.text)


@pytest.mark.parametrize("tab", TABS)
def test_a_table_that_is_not_there_is_reported(browser: Browser, tab: str) -> None:
    page = browser.get(f"/console/tables/shop/none{tab}")
    assert (page.status_code, "Not found" in page.text) == (404, True)


def test_hostile_names_and_values_are_text(create: Create, browser: Browser) -> None:
    fields = fields_of(id="BIGINT NOT NULL", **{HOSTILE: "STRING"})
    create(HOSTILE, fields=fields, comment=HOSTILE)
    path = "%3Cb%20onx%3D1%3E%22%27%26%7B%7B7%2A7%7D%7D"
    answer = browser.client.post(f"{TABLES}/{path}/batches", json={"records": [{"id": 1, HOSTILE: HOSTILE}]})
    assert answer.status_code == 202
    for tab in TABS:
        page = browser.get(f"/console/tables/shop/{path}{tab}")
        assert page.status_code == 200
        assert "<b onx" not in page.text
        assert HOSTILE in words(page.text)


def test_long_values_are_cut_and_many_columns_shown(create: Create, browser: Browser) -> None:
    many = [{"id": number, "name": f"c{number}", "type": "STRING"} for number in range(1, 200)]
    create("wide", fields=[{"id": 0, "name": "id", "type": "BIGINT NOT NULL"}, *many])
    post(browser, {"id": 1, "c1": "x" * 2**20})
    page = browser.get(f"{WIDE}/rows")
    assert "(1\u2009048\u2009576 characters)" in page.text
    assert len(page.content) < 100_000
    assert len(re.findall(r"<th[^>]*>c199<", page.text)) == 1


def test_batches_are_listed_newest_first_in_pages(wide: object, browser: Browser) -> None:
    for number in range(52):
        post(browser, {"id": number})
    first = browser.get(f"{WIDE}/batches").text
    assert re.findall(r'<th scope="row">(\d+)<', first) == [str(number) for number in range(52, 2, -1)]
    older = browser.get(link_of(first, "Older")).text
    assert re.findall(r'<th scope="row">(\d+)<', older) == ["2", "1"]
    assert browser.get(f"{WIDE}/batches?after=x").status_code == 400


def test_each_row_leads_to_its_own_page(create: Create, browser: Browser) -> None:
    fields = [{"name": name, "type": sql} for name, sql in (("a", "STRING"), ("b", "BIGINT"), ("c", "BOOLEAN"))]
    create("odd", fields=fields, primaryKeys=["a", "b", "c"])
    post(browser, {"a": "x&key=<1>/ü", "b": 2**53 + 1, "c": True}, table="odd")
    page = browser.get("/console/tables/shop/odd/rows").text
    [address] = {unescape(one) for one in re.findall(r'href="(/console/tables/shop/odd/row\?[^"]+)"', page)}
    reported = browser.get(address)
    assert reported.status_code == 200
    assert str(2**53 + 1) in reported.text


def test_merges_that_wait_for_a_compaction_are_reported(merged: Merged, browser: Browser) -> None:
    table = merged(**{"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2"})
    table.merge({"id": 1})
    assert "Merges wait" not in browser.text(f"{WIDE}/merges")
    table.merge({"id": 2})
    table.client.post(f"{table.path}/compact").raise_for_status()
    assert "Merges wait for a compaction: there are 2 runs, and the table's stop" in browser.text(f"{WIDE}/merges")
    table.compact()
    assert "Merges wait" not in browser.text(f"{WIDE}/merges")
