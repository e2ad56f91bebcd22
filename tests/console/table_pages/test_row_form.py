"""Rows written in forms: new ones, changed ones, deleted ones; what is left alone, faults at their fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from app.console.parts.field_words import FIELD_WORDS
from app.console.table_pages.row_form import EXAMPLES
from app.core.access import Role
from app.core.types.kinds import Family
from lab.fuzz.tables import EVERY_TYPE
from tests.api.conftest import TABLES, Create, Merge, fields_of
from tests.console.conftest import Browser, SignedIn, words
from tests.console.merged import Merged
from tests.console.table_pages.test_row import FIELDS, GROUPS

HOSTILE = "<b onx=1>\"'&{{7*7}}\n</textarea>"
ROW = "/console/tables/shop/wide/row"
UNCHANGED = {**GROUPS, "record.absent-columns": "unchanged"}
PLAIN = fields_of(id="BIGINT NOT NULL", n="BIGINT", note="STRING", done="BOOLEAN", tags="ARRAY<INT>")


def post(browser: Browser, *records: Mapping[str, Any]) -> None:
    answer = browser.client.post(f"{TABLES}/wide/batches", json={"records": records})
    assert answer.status_code == 202, answer.text


def row(browser: Browser, key: object) -> dict[str, Any] | None:
    answer = browser.client.get(f"{TABLES}/wide/rows", params={"key": str(key)})
    found: dict[str, Any] = answer.json()
    return None if answer.status_code == 404 else found


def shown(page: str) -> dict[str, str]:
    """What the form of a page sends if nobody touches it."""
    form = page[page.index('<form method="post" action="/console/tables') :]
    form = form[: form.index("</form>")]
    inputs = re.findall(r'<input (?:type="hidden"|id="\w+") name="([^"]*)" value="([^"]*)"', form)
    texts = re.findall(r'<textarea id="\w+" name="([^"]*)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL)
    chosen = re.findall(r'<select id="\w+" name="([^"]*)".*?<option value="([^"]*)" selected', form, re.DOTALL)
    return {unescape(name): unescape(text) for name, text in [*inputs, *texts, *chosen]}


def change(browser: Browser, key: object, **fields: str) -> Any:
    """Opens the form of a row, and sends it with some fields written into."""
    page = browser.get(f"{ROW}/edit?key={key}")
    assert page.status_code == 200, page.text
    return browser.post(f"{ROW}/edit", **{**shown(page.text), **fields})


def story(browser: Browser, key: object) -> list[dict[str, Any]]:
    """What the last record of a row said and did."""
    answer = browser.client.get(f"{TABLES}/wide/rows:explain", params={"key": str(key)})
    steps: list[dict[str, Any]] = answer.json()["steps"]
    return steps


def test_every_family_has_an_example() -> None:
    assert {*EXAMPLES} == {*Family}


def test_a_row_is_added_and_what_stays_empty_is_left_out(create: Create, browser: Browser) -> None:
    create("wide", fields=PLAIN)
    browser.get(f"{ROW}/new")
    fields = {"value.id": str(2**53 + 1), "value.n": "", "value.note": "", "empty.note": "1", "value.tags": "[1, 2]"}
    answer = browser.send(f"{ROW}/new", **fields, **{"value.done": "true", "kind": "+I", "once": "a"})
    assert answer.status_code == 303
    assert re.fullmatch(rf"{ROW}\?key={2**53 + 1}&sent=\w+", answer.headers["location"])
    assert row(browser, 2**53 + 1) == {"id": 2**53 + 1, "n": None, "note": "", "done": True, "tags": [1, 2]}
    assert "Batch 1 is staged" in browser.text(answer.headers["location"])


def test_a_form_that_is_sent_twice_is_one_batch_and_with_other_values_another(create: Create, browser: Browser) -> None:
    create("wide", fields=PLAIN)
    browser.get(f"{ROW}/new")
    page = shown(browser.shown)
    for note in ("a", "a", "b"):
        assert browser.post(f"{ROW}/new", **{**page, "value.id": "1", "value.note": note}).status_code == 303
    assert len(browser.client.get(f"{TABLES}/wide/batches").json()["batches"]) == 2


def test_columns_that_are_left_alone_stay_out_where_the_table_says_so(create: Create, browser: Browser) -> None:
    create("wide", fields=FIELDS, options=UNCHANGED)
    post(browser, {"id": "1", "scanned": 10, "place": "Lyon", "booked": 5, "fees": "4.90", "note": "x"})
    browser.get(f"{ROW}/edit?key=1")
    page = shown(browser.shown)
    assert browser.post(f"{ROW}/edit", **{**page, "value.note": "y"}).status_code == 303
    named = {column["column"]: column["reason"] for column in story(browser, 1)[-1]["columns"]}
    assert [name for name, reason in named.items() if "not named" in reason] == ["scanned", "place", "booked", "fees"]
    assert (row(browser, 1) or {})["note"] == "y"


@pytest.mark.parametrize("options", [UNCHANGED, GROUPS])
def test_group_columns_count_as_new_and_sums_once(create: Create, browser: Browser, options: Mapping[str, str]) -> None:
    create("wide", fields=FIELDS, options=options)
    post(browser, {"id": "1", "scanned": 10, "place": "Lyon", "booked": 5, "fees": "4.90", "note": "x"})
    assert change(browser, 1, **{"value.place": "Nice"}).status_code == 303
    assert change(browser, 1, **{"value.booked": "6"}).status_code == 303
    expected = {"id": "1", "scanned": 10, "place": "Nice", "booked": 6, "fees": "4.90", "note": "x"}
    assert row(browser, 1) == expected


def test_a_column_that_adds_up_shows_what_there_is_beside_an_empty_field(create: Create, browser: Browser) -> None:
    create("wide", fields=FIELDS, options=UNCHANGED)
    post(browser, {"id": "1", "booked": 5, "fees": "4.90"})
    page = browser.get(f"{ROW}/edit?key=1").text
    assert shown(page)["value.fees"] == ""
    assert 'placeholder="4.90 now, like 12.50"' in page
    assert re.search(r'<p class="hint" id="(f\d+does)" title="the sum of all values[^"]*">adds to 4.90</p>', page)
    assert change(browser, 1, **{"value.fees": "1.10"}).status_code == 303
    assert (row(browser, 1) or {})["fees"] == "6.00"


AGGREGATES = {
    "total": ("BIGINT", "sum", 6, "adds to 6"),
    "factor": ("DOUBLE", "product", 2.5, "multiplies 2.5"),
    "most": ("BIGINT", "max", 6, "kept if larger than 6"),
    "least": ("BIGINT", "min", 6, "kept if smaller than 6"),
    "origin": ("STRING", "first_value", "<i>", "kept only if it comes before <i>"),
    "home": ("STRING", "first_non_null_value", "x", "kept only if it comes before x"),
    "notes": ("STRING", "listagg", "a,b", "is joined to a,b"),
    "tags": ("ARRAY<INT>", "collect", [1, 2], "its elements are added to [1, 2]"),
}


def aggregates(create: Create) -> None:
    """Creates a table of a column for each of the functions above, and one that the latest value replaces."""
    types = {name: sql for name, (sql, *_) in AGGREGATES.items()}
    functions = {f"fields.{name}.aggregate-function": function for name, (_, function, *_) in AGGREGATES.items()}
    fields = fields_of(id="BIGINT NOT NULL", **types, latest="STRING")
    create("wide", fields=fields, options={"merge-engine": "aggregation", **functions})


def does(page: str) -> list[str]:
    """What the fields of a page say that they do."""
    return [unescape(reported) for reported in re.findall(r'<p class="hint" id="f\d+does"[^>]*>([^<]*)</p>', page)]


def test_a_field_says_what_its_value_does_to_the_one_that_there_is(create: Create, browser: Browser) -> None:
    assert {*FIELD_WORDS} == {function for _, function, *_ in AGGREGATES.values()}
    aggregates(create)
    post(browser, {"id": 1, "latest": "x", **{name: value for name, (_, _, value, _) in AGGREGATES.items()}})
    page = browser.get(f"{ROW}/edit?key=1").text
    assert does(page) == [reported for *_, reported in AGGREGATES.values()]
    taken_back = change(browser, 1, **{"value.total": "1", "kind": "-U", "action": "try"}).text
    assert does(taken_back) == [], "a record that takes back adds nothing"


def test_a_field_of_a_null_says_what_it_does_only_where_null_is_a_value(create: Create, browser: Browser) -> None:
    aggregates(create)
    post(browser, {"id": 1})
    assert does(browser.get(f"{ROW}/edit?key=1").text) == ["kept only if it comes before null"]
    assert does(browser.get(f"{ROW}/new").text) == []


@pytest.mark.parametrize("options", [UNCHANGED, GROUPS])
def test_null_is_offered_where_it_is_set(create: Create, browser: Browser, options: Mapping[str, str]) -> None:
    create("wide", fields=FIELDS, options=options)
    record = {"id": "1", "scanned": 10, "place": "Lyon", "booked": 5, "fees": "4.90", "note": "x"}
    post(browser, record)
    page = browser.get(f"{ROW}/edit?key=1").text
    offered = re.findall(r'name="null\.(\w+)" value="1" aria-label="\1: set to null">set to null', page)
    for name in {*record} - {"id"}:
        assert change(browser, 1, **{f"null.{name}": "1"}).status_code == 303
        assert ((row(browser, 1) or {})[name] is None) == (name in offered), name
    assert ("Columns without a box" in page) == (len(offered) < 5)


def test_a_whole_row_is_sent_where_absent_is_null_and_an_empty_field_is_null(create: Create, browser: Browser) -> None:
    create("wide", fields=PLAIN)
    long = "x" * 2**20
    post(browser, {"id": 1, "n": 5, "note": long, "done": False, "tags": [1]})
    page = browser.get(f"{ROW}/edit?key=1")
    assert len(page.content) < 50_000
    assert "1048576 characters, kept" in page.text
    assert change(browser, 1, **{"value.n": ""}).status_code == 303
    assert row(browser, 1) == {"id": 1, "n": None, "note": long, "done": False, "tags": [1]}
    assert change(browser, 1, **{"null.note": "1", "value.done": "true"}).status_code == 303
    assert row(browser, 1) == {"id": 1, "n": None, "note": None, "done": True, "tags": [1]}


def test_what_somebody_else_wrote_meanwhile_is_not_overwritten(create: Create, browser: Browser) -> None:
    create("wide", fields=PLAIN)
    post(browser, {"id": 1, "n": 5, "note": "old"})
    page = shown(browser.get(f"{ROW}/edit?key=1").text)
    post(browser, {"id": 1, "n": 6, "note": "old"})
    assert browser.post(f"{ROW}/edit", **{**page, "value.note": "new"}).status_code == 303
    assert row(browser, 1) == {"id": 1, "n": 6, "note": "new", "done": None, "tags": None}


def test_faults_are_reported_at_their_fields_and_nothing_typed_is_lost(create: Create, browser: Browser) -> None:
    create("wide", fields=PLAIN)
    browser.get(f"{ROW}/new")
    fields = {"value.id": "x", "value.n": "<b>", "value.tags": "[1, ", "value.note": HOSTILE}
    for action in ("send", "try"):
        refused = browser.send(f"{ROW}/new", action=action, **fields)
        assert refused.status_code == 400
        assert "3 faults" in words(refused.text)
        for number, name in ((1, "id"), (2, "n"), (5, "tags")):
            assert f'aria-describedby="f{number}wrong"' in refused.text, name
            assert f'id="f{number}wrong"' in refused.text
        assert shown(refused.text)["value.note"] == HOSTILE
        assert "<b" not in refused.text.replace("<body", "").replace("<button", "").replace("<b>3 faults</b>", "")
    assert browser.client.get(f"{TABLES}/wide/batches").json()["batches"] == []


def test_a_record_is_tried_before_it_is_sent(create: Create, browser: Browser) -> None:
    create("wide", fields=FIELDS, options=GROUPS)
    post(browser, {"id": "1", "scanned": 10, "place": "Lyon"})
    tried = change(browser, 1, **{"value.scanned": "9", "value.place": "Nice", "action": "try"})
    text = words(tried.text)
    assert "What it would do" in text
    assert "sequence 9 < 10: ignored" in text
    assert shown(tried.text)["value.place"] == "Nice"
    assert (row(browser, 1) or {})["place"] == "Lyon"


def test_a_row_is_deleted_by_a_record_that_is_not_older_than_it(create: Create, browser: Browser) -> None:
    options = {"merge-engine": "deduplicate", "sequence.field": "n"}
    create("wide", fields=PLAIN, options=options)
    post(browser, {"id": 1, "n": 5, "note": "x"})
    page = browser.get(f"{ROW}?key=1")
    assert re.search(r'curl -X DELETE [^<]*"n": 5', unescape(page.text))
    card = page.text[page.text.index('aria-labelledby="value"') : page.text.index("</section>")]
    assert re.search(r"<details [^>]*>\s*<summary>Delete this row</summary>.*<button [^>]*>Delete id = 1<", card)
    form = shown(page.text)
    assert {*form} == {"csrf", "once", "key"}
    answer = browser.post(f"{ROW}/delete", **form)
    assert answer.status_code == 303
    assert row(browser, 1) is None
    assert "There is no row" in browser.text(answer.headers["location"])


def test_a_table_that_takes_no_deletes_says_why(create: Create, browser: Browser) -> None:
    create("wide", fields=FIELDS, options={"merge-engine": "partial-update"})
    post(browser, {"id": "1", "note": "x"})
    page = words(browser.get(f"{ROW}?key=1").text)
    assert "The table takes no deletes: refused" in page
    assert "Delete this row" not in page
    browser.get(f"{ROW}/edit?key=1")
    refused = browser.send(f"{ROW}/delete", key="1", once="a")
    assert (refused.status_code, row(browser, 1) is not None) == (400, True)
    assert shown(refused.text)["value.note"] == "x", "the form is as it was"


@pytest.mark.parametrize("moment", ["&step=1.0", "&asOf=1"])
def test_only_the_row_of_now_is_deleted(merged: Merged, browser: Browser, moment: str) -> None:
    table = merged()
    table.merge({"id": 1})
    assert "/row/delete" in browser.get(f"{ROW}?key=1").text
    assert "/row/delete" not in browser.get(f"{ROW}?key=1{moment}").text
    table.stage({"id": 1, "_kind": "-D"})
    assert "/row/delete" not in browser.get(f"{ROW}?key=1").text


def test_another_row_kind_is_chosen(create: Create, browser: Browser) -> None:
    create("wide", fields=PLAIN, options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
    post(browser, {"id": 1, "n": 5, "note": "x"})
    page = browser.get(f"{ROW}/edit?key=1").text
    advanced = re.search(r'<details class="advanced"><summary>Advanced</summary>(.*?)</details>', page, re.DOTALL)
    assert advanced
    assert page.count('name="kind"') == advanced[1].count('name="kind"') == 4
    assert '<button class="primary" name="action" value="send">Save</button>' in page
    tried = change(browser, 1, **{"value.n": "2", "kind": "-U", "action": "try"}).text
    assert '<details class="advanced" open>' in tried, "what was chosen is shown"
    assert change(browser, 1, **{"value.n": "2", "kind": "-U"}).status_code == 303
    assert row(browser, 1) == {"id": 1, "n": 3, "note": "x", "done": None, "tags": None}


def test_a_key_of_several_columns_and_a_hostile_table(create: Create, browser: Browser) -> None:
    name = "<b onx=1>\"'&{{7*7}}"
    fields = fields_of(a="STRING", **{name: "BIGINT"}, **{f"{name}2": "STRING"})
    create(name, fields=fields, primaryKeys=["a", name])
    path = "/console/tables/shop/%3Cb%20onx%3D1%3E%22%27%26%7B%7B7%2A7%7D%7D/row"
    browser.get(f"{path}/new")
    sent = browser.send(f"{path}/new", **{"value.a": "x&key=<1>/ü", f"value.{name}": "2", f"value.{name}2": HOSTILE})
    assert sent.status_code == 303
    page = browser.get(sent.headers["location"])
    assert page.status_code == 200
    edit = re.search(r'href="([^"]*/edit\?[^"]*)"', page.text)
    assert edit
    form = browser.get(unescape(edit[1]))
    assert form.status_code == 200
    assert "<b onx" not in form.text
    assert shown(form.text)[f"value.{name}2"] == HOSTILE


def test_two_hundred_columns_and_a_value_of_a_megabyte_are_sent(create: Create, browser: Browser) -> None:
    many = [{"name": f"c{number}", "type": "STRING"} for number in range(1, 200)]
    create("wide", fields=[{"name": "id", "type": "BIGINT NOT NULL"}, *many])
    browser.get(f"{ROW}/new")
    fields = {f"value.c{number}": "" for number in range(1, 200)}
    sent = browser.send(f"{ROW}/new", **{**fields, "value.id": "1", "value.c7": "é" * 2**19})
    assert sent.status_code == 303, words(browser.shown)[:500]
    assert (row(browser, 1) or {})["c7"] == "é" * 2**19
    assert len(browser.get(f"{ROW}/edit?key=1").content) < 150_000


def test_who_may_only_read_gets_no_form(create: Create, client: Any, signed_in: SignedIn) -> None:
    create("wide", fields=PLAIN)
    client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}]})
    reader = signed_in(Role.READ)
    for path in (f"{ROW}/new", f"{ROW}/edit?key=1"):
        assert reader.get(path).status_code == 403
    page = reader.get(f"{ROW}?key=1").text
    assert "/row/edit" not in page
    assert "/row/delete" not in page
    assert "/row/new" not in reader.get("/console/tables/shop/wide/rows").text


def test_staged_is_shown_beside_merged(merge: Merge, create: Create, browser: Browser) -> None:
    create("wide", fields=PLAIN)
    post(browser, {"id": 1, "n": 5})
    assert "no row is merged yet" in browser.text(f"{ROW}?key=1")
    merge()
    change(browser, 1, **{"value.n": "6"})
    text = browser.text(f"{ROW}?key=1")
    assert "With what is staged Merged" in text
    assert "n 6 5" in text


def test_what_became_of_a_record_is_reported_while_the_page_is_open(
    merge: Merge, create: Create, browser: Browser
) -> None:
    create("wide", fields=PLAIN)
    browser.get(f"{ROW}/new")
    page = browser.get(browser.send(f"{ROW}/new", **{"value.id": "1"}).headers["location"]).text
    found = re.search(r'id="sent"[^>]* hx-get="([^"]+)"', page)
    assert found
    assert browser.get(unescape(found[1])).status_code == 204
    merge()
    reported = browser.get(unescape(found[1]))
    assert "Batch 1 is merged into snapshot 1" in words(reported.text)


JUNK = [
    *("NaN", "-Infinity", "1e999999", "9" * 5000, "\0\x01\x7f", "\ufffd\u202e", "[" * 20_000, '{"a":' * 5000, "'; --"),
    " ",
]


@pytest.mark.parametrize("junk", JUNK, ids=lambda text: repr(text[:9]))
def test_junk_in_every_field_is_reported_and_never_breaks_a_page(create: Create, browser: Browser, junk: str) -> None:
    schema = EVERY_TYPE.to_json()
    create("wide", fields=schema["fields"], primaryKeys=schema["primaryKeys"])
    fields = {f"value.{column.name}": junk for column in EVERY_TYPE.columns}
    for action in ("try", "send"):
        browser.get(f"{ROW}/new")
        answer = browser.send(f"{ROW}/new", action=action, once=junk, **fields)
        assert answer.status_code == 400, words(answer.text)
        assert answer.text.count('aria-invalid="true"') > 5
    for name in ("key", "kind", "csrf", "seen.x", "null.x"):
        browser.get(f"{ROW}/new")
        form = {"csrf": shown(browser.shown)["csrf"], name: junk}
        for path in ("new", "edit", "delete"):
            assert browser.post(f"{ROW}/{path}", **form).status_code in (400, 403)
    assert browser.get(f"{ROW}/edit?key={quote(junk)}").status_code in (200, 400)
