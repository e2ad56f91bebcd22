"""The settings of a table as a form: every option, checked while it is written, altered through the same service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest

from app.core.access import Role
from app.core.table.options.entries import TABLE_OPTIONS
from app.core.table.options.option import Change
from tests.api.conftest import Create
from tests.console.conftest import Browser, SignedIn, words
from tests.console.merged import FIELDS, HOSTILE, Merged, MergedTable

PAGE = "/console/tables/shop/wide/settings"


@pytest.fixture
def table(merged: Merged) -> MergedTable:
    """A table that has rows."""
    made = merged(**{"merge-engine": "partial-update", "merge.max-staleness": "10 s"})
    made.merge({"id": 1, "note": "a", "n": 1})
    return made


def fields_of(page: str) -> dict[str, str]:
    """What a browser sends of the form of options as it is shown."""
    form = re.search(r'<form method="post" action="[^"]*/settings[^"]*" class="set-form".*?</form>', page, re.DOTALL)
    assert form
    inputs = re.findall(r'<input[^>]*? name="([^"]+)"(?: value="([^"]*)")?', form[0])
    found = {unescape(name): unescape(value) for name, value in inputs}
    for name, options in re.findall(r'<select[^>]*? name="([^"]+)".*?>(.*?)</select>', form[0], re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected', options)
        found[unescape(name)] = unescape(chosen[1]) if chosen else ""
    return found


def send(browser: Browser, changed: Mapping[str, str], to: str = PAGE) -> Any:
    """Opens the page, changes some of the form's fields, and sends all of it."""
    fields = fields_of(browser.get(PAGE).text)
    unknown = changed.keys() - fields.keys()
    assert not unknown, unknown
    return browser.post(to, **{**fields, **changed})


def faults_beside(page: str) -> dict[str, str]:
    """What is said beside the fields, by the key of their option."""
    keys = dict(re.findall(r'id="set-(\d+)" name="set\.([^"]+)"', page))
    slots = re.findall(r'id="fault-(\w+)"[^>]*>(.*?)</div>', page, re.DOTALL)
    return {unescape(keys.get(place, place)): words(text) for place, text in slots if words(text)}


def test_every_option_is_there_with_value_default_and_meaning(table: MergedTable, browser: Browser) -> None:
    page = browser.get(PAGE).text
    fields = fields_of(page)
    text = words(page)
    for option in TABLE_OPTIONS.values():
        if option.effect:
            assert option.meaning in text
            fixed = option.change is Change.NEVER
            assert (f"set.{option.key}" in fields) is not fixed, option.key
    assert fields["set.merge.max-staleness"] == "10 s"
    assert 'placeholder="1 h"' in page
    assert 'placeholder="128 mb"' in page


def test_what_the_form_shows_changes_nothing_when_it_is_sent(table: MergedTable, browser: Browser) -> None:
    before = table.client.get(table.path).json()
    answer = send(browser, {})
    assert answer.status_code == 303
    assert table.client.get(table.path).json() == before


def test_options_are_set_changed_and_removed_together(table: MergedTable, browser: Browser) -> None:
    wished = {
        "set.merge.max-staleness": "",
        "set.snapshot.time-retained": "2 h",
        "set.changelog-producer": "lookup",
        "new-key": "fields.n.default-value",
        "new-value": "0",
    }
    before = table.options()
    assert send(browser, wished).status_code == 303
    after = table.options()
    assert before["merge.max-staleness"] == "10 s"
    assert "merge.max-staleness" not in after
    assert after["snapshot.time-retained"] == "2 h"
    assert after["changelog-producer"] == "lookup"
    assert after["fields.n.default-value"] == "0"


def test_all_faults_are_reported_beside_their_fields_and_nothing_is_altered(
    table: MergedTable, browser: Browser
) -> None:
    before = table.options()
    wished = {
        "set.snapshot.time-retained": "soon",
        "set.target-file-size": "big",
        "set.merge.max-staged-rows": "10",
        "new-key": "merge.max-stalenes",
        "new-value": "1 s",
    }
    refused = send(browser, wished)
    assert refused.status_code == 400
    reported = faults_beside(browser.shown)
    assert set(reported) == {"snapshot.time-retained", "target-file-size", "new"}
    assert "write a number and a unit: 500 ms" in reported["snapshot.time-retained"]
    assert "did you mean merge.max-staleness?" in reported["new"]
    assert fields_of(browser.shown)["set.merge.max-staged-rows"] == "10"
    assert table.options() == before


