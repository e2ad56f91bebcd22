"""The rows of a table in the console: pages, filters, columns, and all of them as a file."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from typing import Any

import pyarrow.parquet as pq

from app.core.access import Role
from tests.api.conftest import TABLES, Create
from tests.console.conftest import Browser, SignedIn, words

WIDE = "/console/tables/shop/wide"
HOSTILE = """<b onx=1>"'&{{7*7}}"""


def post(browser: Browser, *records: dict[str, Any]) -> None:
    assert browser.client.post(f"{TABLES}/wide/batches", json={"records": records}).status_code == 202


def keys_shown(page: str) -> list[int]:
    return sorted(int(key) for key in re.findall(r'/row\?key=(\d+)"', page))


def test_rows_are_shown_with_what_is_staged_and_paged(wide: object, browser: Browser) -> None:
    post(browser, *({"id": number, "note": f"n{number}"} for number in range(60)))
    seen: list[str] = []
    path: str | None = f"{WIDE}/rows"
    while path is not None:
        page = browser.get(path).text
        seen += re.findall(r">n(\d+)<", page)
        onward = re.search(r'href="([^"]+)">Next page', page)
        path = unescape(onward[1]) if onward else None
    assert sorted(map(int, seen)) == list(range(60))


def test_rows_are_filtered_and_a_wrong_filter_is_reported(wide: object, browser: Browser) -> None:
    post(browser, {"id": 1, "note": "a"}, {"id": 9007199254740993, "note": None})
    assert "9007199254740993 null" in browser.text(f"{WIDE}/rows?filter=id.gt.1")
    for wrong in ("filter=nope.eq.1", "filter=<b>", "after=x"):
        refused = browser.get(f"{WIDE}/rows?{wrong}")
        assert (refused.status_code, 'role="alert"' in refused.text, "<b>" in refused.text) == (400, True, False)


def test_a_filter_is_chosen_by_column_condition_and_value_and_added_to_others(wide: object, browser: Browser) -> None:
    post(browser, *({"id": number, "note": f"n{number % 3}"} for number in range(12)), {"id": 12, "note": None})
    page = browser.get(f"{WIDE}/rows?column=note&operator=eq&value=n1").text
    assert keys_shown(page) == [1, 4, 7, 10]
    assert 'name="filter" value="note.eq.n1"' in page
    page = browser.get(f"{WIDE}/rows?filter=note.eq.n1&column=id&operator=gte&value=5").text
    assert keys_shown(page) == [7, 10]
    without = unescape(re.findall(r'href="([^"]+)" aria-label="Without the filter note.eq.n1"', page)[0])
    assert keys_shown(browser.get(without).text) == [*range(5, 13)]
    assert keys_shown(browser.get(f"{WIDE}/rows?column=note&operator=is.null&value=").text) == [12]
    assert keys_shown(browser.get(f"{WIDE}/rows?column=id&operator=in&value=3,4").text) == [3, 4]
    assert keys_shown(browser.get(f"{WIDE}/rows?column=note&operator=like&value=n%252").text) == [2, 5, 8, 11]
    assert "No row meets the filter" in browser.text(f"{WIDE}/rows?column=id&operator=lt&value=0")
    assert browser.get(f"{WIDE}/rows?column=id&operator=lt&value=x").status_code == 400


def test_columns_are_chosen_and_the_key_leads_to_its_row(create: Create, browser: Browser) -> None:
    fields = [("note", "STRING"), ("id", "BIGINT NOT NULL"), ("n", "INT")]
    create("wide", fields=[{"id": place, "name": name, "type": kind} for place, (name, kind) in enumerate(fields)])
    post(browser, {"id": 1, "note": "one", "n": 10})
    page = browser.get(f"{WIDE}/rows").text
    assert re.findall(r"<th[^>]*><details[^>]*><summary>(\w+)</summary>", page) == ["id", "note", "n"]
    assert re.findall(r'<th scope="col" class="number"><details[^>]*><summary>(\w+)</summary>', page) == ["id", "n"]
    page = browser.get(f"{WIDE}/rows?show=n&filter=n.eq.10").text
    assert re.findall(r"<th[^>]*><details[^>]*><summary>(\w+)</summary>", page) == ["id", "n"]
    assert keys_shown(page) == [1]
    assert "Columns (1 of 3)" in words(page)
    assert browser.get(f"{WIDE}/rows?show=nothing").status_code == 400


