"""The search: tables, columns and options by a part of their names, as far as the token sees them."""

from __future__ import annotations

import re

import pytest

from app.core.access import Role
from app.services.operating import catalog_search
from tests.api.conftest import TABLES, Create, fields_of, new_table
from tests.console.conftest import Browser, SignedIn

SEARCH = "/console/search"
HOSTILE = "<b onx=1>\"'&{{7*7}}"
FIELDS = fields_of(id="BIGINT NOT NULL", Paid_Sum="DECIMAL(10, 2)")


def links(page: str) -> list[str]:
    main = page.partition('aria-label="Breadcrumbs"')[2].partition("</nav>")[2]
    return re.findall(r'href="([^"]+)"', main)


def test_a_table_is_found_by_its_name_and_by_its_database(create: Create, browser: Browser) -> None:
    create("orders")
    create("customers")
    for asked in ("ORDER", "shop.ord"):
        browser.text(f"{SEARCH}?q={asked}")
        assert "/console/tables/shop/orders" in links(browser.shown)
        assert "/console/tables/shop/customers" not in links(browser.shown)
    assert "/console/tables/shop/customers" in links(browser.get(f"{SEARCH}?q=shop").text)


def test_the_name_itself_comes_before_names_that_have_it(create: Create, browser: Browser) -> None:
    for name in ("a_row", "row", "rows"):
        create(name)
    browser.text(f"{SEARCH}?q=row")
    found = [link for link in links(browser.shown) if re.fullmatch(r"/console/tables/shop/\w+", link)]
    assert found == [f"/console/tables/shop/{name}" for name in ("row", "rows", "a_row")]


def test_a_column_leads_to_its_table(create: Create, browser: Browser) -> None:
    create("orders", fields=FIELDS)
    create("customers")
    text = browser.text(f"{SEARCH}?q=paid")
    assert "Paid_Sum DECIMAL(10, 2) in shop. orders" in text
    assert "shop. customers" not in text


def test_an_option_leads_to_the_settings_of_a_table_that_sets_it(create: Create, browser: Browser) -> None:
    create("alone")
    create("orders", options={"merge.max-staleness": "10 s"})
    text = browser.text(f"{SEARCH}?q=max-stale")
    assert "merge.max-staleness" in text
    assert links(browser.shown) == [
        "/console/reference#option-merge.max-staleness",
        "/console/tables/shop/orders/settings?q=merge.max-staleness",
    ]
    browser.text(f"{SEARCH}?q=aggregate-function")
    assert "/console/tables/shop/alone/settings?q=aggregate-function" in links(browser.shown)


FOUND = [
    ("max-stale", "option-merge.max-staleness"),
    ("read your writes", ""),
    ("how answers spell BIGINT", "option-lookup.integers"),
    ("nested-key", "option-nested-key"),
    ("bucket", "option-bucket-key"),
    ("hll", "function-hll_sketch"),
    ("Joined", "function-listagg"),
    ("first_not_null", "function-first_non_null_value"),
]


def test_options_and_functions_are_found_by_name_and_sentence(browser: Browser) -> None:
    for asked, anchor in FOUND:
        browser.text(f"{SEARCH}?q={asked}")
        found = [link for link in links(browser.shown) if link.startswith("/console/reference#")]
        assert (f"/console/reference#{anchor}" in found) is bool(anchor), asked
        page = browser.get("/console/reference").text
        assert [link for link in found if f'id="{link.partition("#")[2]}"' not in page] == [], asked


def test_what_is_called_so_comes_before_what_only_says_it(browser: Browser) -> None:
    browser.text(f"{SEARCH}?q=sum")
    found = [link for link in links(browser.shown) if "#function-" in link]
    assert found == ["/console/reference#function-sum"]
    browser.text(f"{SEARCH}?q=map")
    found = [link.rpartition("-")[2] for link in links(browser.shown) if "#function-" in link]
    assert found == ["merge_map", "merge_map_with_keytime", "rbm32", "rbm64"]


def test_nothing_is_found_of_what_the_token_is_not_for(create: Create, signed_in: SignedIn) -> None:
    create("seen", fields=FIELDS)
    create("unseen", fields=FIELDS, options={"merge.max-staleness": "10 s"})
    browser = signed_in(Role.READ, ("shop.seen",))
    for asked in ("seen", "paid", "max-staleness"):
        text = browser.text(f"{SEARCH}?q={asked}")
        assert "shop. seen" in text
        assert "unseen" not in text


def test_no_more_tables_are_read_than_said(create: Create, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        create(f"t{number}")
    assert "were searched in the first" not in browser.text(f"{SEARCH}?q=note")
    monkeypatch.setattr(catalog_search, "MOST_TABLES", 2)
    monkeypatch.setattr(catalog_search, "_PAGE_TABLES", 2)
    text = browser.text(f"{SEARCH}?q=note")
    assert "searched in the first 2 of 5 tables" in text
    assert "shop. t1" in text
    assert "shop. t2" not in text
    assert "shop. t4" in browser.text(f"{SEARCH}?q=t4")


def test_what_is_searched_for_is_text(browser: Browser) -> None:
    browser.client.post("/v1/catalog/databases", json={"name": "shop"})
    browser.client.post(TABLES, json=new_table(HOSTILE))
    assert HOSTILE in browser.text(f"{SEARCH}?q=onx")
    assert f"Nothing has “{HOSTILE}x”" in browser.text(f"{SEARCH}?q={HOSTILE.replace('&', '%26')}x")
    assert "<b onx" not in browser.shown
