"""The page of a row in a real Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.settings import Settings
from tests.console.chromium import NEEDS_CHROMIUM, faults_of, person
from tests.console.table_pages.test_row import FIELDS, GROUPS, HOSTILE
from tests.service import Client, TableClient
from tests.services.builders import merge_staged

pytestmark = [*NEEDS_CHROMIUM]
ROW = "/console/tables/shop/parcels/row"
SHOWN = [
    *(ROW, f"{ROW}?key=1", f"{ROW}?key=1&asOf=1", f"{ROW}?key=1&step=3.0"),
    f"{ROW}?key=1&try=%7B%22place%22%3A%22Nice%22%2C%22scanned%22%3A11%7D",
    *(f"{ROW}?key=1&try=%7B%22scanned%22%3A%22soon%22%7D", f"{ROW}?key=nosuch", "/console/tables/shop/long/row?key=1"),
]
RECORDS = [
    {"id": "1", "scanned": 10, "place": "Lyon", "note": HOSTILE},
    {"id": "1", "booked": 5, "fees": "4.90", "note": "fragile"},
    {"id": "1", "scanned": 9, "place": "Paris"},
    {"id": "1", "booked": 4, "fees": "1.10"},
]


@pytest.fixture(scope="module", autouse=True)
def tables(service: Client, data: Path) -> None:
    """A row of four records, of which two are merged, and one of forty columns; test_row.py has more of them."""
    settings = Settings(KEYFOLD_DATA=data)
    fields = [FIELDS[0], *({"id": number, "name": f"c{number}", "type": "STRING"} for number in range(1, 40))]
    for name, schema in (("parcels", {"fields": FIELDS, "options": GROUPS}), ("long", {"fields": fields})):
        service.create_table("shop", name, {**schema, "primaryKeys": ["id"]}).raise_for_status()
    TableClient(service, "shop", "long").post_batch([{"id": "1", "c7": "x"}]).raise_for_status()
    table = service.get("/v1/catalog/databases/shop/tables/parcels").json()["id"]
    database = CatalogDatabase(settings.catalog_url)
    for number, record in enumerate(RECORDS):
        TableClient(service, "shop", "parcels").post_batch([record]).raise_for_status()
        if number < 2:
            merge_staged(database, Warehouse(settings.warehouse_root, marked=True), table)
    database.close()


@pytest.mark.parametrize("path", SHOWN)
def test_the_page_of_a_row_is_whole_light_and_without_fault(chrome: Browser, service: Client, path: str) -> None:
    assert faults_of(chrome, str(service.base_url), path) == []


def test_a_story_is_read_and_gone_back_in_without_a_script(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url), java_script_enabled=False) as window:
        window.open(f"{ROW}?key=1")
        assert not window.page.get_by_label("Moment").is_visible()
        assert window.page.get_by_text("late, but counted").is_visible()
        window.page.get_by_text("8 moments").click()
        window.page.get_by_role("link", name="in snapshot 1").click()
        window.page.get_by_role("heading", name="The row in snapshot 1").wait_for()


def test_the_slider_goes_back_step_by_step_and_keeps_the_focus(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open(f"{ROW}?key=1")
        window.page.evaluate("window.sameDocument = true")
        window.page.get_by_label("Moment").focus()
        window.page.keyboard.press("ArrowLeft")
        window.page.get_by_role("heading", name="The row after batch 4, record 1").wait_for()
        window.page.keyboard.press("ArrowLeft")
        window.page.get_by_role("heading", name="The row after batch 3, record 1").wait_for()
        assert "step=3.0" in window.page.url
        assert window.page.get_by_role("heading", name="What if?").count() == 0
        assert window.page.get_by_role("link", name="Back to now").is_visible()
        assert window.page.evaluate("window.sameDocument") is True
        assert window.page.evaluate("document.activeElement.id") == "when"
        assert window.axe() == []
        assert window.complaints == []


def test_a_record_is_tried_in_the_form(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url), "phone") as window:
        window.open(f"{ROW}?key=1")
        window.page.get_by_label("place STRING").fill("Nice")
        window.page.get_by_label("scanned INT").fill("11")
        window.page.get_by_role("button", name="Try the record").click()
        window.page.get_by_text("other than now").first.wait_for()
        assert window.axe() == []
        window.page.get_by_role("link", name="Leave out record 1").click()
        window.page.get_by_text("other than now").first.wait_for(state="detached")
        assert window.complaints == []


def test_a_row_is_deleted_on_its_page_after_a_second_look(chrome: Browser, service: Client) -> None:
    TableClient(service, "shop", "long").post_batch([{"id": "9", "c1": "x"}]).raise_for_status()
    with person(chrome, str(service.base_url), java_script_enabled=False) as window:
        window.open("/console/tables/shop/long/row?key=9")
        button = window.page.get_by_role("button", name='Delete id = "9"')
        assert not button.is_visible()
        window.page.get_by_text("Delete this row").click()
        button.click()
        window.page.get_by_text("There is no row").wait_for()
