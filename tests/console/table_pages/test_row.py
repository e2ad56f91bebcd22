"""The page of a row: its value, its story, other times, and what records would do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from markupsafe import escape

from app.console.parts.row_values import row_values
from app.http.parts import Parts
from app.services.explaining.explained import ExplainedColumn, RecordPlace
from tests.api.conftest import TABLES, Create, fields_of
from tests.console.conftest import Browser, link_of, words
from tests.console.merged import Merged
from tests.services.builders import merge_staged

HOSTILE = "<b onx=1>\"'&{{7*7}}"
PAGE = "/console/tables/shop/parcels/row"
GROUPS = {
    "merge-engine": "partial-update",
    "fields.scanned.sequence-group": "place",
    "fields.booked.sequence-group": "fees",
    "fields.fees.aggregate-function": "sum",
    "num-sorted-run.compaction-trigger": "99",
}
FIELDS = fields_of(
    id="STRING NOT NULL", scanned="INT", place="STRING", booked="INT", fees="DECIMAL(10, 2)", note="STRING"
)
Post = Callable[..., None]


@pytest.fixture
def post(app: FastAPI, create: Create, browser: Browser) -> Post:
    """Posts one record to the table ``parcels``, and merges it if that is wanted."""
    table = create("parcels", fields=FIELDS, options=GROUPS)

    def post_record(record: Mapping[str, Any], *, merge: bool = False) -> None:
        answer = browser.client.post(f"{TABLES}/parcels/batches", json={"records": [record]})
        assert answer.status_code == 202, answer.text
        if merge:
            parts: Parts = app.state.parts
            merge_staged(parts.database, parts.warehouse, table["id"])

    return post_record


@pytest.fixture
def story(post: Post) -> None:
    """Two merged records, and two staged ones that come late."""
    post({"id": "1", "scanned": 10, "place": "Lyon"}, merge=True)
    post({"id": "1", "booked": 5, "fees": "4.90", "note": "x"}, merge=True)
    post({"id": "1", "scanned": 9, "place": "Paris"})
    post({"id": "1", "booked": 4, "fees": "1.10"})


def rows_of(page: str, css: str) -> list[str]:
    """The rows of the first table of a class, as text."""
    table = re.search(rf'<table class="{css}">(.*?)</table>', page, re.DOTALL)
    assert table
    return [words(row) for row in re.findall(r"<tr.*?</tr>", table[1], re.DOTALL)]


@pytest.mark.usefixtures("story")
def test_a_value_is_reported_beside_the_merged_one_with_the_record_that_it_came_from(browser: Browser) -> None:
    browser.text(f"{PAGE}?key=1")
    reported = rows_of(browser.shown, "values")
    assert reported[1:] == [
        *("id 1 the key", "scanned 10 10 batch 1, record 1", "place Lyon Lyon", "booked 5 5 batch 2, record 1"),
        *("fees 6.00 4.90 batch 2, record 1 ; batch 4, record 1", "note x x batch 2, record 1"),
    ]


@pytest.mark.usefixtures("story")
def test_neighbours_that_came_from_the_same_records_say_so_once(browser: Browser) -> None:
    page = browser.get(f"{PAGE}?key=1&asOf=1").text
    assert re.findall(r'<td class="source"(?: rowspan="(\d+)")?>\s*(?:<a[^>]*>)?([^<]*)', page) == [
        ("", "the key"),
        ("2", "batch 1, record 1"),
        ("3", "no record"),
    ]


def test_sources_are_the_same_if_all_their_records_are() -> None:
    places = [RecordPlace("id", number, 0) for number in range(9)]
    columns = [
        ExplainedColumn("a", 1, False, places[1:]),
        ExplainedColumn("b", 1, False, places),
        ExplainedColumn("c", 1, False, places),
        ExplainedColumn("d", 1, True, places),
        ExplainedColumn("e", 1, True, places, 3),
    ]
    values = row_values({"k": 1, **{column.column: 1 for column in columns}}, {"k"}, columns)
    assert [(value.name, value.span, value.source.older) for value in values] == [
        ("k", 1, 0),
        ("a", 1, 3),
        ("b", 2, 4),
        ("c", 0, 4),
        ("d", 1, 4),
        ("e", 1, 7),
    ]


@pytest.mark.usefixtures("story")
def test_a_story_has_a_lane_for_each_sequence_group_and_late_records_say_so(browser: Browser) -> None:
    browser.text(f"{PAGE}?key=1")
    reported = rows_of(browser.shown, "story")
    assert reported[0] == "Record by arrival note by scanned scanned, place by booked booked, fees"
    assert reported[1].startswith("Start nothing before the first batch")
    assert "changed scanned null → 10 place null → Lyon taken" in reported[2]
    assert reported[4] == "Staged: accepted, not merged yet"
    assert re.search(
        r"batch 3, record 1 late staged .* late, no change scanned, place stay sequence 9 < 10", reported[5]
    )
    assert re.search(r"late, but counted fees 4.90 → 6.00 late but summed booked stays", reported[6])
    assert "snapshot 2 by merge" in reported[3]


@pytest.mark.usefixtures("story")
def test_a_row_is_shown_as_it_was_in_a_snapshot_and_after_a_record(browser: Browser) -> None:
    first = browser.text(f"{PAGE}?key=1&asOf=1")
    assert rows_of(browser.shown, "values")[1:4] == ["id 1 the key", "scanned 10 batch 1, record 1", "place Lyon"]
    assert "The row in snapshot 1" in first
    assert "What if?" not in first
    assert "batch 1, record 1" in rows_of(browser.shown, "story")[-1]
    after = browser.text(f"{PAGE}?key=1&step=2.0")
    assert "The row after batch 2, record 1" in after
    assert "fees 4.90 changed here" in rows_of(browser.shown, "values")
    assert "There is no row" in browser.text(f"{PAGE}?key=1&step=start")


TIMES = ["", "&asOf=1", "&step=2.0"]


@pytest.mark.usefixtures("story")
def test_the_row_is_the_first_card_and_its_header_goes_back_in_time(browser: Browser) -> None:
    for asked in TIMES:
        page = browser.get(f"{PAGE}?key=1{asked}").text
        card = page[page.index('<section class="card"') :]
        header, rest = card.split("</header>", 1)
        assert '<h2 id="value"' in header, asked
        assert 'type="range"' in header, asked
        assert header.count("<li><a href=") == 8, asked
        assert ("Back to now" in header) == bool(asked), asked
        assert '<table class="values">' in rest[: rest.index("</section>")], asked


@pytest.mark.usefixtures("story")
def test_every_moment_has_a_link_and_one_of_them_is_current(browser: Browser) -> None:
    browser.text(f"{PAGE}?key=1")
    listed = re.findall(r'<li><a href="([^"]+)"( aria-current="true")?>([^<]+)', browser.shown)
    assert [name for _, _, name in listed] == [
        *("before these: nothing before the first batch", "after batch 1, record 1", "in snapshot 1"),
        *("after batch 2, record 1", "in snapshot 2", "after batch 3, record 1", "after batch 4, record 1", "now"),
    ]
    for url, _, name in listed:
        browser.text(unescape(url))
        assert re.findall(r'aria-current="true">([^<]+)', browser.shown) == [name]


NO_MOMENTS = ["step=9.9", "step=<b>", "asOf=77", "asOf=nosuch", "before=9.9"]


@pytest.mark.usefixtures("story")
def test_a_moment_that_there_is_not_is_reported(browser: Browser) -> None:
    for asked in NO_MOMENTS:
        answer = browser.get(f"{PAGE}?key=1&{asked}")
        assert answer.status_code in (400, 404), asked
        assert "<b>" not in answer.text.replace("<b>boss", ""), asked


@pytest.mark.usefixtures("story")
def test_records_are_tried_with_their_numbers_as_written_and_nothing_is_stored(browser: Browser) -> None:
    browser.text(f"{PAGE}?key=1")
    went = browser.get(f"{PAGE}?key=1&value.scanned=11&value.place=Nice&null.note=1&value.note=y&kind=%2BI&add=1")
    assert went.status_code == 303
    tried = browser.text(went.headers["location"].partition("#")[0])
    assert "place Lyon → Nice sequence 11 >= 10: taken" in tried
    assert "place Nice other than now" in tried
    assert '"id": "1", "scanned": 11, "place": "Nice", "note": null' in tried
    listed = browser.client.get(f"{TABLES}/parcels/batches").json()["batches"]
    assert len(listed) == 4
    again = browser.get(f"{PAGE}?key=1&try={quote(json.dumps({'scanned': 11}))}&value.fees=0.10&add=1")
    assert browser.text(again.headers["location"]).count("tried 2") == 1

    record = '{"booked": 9, "fees": 0.10, "scanned": 11}'
    tried = browser.text(f"{PAGE}?key=1&try={quote(record)}")
    assert "fees 6.00 → 6.10" in tried
    assert '"fees": 0.10, "scanned": 11 } ] }' in tried


@pytest.mark.usefixtures("story")
def test_a_record_that_no_batch_could_hold_is_reported_with_its_fix(browser: Browser) -> None:
    went = browser.get(f"{PAGE}?key=1&value.scanned=soon&add=1")
    assert "&#39;soon&#39;" in browser.get(went.headers["location"]).text
    assert browser.get(f"{PAGE}?key=1&try=%7B").status_code == 400
    assert browser.get(f"{PAGE}?key=1&try=%5B%5D").status_code == 400
    unknown = browser.get(f"{PAGE}?key=1&try={quote(json.dumps({'nosuch': 1}))}")
    assert (unknown.status_code, "nosuch" in words(unknown.text), "Its story" in unknown.text) == (200, True, True)


HOSTILE_RECORDS = ['{"note": "\\ud800"}', '{"\\ud800": 1}', '{"note": 1e999}', f'{{"note": {"[" * 800}{"]" * 800}}}']


@pytest.mark.usefixtures("story")
def test_a_hostile_record_is_refused_without_a_command_that_has_it(browser: Browser) -> None:
    for tried in HOSTILE_RECORDS:
        answer = browser.get(f"{PAGE}?key=1&try={quote(tried)}")
        assert (answer.status_code, "not tried" in answer.text) == (200, True), tried
        assert "rows:simulate" not in answer.text, tried


TOO_MANY = ["&try=%7B%7D" * 51, "&try=%7B%7D" * 50 + "&add=1"]


@pytest.mark.usefixtures("story")
def test_no_more_records_are_tried_than_have_room_in_each_address(browser: Browser) -> None:
    assert browser.text(f"{PAGE}?key=1{'&try=%7B%7D' * 50}").count("leave out") == 50
    for asked in TOO_MANY:
        refused = browser.get(f"{PAGE}?key=1{asked}")
        assert (refused.status_code, "at most 50 records are tried" in refused.text) == (400, True), asked


@pytest.mark.usefixtures("story")
def test_a_key_that_was_never_seen_is_reported_and_another_is_requested(browser: Browser) -> None:
    missing = browser.get(f"{PAGE}?key={quote(HOSTILE)}")
    assert missing.status_code == 404
    assert "Nothing is known of this key" in missing.text
    assert f'value="{escape(HOSTILE)}"' in missing.text
    assert "<b onx" not in missing.text
    assert browser.get(PAGE).status_code == 200
    assert browser.get(f"{PAGE}?key=1&key=2").status_code == 400
    assert browser.get("/console/tables/shop/nosuch/row?key=1").status_code == 404


def test_a_row_that_was_deleted_is_reported(wide: object, browser: Browser) -> None:
    for record in ({"id": 1, "note": "x"}, {"id": 1, "_kind": "-D"}):
        browser.client.post(f"{TABLES}/wide/batches", json={"records": [record]})
    text = browser.text("/console/tables/shop/wide/row?key=1")
    assert "There is no row" in text
    assert "note x → null" in text


def test_hostile_keys_and_values_are_text(post: Post, browser: Browser) -> None:
    post({"id": HOSTILE, "place": HOSTILE, "scanned": 1, "note": HOSTILE})
    text = browser.text(f"{PAGE}?key={quote(HOSTILE)}&try={quote(json.dumps({'note': HOSTILE + '!'}))}")
    assert text.count(HOSTILE) >= 4
    assert "<b onx" not in browser.shown


def test_a_large_value_is_cut_and_says_how_large_it_is(post: Post, browser: Browser) -> None:
    post({"id": "1", "note": "x" * 2**20})
    text = browser.text(f"{PAGE}?key=1")
    assert "(1 048 576 characters)" in text
    assert len(browser.shown) < 50_000


def test_a_row_of_two_hundred_columns_is_reported_shortly(create: Create, browser: Browser) -> None:
    fields = [{"id": 0, "name": "id", "type": "BIGINT NOT NULL"}]
    fields += [{"id": number, "name": f"c{number}", "type": "STRING"} for number in range(1, 200)]
    create("broad", fields=fields, options={"merge-engine": "partial-update"})
    records = [{"id": 1, "c1": "a"}, {"id": 1, "c199": "b"}]
    browser.client.post(f"{TABLES}/broad/batches", json={"records": records})
    text = browser.text("/console/tables/shop/broad/row?key=1")
    assert "c199 b batch 1, record 2" in text
    assert "198 columns stay" in text
    assert len(browser.shown) < 150_000


def test_a_long_story_is_read_page_by_page(post: Post, browser: Browser) -> None:
    for number in range(35):
        post({"id": "1", "note": f"n{number}"})
    newest = browser.get(f"{PAGE}?key=1")
    assert re.findall(r'<tr id="s(\d+)\.0"', newest.text) == [str(number) for number in range(6, 36)]
    page = browser.get(link_of(newest.text, "Older records"))
    assert re.findall(r'<tr id="s(\d+)\.0"', page.text) == [str(number) for number in range(1, 6)]
    assert "Newest records" in page.text
    assert "Older records" not in page.text
    step = re.search(r'href="([^"]*step=3\.0[^"]*)" title', page.text)
    assert step
    then = browser.text(unescape(step[1]))
    assert "The row after batch 3, record 1" in then
    assert "note n2" in then


def test_records_are_tried_on_a_key_that_is_not_there(post: Post, browser: Browser) -> None:
    post({"id": "1", "note": "x"})
    missing = browser.get(f"{PAGE}?key=2")
    assert missing.status_code == 404
    assert "What if?" in words(missing.text)
    assert f'href="{PAGE}/edit?key=2">Make this row' in missing.text
    added = browser.get(f"{PAGE}?key=2&add=1&kind=%2BI&value.note=y&value.scanned=soon")
    tried = browser.get(added.headers["location"].partition("#")[0])
    assert "not a whole number" in words(tried.text)
    tried = browser.get(f"{PAGE}?key=2&try=" + quote(json.dumps({"note": "y"})))
    assert (tried.status_code, "note y other than now" in words(tried.text)) == (404, True)
    assert browser.get(f"{PAGE}?key=2").status_code == 404, "nothing was stored"


def test_records_that_a_rollback_undid_are_counted_from_1(merged: Merged, browser: Browser) -> None:
    table = merged()
    for note in ("a", "b"):
        table.merge({"id": 1, "note": note})
    page = "/console/tables/shop/wide/snapshots/rollback"
    browser.get(f"{page}?to=1")
    assert browser.send(page, to="1", typed="wide", **{"from": "2"}).status_code == 303
    assert "undone: batch 2, record 1" in browser.text("/console/tables/shop/wide/row?key=1")