def test_what_is_written_is_checked_and_nothing_is_stored(table: MergedTable, browser: Browser) -> None:
    before = table.options()
    answer = send(browser, {"set.target-file-size": HOSTILE, "set.merge.max-staged-rows": "5"}, f"{PAGE}/check")
    assert answer.status_code == 200
    text = words(browser.shown)
    assert "1 fault" in text
    assert "<b onx" not in browser.shown
    slots = len(re.findall(r'id="fault-\d+" hx-swap-oob="true"', browser.shown))
    assert slots == sum(name.startswith("set.") for name in fields_of(browser.get(PAGE).text))
    send(browser, {"set.merge.max-staged-rows": "5"}, f"{PAGE}/check")
    assert "1 change, nothing wrong" in words(browser.shown)
    command = unescape(browser.shown)
    assert '"action": "setOption"' in command
    assert '"merge.max-staged-rows"' in command
    assert table.options() == before


def test_new_warnings_are_shown_before_anything_is_altered(table: MergedTable, browser: Browser) -> None:
    send(browser, {"set.changelog-producer": "lookup"}, f"{PAGE}/check")
    assert "every merge looks its keys up" in words(browser.shown)
    assert "as before" in words(browser.shown)


def test_what_cannot_change_is_shown_with_the_reason(table: MergedTable, browser: Browser) -> None:
    page = browser.get(PAGE).text
    fixed = page[page.index(">What cannot change<") :]
    assert "merge-engine how records of one key fold together partial-update records were posted" in words(fixed)
    assert "set.merge-engine" not in fields_of(page)
    fields = {**fields_of(page), "set.merge-engine": "deduplicate"}
    assert browser.post(PAGE, **fields).status_code == 303
    assert table.options()["merge-engine"] == "partial-update"


def test_before_the_first_record_everything_but_the_key_may_change(merged: Merged, browser: Browser) -> None:
    table = merged()
    assert send(browser, {"set.merge-engine": "first-row"}).status_code == 303
    assert table.options()["merge-engine"] == "first-row"
    assert "set.primary-key" not in fields_of(browser.get(PAGE).text)


def test_what_was_turned_on_stays_on(merged: Merged, browser: Browser) -> None:
    table = merged(**{"partial-update.ignore-delete": "true", "merge-engine": "partial-update"})
    table.merge({"id": 1})
    page = browser.get(PAGE).text
    assert "set.ignore-delete" not in fields_of(page)
    assert "it can be turned on, never off" in words(page)
    assert "partial-update.ignore-delete" in words(page[page.index(">What cannot change<") :])


def test_who_is_late_is_reported_and_loses_nothing_that_he_wrote(table: MergedTable, browser: Browser) -> None:
    fields = fields_of(browser.get(PAGE).text)
    table.alter([{"action": "setOption", "key": "target-file-size", "value": "64 mb"}])
    late = browser.post(PAGE, **{**fields, "set.merge.max-staged-rows": "7"})
    assert late.status_code == 412
    assert "was altered since this form was shown" in words(late.text)
    assert fields_of(late.text)["set.merge.max-staged-rows"] == "7"
    assert "merge.max-staged-rows" not in table.options()


def test_batches_that_would_be_folded_differently_are_reported(table: MergedTable, browser: Browser) -> None:
    table.stage({"id": 1, "note": "b"})
    refused = send(browser, {"set.sequence.field": "n"})
    assert refused.status_code == 409
    assert "has staged batches" in words(browser.shown)


def test_a_value_with_the_end_of_a_line_survives_a_form_that_cannot_hold_it(merged: Merged, browser: Browser) -> None:
    delimiter = {"fields.note.aggregate-function": "listagg", "fields.note.list-agg-delimiter": "\r\n"}
    table = merged(**{"merge-engine": "aggregation", **delimiter})
    assert send(browser, {"set.merge.max-staged-rows": "7"}).status_code == 303
    assert table.options()["fields.note.list-agg-delimiter"] == "\r\n"
    assert table.options()["merge.max-staged-rows"] == "7"


def test_options_of_paimons_and_of_columns_are_shown_where_they_are_set(merged: Merged, browser: Browser) -> None:
    merged(**{"bucket": "4", "write-buffer-size": "1 mb", "fields.note.default-value": HOSTILE})
    page = browser.get(PAGE).text
    assert fields_of(page)["set.bucket"] == "4"
    assert fields_of(page)["set.fields.note.default-value"] == HOSTILE
    assert "without effect here" in words(page)
    assert "set.page-size" not in fields_of(page)


