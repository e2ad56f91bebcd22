"""The playground: records folded in any order and any cut, and nothing stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from playwright.sync_api import Browser as Chromium

from tests.api.conftest import fields_of
from tests.console.chromium import WIDTHS, needs_chromium, person
from tests.console.conftest import Browser, words
from tests.service import Client

PAGE = "/console/playground"
HOSTILE = "<b onx=1>\"'&{{7*7}}"
GROUPS = """CREATE TABLE t (id INT, g INT, a STRING, n INT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'a,n', 'fields.n.aggregate-function' = 'sum')"""
RECORDS = [{"id": 1, "g": 2, "a": "x", "n": 1}, {"id": 1, "g": 1, "a": "y", "n": 2}]


def text(*batches: Sequence[Any]) -> str:
    """Batches of records as the page has them."""
    return "\n\n".join("\n".join(json.dumps(record) for record in batch) for batch in batches)


def played(browser: Browser, records: str, posted: str = "", schema: str = GROUPS, status: int = 200) -> str:
    """What the page says of records."""
    browser.get(PAGE)
    answer = browser.send(PAGE, schema=schema, records=records, posted=posted)
    assert answer.status_code == status, answer.text
    return words(answer.text)


def test_the_page_begins_with_an_example_that_is_folded(browser: Browser) -> None:
    shown = browser.text(PAGE)
    assert "late, but counted fees 4.90 → 6.00" in shown
    assert "4. id 1" in shown


def test_records_in_another_order_and_another_cut_come_to_the_same(browser: Browser) -> None:
    shown = played(browser, text([RECORDS[1]], [RECORDS[0]]), text(RECORDS))
    assert "The rows stay the same:" in shown
    assert "Folded batch by batch (2 batches), and then together, they give the same rows." in shown
    assert "1 2 x 3 null" in shown


def test_what_depends_on_arrival_is_reported_with_its_rule(browser: Browser) -> None:
    notes = [{"id": 1, "note": "first"}, {"id": 1, "note": "last"}]
    shown = played(browser, text(notes[::-1]), text(notes))
    assert "note : last as posted, first in this order" in shown
    assert "It depends on arrival" in shown
    same = [{"id": 1, "g": 1, "a": "x"}, {"id": 1, "g": 1, "a": "y"}]
    assert "Arrival decides among records of the same sequence" in played(browser, text(same[::-1]), text(same))


def test_nothing_is_said_of_the_order_of_other_records_than_were_posted(browser: Browser) -> None:
    shown = played(browser, text([RECORDS[0]]), text(RECORDS))
    assert "The rows stay the same:" not in shown
    assert "in the order in which they were posted" in shown


def test_several_keys_removals_and_ignored_records_are_folded(browser: Browser) -> None:
    schema = json.dumps(
        {
            "fields": fields_of(id="INT NOT NULL", a="STRING"),
            "primaryKeys": ["id"],
            "options": {"ignore-update-before": "true"},
        }
    )
    records = [{"id": 1, "a": "x"}, {"id": 2, "a": "y", "_kind": "-U"}, {"id": 1, "_kind": "-D"}, {"id": 2, "a": "z"}]
    shown = played(browser, text(records[:2], records[2:]), schema=schema)
    assert "no row of id 1 2 z" in shown
    assert "ignored: the table drops this row kind" in shown
    assert "they give the same rows" in shown


NOT_FOLDED = [
    ("CREATE TABLE", '{"id": 1}', "CREATE TABLE"),
    ("{", '{"id": 1}', "JSON"),
    (GROUPS, "{", "record 1 is no JSON"),
    (GROUPS, '{"id": "soon"}', "soon"),
    (GROUPS, "", "1 to 200 records"),
    (GROUPS, '{"id": 1}\n' * 201, "1 to 200 records"),
    (GROUPS, '{"nosuch": 1}', "nosuch"),
    (GROUPS, '{"id": 1, "n": 1.5}', "1.5"),
    (GROUPS, '{"id": 1, "\\ud800": 1}', "column"),
    (GROUPS, "[]", "object"),
    (f"{GROUPS};{GROUPS.replace('TABLE t', 'TABLE u')}", '{"id": 1}', "leave one"),
]


def test_what_cannot_be_folded_is_reported(browser: Browser) -> None:
    for schema, records, reported in NOT_FOLDED:
        assert reported in played(browser, records, schema=schema, status=400), (schema, records)


def test_numbers_are_folded_and_sent_as_they_were_written(browser: Browser) -> None:
    schema = "CREATE TABLE t (id INT, d DOUBLE, n DECIMAL(38, 20), PRIMARY KEY (id) NOT ENFORCED)"
    numbers = ['{"id":1,"d":-0.0}', '{"id":1,"d":1.5}', '{"id":1,"n":1.10000000000000000001}']
    shown = played(browser, "\n".join(numbers), schema=schema)
    assert "d null → -0.0" in shown
    assert "n null → 1.10000000000000000001" in shown
    assert '"records": [ {"id":1,"d":-0.0}, {"id":1,"d":1.5}, {"id":1,"n":1.10000000000000000001} ]}' in shown
    played(browser, '{"id":1,"d":1e999}', schema=schema, status=400)


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_an_end_of_a_line_that_is_none_of_json_may_be_in_a_text(browser: Browser, end: str) -> None:
    assert "1. id 1" in played(browser, f'{{"id": 1, "note": "a{end}b"}}')


def test_more_values_than_a_page_can_tell_are_refused(browser: Browser) -> None:
    columns = ", ".join(f"c{number} INT" for number in range(199))
    schema = f"CREATE TABLE t (id INT, {columns}, PRIMARY KEY (id) NOT ENFORCED)"
    reported = played(browser, '{"id": 1}\n' * 101, schema=schema, status=413)
    assert "the playground folds at most 100 records of a table of 200 columns, these are 101" in reported
    assert "play fewer" in reported


def test_hostile_values_are_text_and_nothing_is_stored(browser: Browser) -> None:
    assert HOSTILE in played(browser, text([{"id": 1, "note": HOSTILE}]))
    assert "<b onx" not in browser.shown
    assert browser.client.get("/v1/catalog/databases").json()["databases"] == []


@needs_chromium
def test_records_are_moved_and_cut_by_keyboard_and_the_address_has_it_all(chrome: Chromium, service: Client) -> None:
    with person(chrome, str(service.base_url), "phone", "dark") as first:
        first.open(PAGE)
        first.page.get_by_role("button", name="Move record 4 up").press("Enter")
        first.page.get_by_text("The rows stay the same:").wait_for()
        first.page.wait_for_function("document.activeElement.name === 'up'")
        first.page.get_by_role("button", name="Begin or join a batch at record 3").press("Enter")
        first.page.get_by_text("Batch 2", exact=True).wait_for()
        first.page.get_by_role("button", name="Back").click()
        first.page.get_by_text("4 of 5").wait_for()
        assert first.page.locator("#played tr[data-record]:visible").count() == 4
        for width in WIDTHS.values():
            first.page.set_viewport_size({"width": width, "height": 900})
            assert first.axe() == []
            assert not first.wider_than_window()
        assert (first.complaints, first.hosts) == ([], {urlsplit(str(service.base_url)).netloc})
        address = first.page.url
        assert "Paris" in unquote(address.partition("#")[2])
    with person(chrome, str(service.base_url)) as second:
        second.open(address)
        second.page.get_by_text("Batch 2", exact=True).wait_for()
        second.page.get_by_text("The rows stay the same:").wait_for()


@needs_chromium
def test_an_address_is_opened_where_the_page_is_open_already(chrome: Chromium, service: Client) -> None:
    state = {"schema": GROUPS, "records": '{"id": 77}', "posted": '{"id": 77}'}
    with person(chrome, str(service.base_url)) as opened:
        opened.open(PAGE)
        opened.open(f"{PAGE}#{quote(json.dumps(state))}")
        opened.page.get_by_text("1. id 77").wait_for()
        opened.page.get_by_role("button", name="Move record 1 up").wait_for()


@needs_chromium
def test_records_are_dragged_and_folded_without_a_script(chrome: Chromium, service: Client) -> None:
    with person(chrome, str(service.base_url)) as dragging:
        dragging.open(PAGE)
        rows = dragging.page.locator("#played tr[data-record]")
        rows.nth(3).drag_to(rows.nth(0))
        dragging.page.get_by_text("The rows stay the same:").wait_for()
        assert "Paris" in dragging.page.input_value("#records").splitlines()[0]
    with person(chrome, str(service.base_url), java_script_enabled=False) as plain:
        plain.open(PAGE)
        plain.page.get_by_label("Records, one JSON object a line").fill('{"id": 7}')
        plain.page.get_by_role("button", name="Fold").click()
        plain.page.get_by_text("1. id 7").wait_for()