def test_rows_that_meet_the_filters_are_downloaded_in_each_format(wide: object, browser: Browser) -> None:
    post(browser, *({"id": number, "note": f"n{number}"} for number in range(120)))
    page = browser.get(f"{WIDE}/rows?filter=id.gte.100&show=id").text
    links = {one: unescape(link) for link, one in re.findall(r'href="([^"]+)" download>(\w+)<', page)}
    assert list(links) == ["csv", "ndjson", "parquet"]
    found = {form: browser.client.get(link) for form, link in links.items()}
    assert {form: one.headers["content-disposition"] for form, one in found.items()} == {
        form: f"attachment; filename*=UTF-8''wide.{form}" for form in links
    }
    ids = [
        [int(row["id"]) for row in csv.DictReader(io.StringIO(found["csv"].text))],
        [json.loads(line)["id"] for line in found["ndjson"].text.splitlines()],
        pq.read_table(io.BytesIO(found["parquet"].content)).column("id").to_pylist(),
    ]
    assert [sorted(one) for one in ids] == [[*range(100, 120)]] * 3
    assert list(json.loads(found["ndjson"].text.splitlines()[0])) == ["id"]
    assert browser.get(f"{WIDE}/rows/download?format=xls").status_code == 400
    assert browser.get(f"{WIDE}/rows/download?format=csv&filter=no.eq.1").status_code == 400
    assert browser.get("/console/tables/shop/none/rows/download?format=csv").status_code == 404


def test_a_reader_downloads_and_the_name_of_the_file_is_text(create: Create, signed_in: SignedIn) -> None:
    create(HOSTILE)
    reader = signed_in(Role.READ)
    path = "%3Cb%20onx%3D1%3E%22%27%26%7B%7B7%2A7%7D%7D"
    answer = reader.client.get(f"/console/tables/shop/{path}/rows/download?format=csv")
    assert (answer.status_code, answer.text) == (200, "id,note\r\n")
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{path}.csv"


def test_a_page_is_sorted_by_its_numbers_and_texts_with_nulls_last(wide: object, browser: Browser) -> None:
    notes = ["b", None, "<i>", "a", "10", "9"]
    post(browser, *({"id": number, "note": note} for number, note in enumerate(notes, 8)))
    for query, expected in {
        "sort=id": [8, 9, 10, 11, 12, 13],
        "sort=id&down=1": [13, 12, 11, 10, 9, 8],
        "sort=note": [12, 13, 10, 11, 8, 9],
        "sort=note&down=1&filter=id.gt.8": [11, 10, 13, 12, 9],
    }.items():
        page = browser.get(f"{WIDE}/rows?{query}").text
        assert [int(key) for key in re.findall(r'<td[^>]*><a href="[^"]*/row\?key=(\d+)"', page)] == expected, query
        assert f'aria-sort="{"descending" if "down" in query else "ascending"}"' in page
    assert len(keys_shown(browser.get(f"{WIDE}/rows?sort=nothing").text)) == 6


def test_the_menu_of_a_column_leads_to_its_sort_its_filter_and_without_it(wide: object, browser: Browser) -> None:
    post(browser, {"id": 1, "note": "a"})
    page = browser.get(f"{WIDE}/rows?filter=id.gt.0").text
    [menu] = re.findall(r"<summary>note</summary>(.*?)</details>", page, re.DOTALL)
    links = [unescape(one) for one in re.findall(r'href="([^"]+)"', menu)]
    assert ["filter=id.gt.0" in link for link in links] == [True] * 4
    up, down, by, without = (browser.get(link.partition("#")[0]).text for link in links)
    assert 'aria-sort="ascending"' in up
    assert 'aria-sort="descending"' in down
    assert '<option value="note" selected>' in by
    assert "<summary>note" not in without
    assert "<summary>id" in without
