"""The page of options and functions says what their entries say, and pages that name one lead there."""

from __future__ import annotations

import re
from html import unescape

import pytest

from app.console.parts.references import with_option_links
from app.core.functions.entries import ALIASES, FUNCTIONS
from app.core.table.options.entries import FALLBACK_KEYS, FIELD_OPTIONS, TABLE_OPTIONS
from app.services.explaining.fold_examples import function_example
from tests.api.conftest import Create, fields_of
from tests.console.conftest import Browser, words

REFERENCE = "/console/reference"
OPTIONS = {**TABLE_OPTIONS, **FIELD_OPTIONS}
SET = {
    "merge-engine": "aggregation",
    "sequence.field": "at",
    "merge.max-staleness": "10 s",
    "fields.note.aggregate-function": "listagg",
    "bucket": "4",
}
LINKS = {f"{REFERENCE}#option-{key.rpartition('note.')[2]}" for key in SET}
FIELDS = fields_of(id="BIGINT NOT NULL", at="INT", note="STRING")


def links(page: str) -> set[str]:
    return {unescape(link) for link in re.findall(rf'href="({REFERENCE}#[^"]+)"', page)}


def rows_by_id(page: str) -> dict[str, str]:
    rows = re.findall(r'<tr id="([^"]+)">(.*?)</tr>', page, re.DOTALL)
    assert len(rows) == len(dict(rows))
    return {anchor: words(row) for anchor, row in rows}


def test_every_option_and_function_has_a_row_of_its_own_and_no_other(browser: Browser) -> None:
    rows = rows_by_id(browser.get(REFERENCE).text)
    assert len(OPTIONS) == len(TABLE_OPTIONS) + len(FIELD_OPTIONS)
    assert set(rows) == {f"option-{key}" for key in OPTIONS} | {f"function-{name}" for name in FUNCTIONS}
    for key, option in OPTIONS.items():
        row = rows[f"option-{key}"]
        assert option.meaning in row
        assert (option.default_text or "not set") in row
        assert all(choice in row for choice in option.choices or (option.takes,))
        assert all(engine.value in row for engine in option.engines)
        assert ("without effect" in row) is not option.effect
    for name, function in FUNCTIONS.items():
        assert function.meaning in rows[f"function-{name}"]
        assert function.takes in rows[f"function-{name}"]
    assert all(alias in rows[f"option-{key}"] for alias, key in FALLBACK_KEYS.items())
    assert all(alias in rows[f"function-{name}"] for alias, name in ALIASES.items())


FOLDED = [
    ("sum", "null, 3, 5, 2, null → 10 INT"),
    ("first_value", "null, 3, 5, 2, null → null INT"),
    ("first_non_null_value", "null, 3, 5, 2, null → 3 INT"),
    ("last_non_null_value", "null, 3, 5, 2, null → 2 INT"),
    ("bool_and", "null, true, true, false, null → false BOOLEAN"),
    ("listagg", "null, b, c, a, null → b,c,a STRING"),
    ("nested_partial_update", "with nested-key = id"),
]


def test_the_example_of_a_function_is_folded(browser: Browser) -> None:
    rows = rows_by_id(browser.get(REFERENCE).text)
    for name, reported in FOLDED:
        assert reported in rows[f"function-{name}"], name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_example_that_shows_something(name: str) -> None:
    example = function_example(FUNCTIONS[name])
    assert len(example.values) > 1
    assert example.result is not None or name in ("last_value", "first_value")


@pytest.mark.parametrize("page", ["", "/settings", "/code"])
def test_a_page_of_a_table_leads_to_its_options(create: Create, browser: Browser, page: str) -> None:
    create("wide", fields=FIELDS, options=SET)
    found = links(browser.get(f"/console/tables/shop/wide{page}").text)
    assert found >= LINKS, LINKS - found
    assert {link.partition("#")[2] for link in found} <= set(rows_by_id(browser.get(REFERENCE).text))


def test_a_fault_of_an_option_leads_to_it(browser: Browser) -> None:
    sql = "CREATE TABLE t (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('merge-engine' = 'x')"
    browser.get("/console/new")
    page = browser.send("/console/new", kind="sql", database="shop", text=sql, action="check").text
    assert f"{REFERENCE}#option-merge-engine" in links(page)


def test_a_fault_of_an_unknown_option_leads_nowhere(browser: Browser) -> None:
    sql = "CREATE TABLE t (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('merge-engin' = 'x')"
    browser.get("/console/new")
    page = browser.send("/console/new", kind="sql", database="shop", text=sql, action="check").text
    assert "merge-engin" in page
    assert links(page) == set()


def test_a_changed_option_that_is_wrong_leads_to_it(wide: object, browser: Browser) -> None:
    browser.get("/console/tables/shop/wide/settings?q=changelog")
    more = {"new-key": "fields.note.aggregate-function", "new-value": "no_such", "seen": "x"}
    page = browser.send("/console/tables/shop/wide/settings?q=changelog", **more).text
    assert f"{REFERENCE}#option-aggregate-function" in links(page)


def test_the_links_in_a_statement_leave_its_text_alone() -> None:
    statement = "COMMENT '<b>&amp;' WITH ('bucket' = '4', 'no' = 'x')"
    shown = with_option_links(statement, ["bucket", "no", "fields.<b>.distinct"])
    assert unescape(re.sub(r"<[^>]+>", "", shown)) == statement
    assert shown.count("<") == 2
    assert f"""<a href="{REFERENCE}#option-bucket">&#39;bucket&#39;</a>""" in shown
    assert with_option_links("'<'", []) == "&#39;&lt;&#39;"
