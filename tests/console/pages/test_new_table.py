"""Make a table: faults where they are, fixes that are one click, and nothing made before somebody says so."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.core.access import Role
from app.main import create_app
from app.settings import Settings
from tests.api.conftest import DATABASES, LOOPBACK
from tests.console.conftest import Browser, SignedIn, words

SQL = "CREATE TABLE orders (\n  id BIGINT,\n  note STRING,\n  PRIMARY KEY (id) NOT ENFORCED\n)"
JSON = '{"fields": [{"name": "id", "type": "BIGINT NOT NULL"}], "primaryKeys": ["id"]}'


def sent(browser: Browser, action: str, kind: str = "sql", text: str = SQL, path: str = "/console/new") -> str:
    browser.get("/console/new")
    answer = browser.send(path, kind=kind, database="shop", name="orders", text=text, action=action)
    assert answer.status_code in (200, 303, 400, 403, 409), answer.text
    return str(answer.headers.get("location") or answer.text)


def text_in(page: str) -> str:
    found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert found
    return unescape(found[1])


@pytest.mark.parametrize("kind", ["sql", "json", "sample", "x"])
def test_the_form_begins_with_something_that_can_be_made(browser: Browser, kind: str) -> None:
    page = browser.get(f"/console/new?kind={kind}").text
    answer = browser.send("/console/new", kind=kind, database="shop", name="t", text=text_in(page), action="check")
    assert "fault" not in words(answer.text)
    assert browser.client.get(DATABASES).json()["databases"] == []


def test_a_checked_table_is_reported_in_words_and_not_made(browser: Browser) -> None:
    page = sent(browser, "check")
    assert "id BIGINT NOT NULL : primary key" in words(page)
    assert "tables:fromDdl" in page
    assert text_in(page) == SQL
    assert browser.client.get(DATABASES).json()["databases"] == []


def test_faults_stand_at_their_lines_and_are_mended_by_a_button(browser: Browser) -> None:
    page = sent(browser, "check", text=SQL.replace("STRING", "STRNG"))
    assert re.search(r'<span class="no">3</span><pre>\s*note STRNG,', page)
    assert 'value="repair-0">Write STRING for STRNG' in page
    assert text_in(sent(browser, "repair-0", text=SQL.replace("STRING", "STRNG"))) == SQL


OTHER_BUTTONS = ["repair-0", "repair-99", "repair-x", "repair-", "what"]


def test_a_button_of_another_text_changes_nothing(browser: Browser) -> None:
    for action in OTHER_BUTTONS:
        assert text_in(sent(browser, action)) == SQL, action


def test_while_it_is_typed_only_the_verdict_comes(browser: Browser) -> None:
    part = sent(browser, "", path="/console/new/check", text=SQL.replace("BIGINT", "BIGINTT"))
    assert part.lstrip().startswith('<section class="card" id="verdict"')
    assert "1 fault" in words(part)


@pytest.mark.parametrize(("kind", "text"), [("sql", SQL), ("json", JSON)])
def test_a_table_is_made_with_its_database_and_shown(browser: Browser, kind: str, text: str) -> None:
    assert sent(browser, "make", kind, text) == "/console/tables/shop/orders"
    assert browser.client.get(f"{DATABASES}/shop/tables").json()["tables"] == ["orders"]
    again = sent(browser, "make", kind, text)
    assert "exists already" in words(again)
    assert text_in(again) == text


@pytest.mark.parametrize("more", ['"x": 1.5', f'"x": {"[" * 800}1{"]" * 800}'])
def test_the_command_of_a_schema_has_no_more_than_was_understood(browser: Browser, more: str) -> None:
    page = sent(browser, "check", "json", JSON.replace("{", f"{{{more}, ", 1))
    command = page[page.index("--data-binary") :]
    assert ('"x"' in unescape(command), "primaryKeys" in command) == (False, True)


@pytest.mark.parametrize(
    ("sample", "reported"), [('[{"id": "\\ud800"}]', r"id STRING"), ('[{"i\\ud800": 1}]', r"i\ud800")]
)
def test_half_a_surrogate_pair_is_shown_as_json_escapes_it(browser: Browser, sample: str, reported: str) -> None:
    page = sent(browser, "guess", "sample", sample)
    assert (reported in words(page), r"\ud800" in page) == (True, True)


def test_lines_of_a_form_are_those_of_the_text(browser: Browser) -> None:
    page = sent(browser, "check", text=SQL.replace("STRING", "STRNG").replace("\n", "\r\n"))
    assert '<span class="no">3</span>' in page


def test_a_sample_becomes_sql_that_can_be_changed(browser: Browser) -> None:
    page = sent(browser, "guess", "sample", '{"id": 1, "paid": "2.50"}\n{"id": 1, "city": "Oslo"}')
    assert "Guessed from 2 records" in words(page)
    assert "DECIMAL(18, 2)" in text_in(page)
    assert 'name="kind" value="sql"' in page
    assert sent(browser, "make", text=text_in(page)) == "/console/tables/shop/orders"


def test_what_is_no_sample_is_reported_beside_it(browser: Browser) -> None:
    page = sent(browser, "guess", "sample", "<script>alert(1)</script>")
    assert "<script>alert" not in page
    assert text_in(page) == "<script>alert(1)</script>"
    assert 'role="alert"' in page


def test_hostile_text_is_text(browser: Browser) -> None:
    hostile = "</textarea><b onx=1>\"'&{{7*7}}"
    for kind in ("sql", "json"):
        page = sent(browser, "check", kind, hostile)
        assert text_in(page) == hostile
        assert "<b onx" not in page


def test_what_cannot_be_made_is_not_half_made(browser: Browser) -> None:
    two = f"{SQL};\n{SQL.replace('orders', 'other').replace('BIGINT', 'BIGINTT')}"
    assert "fault" in words(sent(browser, "make", text=two))
    assert browser.client.get(DATABASES).json()["databases"] == []


@pytest.mark.parametrize("database", ["", "a/b", "$x", "\x00"])
def test_a_name_that_is_none_is_reported(browser: Browser, database: str) -> None:
    browser.get("/console/new")
    answer = browser.send("/console/new", kind="json", database=database, name="t", text=JSON, action="make")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


def test_who_may_not_make_tables_may_check_them(client: TestClient, signed_in: SignedIn) -> None:
    browser = signed_in(Role.WRITE)
    page = sent(browser, "check")
    assert "Make the table" not in page
    assert "this needs the role admin" in words(sent(browser, "make"))


def test_a_token_of_one_database_makes_tables_there_alone(client: TestClient, signed_in: SignedIn) -> None:
    client.post(DATABASES, json={"name": "shop"})
    browser = signed_in(Role.ADMIN, ("shop.*",))
    assert sent(browser, "make") == "/console/tables/shop/orders"
    browser.get("/console/new")
    refused = browser.send("/console/new", kind="sql", database="other", text=SQL, action="make")
    assert refused.status_code == 403


def test_what_is_made_is_in_the_audit_log(tmp_path_factory: pytest.TempPathFactory, sqlite_template: object) -> None:
    data = tmp_path_factory.mktemp("data")
    log = data / "audit.log"
    app: FastAPI = create_app(Settings(KEYFOLD_DATA=data, workers=0, audit_log=str(log)))
    with TestClient(app, LOOPBACK) as client:
        sent(Browser(client), "make")
        lines = log.read_text()
    assert '"operation":"createDatabase","database":"shop"' in lines
    assert '"operation":"createTablesFromDdl","database":"shop","tables":["orders"],"outcome":"done"' in lines


def filled_in(browser: Browser, *columns: tuple[str, str, bool, str], action: str = "write", **more: str) -> str:
    browser.get("/console/new")
    form = {"kind": "columns", "database": "shop", "name": "orders", "engine": "aggregation", "order": "", **more}
    for place, (name, data_type, in_key, function) in enumerate(columns):
        form |= {f"name.{place}": name, f"type.{place}": data_type, f"function.{place}": function}
        form |= {f"key.{place}": "on"} if in_key else {}
    return str(browser.send("/console/new", **form, action=action).text)


def test_columns_that_are_filled_in_become_sql_that_is_checked(browser: Browser) -> None:
    page = filled_in(
        browser,
        ("id", "BIGINT", True, ""),
        ("paid", "DECIMAL(10, 2)", False, "sum"),
        ("at", "INT", False, ""),
        order="at",
    )
    text = text_in(page)
    for part in (
        "`id` BIGINT",
        "PRIMARY KEY (`id`)",
        "'fields.paid.aggregate-function' = 'sum'",
        "'sequence.field' = 'at'",
    ):
        assert part in text, text
    assert "fault" not in words(page)
    assert "tables:fromDdl" in page
    assert sent(browser, "make", text=text) == "/console/tables/shop/orders"


FILLED_IN = [
    ([("id", "BIGINT", False, "")], "primary key"),
    ([("id", "BIGINT", True, ""), ("n", "STRNG", False, "")], "STRNG"),
    ([("id", "BIGINT", True, ""), ("n", "STRING", False, "sum")], "sum"),
    ([("id", "BIGINT", True, ""), ("id", "INT", False, "")], "id"),
]


def test_what_is_filled_in_stays(browser: Browser) -> None:
    for columns, said in FILLED_IN:
        page = filled_in(browser, *columns)
        [notice] = re.findall(r'role="alert">(.*?)</div>', page, re.DOTALL)
        assert said in words(notice), columns
        for place, (name, data_type, *_) in enumerate(columns):
            assert f'name="name.{place}" value="{name}"' in page
            assert f'name="type.{place}" value="{data_type}"' in page


def test_there_are_always_empty_lines_for_more_columns(browser: Browser) -> None:
    page = filled_in(browser, *[(f"c{n}", "INT", not n, "") for n in range(9)], action="more")
    assert 'name="name.8" value="c8"' in page
    assert 'name="name.11" value=""' in page


def test_of_several_databases_none_is_chosen_in_advance(browser: Browser) -> None:
    for name in ("crm", "shop"):
        browser.client.post(DATABASES, json={"name": name})
        chosen = re.search(r'id="database" name="database" value="(\w*)"', browser.get("/console/new").text)
        assert chosen is not None
        assert chosen[1] == ("crm" if name == "crm" else "")


def examples(page: str) -> dict[int, str]:
    found = re.findall(r'<div class="col-example" id="example-(\d+)"[^>]*>(.*?)</div>', page, re.DOTALL)
    return {int(place): words(text) for place, text in found}


SUM = {"type.0": "BIGINT", "key.0": "on", "name.2": "", "type.2": "DECIMAL(10, 2)", "function.2": "sum"}


EXAMPLES = [
    ({}, "null, 3.00, 5.00, 2.00, null → 10.00 sum"),
    ({"function.2": "max"}, "null, 3.00, 5.00, 2.00, null → 5.00 max"),
    ({"type.2": "INT"}, "null, 3, 5, 2, null → 10 sum"),
    ({"type.2": "STRING"}, "sum takes a number sum"),
    ({"type.2": "DECIMAL(1)"}, "sum"),
    ({"type.2": "STRNG"}, "sum"),
    ({"type.2": f"ROW<{', '.join(f'f{n} INT' for n in range(100))}>", "function.2": ""}, ""),
    ({"function.2": "x", "engine": "first-row"}, "null, 3.00, 5.00, 2.00, null → null"),
    ({"function.2": "", "engine": "partial-update"}, "null, 3.00, 5.00, 2.00, null → 2.00"),
    (
        {"type.2": "ARRAY<ROW<n INT>>", "function.2": "nested_partial_update"},
        '[{"n": 3}], [{"n": 5}], [{"n": 3}] → [{"n": 3}, {"n": 5}] with nested-key = n nested_partial_update',
    ),
    ({"key.2": "on"}, "sum"),
    ({"type.2": ""}, "sum"),
    ({"name.2": "n", "order": "n", "function.2": ""}, "null, 3.00, 5.00, 2.00, null → 5.00"),
]


def test_the_example_of_a_column_follows_what_is_chosen(browser: Browser) -> None:
    for changed, reported in EXAMPLES:
        browser.get("/console/new?kind=columns")
        answer = browser.send("/console/new/examples", kind="columns", **{"engine": "aggregation", **SUM, **changed})
        assert answer.status_code == 200, changed
        assert examples(answer.text) == {0: "", 2: reported}, changed
        assert answer.text.count('hx-swap-oob="true"') == 2, changed


def test_examples_stand_in_the_form_without_a_script(browser: Browser) -> None:
    assert (
        "null, 3.00, 5.00, 2.00, null → 10.00 sum" in examples(browser.get("/console/new?kind=columns").text).values()
    )
    page = filled_in(browser, ("id", "BIGINT", True, ""), ("n", "STRING", False, "listagg"), action="more")
    assert examples(page)[1] == "null, b, c, a, null → b,c,a listagg"


def test_a_type_of_an_example_is_text(browser: Browser) -> None:
    browser.get("/console/new?kind=columns")
    answer = browser.send("/console/new/examples", **{"type.0": "ROW<`<b onx=1>` INT>", "engine": "aggregation"})
    assert "<b onx" not in answer.text
    assert "<b onx=1>" in words(answer.text)