def test_columns_are_added_renamed_widened_described_and_dropped(table: MergedTable, browser: Browser) -> None:
    steps = [
        {"what": "add", "column": "more", "text": "INT"},
        {"what": "rename", "column": "more", "text": HOSTILE},
        {"what": "widen", "column": HOSTILE, "text": "BIGINT"},
        {"what": "describe", "column": HOSTILE, "text": HOSTILE},
    ]
    for step in steps:
        page = browser.get(PAGE).text
        assert browser.send(f"{PAGE}/columns", **step, seen=fields_of(page)["seen"]).status_code == 303, step
    [field] = table.client.get(table.path).json()["schema"]["fields"][3:]
    assert (field["name"], field["type"], field["description"]) == (HOSTILE, "BIGINT", HOSTILE)
    seen = fields_of(browser.get(PAGE).text)["seen"]
    assert "<b onx" not in browser.shown
    drop = {"what": "drop", "column": HOSTILE, "seen": seen}
    assert browser.send(f"{PAGE}/columns", **drop, typed="wide").status_code == 400
    assert browser.send(f"{PAGE}/columns", **drop, typed=HOSTILE).status_code == 303
    assert len(table.client.get(table.path).json()["schema"]["fields"]) == 3


NO_CHANGES = [
    ({"what": "add", "column": "note", "text": "INT"}, 409, "note"),
    ({"what": "add", "column": "x", "text": "INTEGRE"}, 400, "INTEGRE"),
    ({"what": "drop", "column": "id", "typed": "id"}, 400, "id"),
    ({"what": "widen", "column": "n", "text": "INT"}, 400, "INT"),
    ({"what": "burn", "column": "n"}, 400, "open the page again"),
]


def test_a_column_that_cannot_be_changed_so_is_reported(table: MergedTable, browser: Browser) -> None:
    for form, status, said in NO_CHANGES:
        page = browser.get(PAGE).text
        refused = browser.send(f"{PAGE}/columns", **form, seen=fields_of(page)["seen"])
        assert refused.status_code == status, form
        [alert] = re.findall(r'role="alert".*?</div>', refused.text, re.DOTALL)
        assert said in words(alert), form


def test_a_reader_sees_the_settings_and_cannot_change_them(merged: Merged, signed_in: SignedIn) -> None:
    table = merged()
    writer = signed_in(Role.WRITE)
    page = writer.get(PAGE)
    assert "an admin of the table may change them" in words(page.text)
    assert "Alter the table" not in page.text
    assert "Drop the column" not in page.text
    assert "hx-post" not in page.text
    for path in (PAGE, f"{PAGE}/check", f"{PAGE}/columns"):
        writer.get(PAGE)
        assert writer.send(path, **{"set.bucket": "3"}).status_code == 403
    with table.database.reading() as repository:
        assert "bucket" not in repository.tables.get("shop", "wide").schema.options


def shown(page: str) -> list[str]:
    return [name for name in fields_of(page) if name.startswith("set.")]


def test_the_settings_of_two_hundred_columns_are_light(create: Create, browser: Browser) -> None:
    columns = ({"id": number, "name": f"c{number}", "type": "STRING"} for number in range(1, 200))
    create("wide", fields=[FIELDS[0], *columns])
    answer = browser.get(PAGE)
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) < 150_000


def test_options_are_found_by_name_and_by_meaning(table: MergedTable, browser: Browser) -> None:
    assert shown(browser.get(f"{PAGE}?q=MAX-STALENESS").text) == ["set.merge.max-staleness"]
    assert len(shown(browser.get(PAGE).text)) > 20
    meaning = TABLE_OPTIONS["snapshot.time-retained"].meaning
    assert "set.snapshot.time-retained" in shown(browser.get(f"{PAGE}?q={meaning}").text)
    assert "No option has “<i>” in its name" in browser.text(f"{PAGE}?q=%3Ci%3E")
    assert "merge-engine" in browser.text(f"{PAGE}?q=merge-engine")


def test_only_what_is_set_is_shown_when_that_is_requested(table: MergedTable, browser: Browser) -> None:
    found = shown(browser.get(f"{PAGE}?changed=1").text)
    assert "set.merge.max-staleness" in found
    assert {name.removeprefix("set.") for name in found} <= set(table.options())


def test_what_is_not_shown_stays_and_the_page_shows_the_same_afterwards(table: MergedTable, browser: Browser) -> None:
    before = table.options()
    page = browser.get(f"{PAGE}?q=snapshot&changed=").text
    action = re.search(r'<form method="post" action="([^"]+/settings[^"]*)" class="set-form"', page)
    assert action
    sent = browser.post(unescape(action[1]), **{**fields_of(page), "set.snapshot.time-retained": "3 h"})
    assert (sent.status_code, sent.headers["location"]) == (303, f"{PAGE}?q=snapshot")
    assert table.options() == {**before, "snapshot.time-retained": "3 h"}


def test_what_is_checked_has_no_place_for_options_that_are_not_shown(table: MergedTable, browser: Browser) -> None:
    fields = fields_of(browser.get(f"{PAGE}?q=snapshot.time-retained").text)
    browser.post(f"{PAGE}/check", **{**fields, "set.snapshot.time-retained": "soon"})
    places = re.findall(r'id="fault-(\w+)"', browser.shown)
    assert len(places) == 2
    assert "new" in places
