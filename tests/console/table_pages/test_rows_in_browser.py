"""Rows written, files uploaded, batches withdrawn and merges watched in a real Chromium, with and without a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from app.catalog.database import CatalogDatabase
from app.settings import Settings
from tests.api.conftest import fields_of
from tests.catalog.builders import claim_next
from tests.console.chromium import NEEDS_CHROMIUM, WIDTHS, Person, person
from tests.service import Client, TableClient

pytestmark = [*NEEDS_CHROMIUM]
HOSTILE = "<b onx=1>\"'&{{7*7}}"
ITEMS = "/console/tables/shop/items"


@pytest.fixture
def items(service: Client) -> Iterator[TableClient]:
    """A new table, one of whose columns has a hostile name."""
    fields = fields_of(id="BIGINT NOT NULL", price="DECIMAL(10, 2)", sold="BOOLEAN", **{HOSTILE: "STRING"})
    service.create_table("shop", "items", {"fields": fields, "primaryKeys": ["id"]}).raise_for_status()
    yield TableClient(service, "shop", "items")
    service.delete("/v1/catalog/databases/shop/tables/items").raise_for_status()


def axe_and_size(window: Person) -> list[str]:
    """What is wrong with the page that is shown: in the width and scheme of the window, and in the other ones."""
    assert window.page.viewport_size
    own = window.page.viewport_size["width"]
    found = []
    for width in sorted(WIDTHS.values(), key=lambda one: one == own):
        window.page.set_viewport_size({"width": width, "height": 900})
        found += [*window.axe(), *([f"too wide for {width}"] if window.wider_than_window() else [])]
    return found


def test_a_row_is_added_mended_tried_changed_and_deleted(chrome: Browser, service: Client, items: TableClient) -> None:
    with person(chrome, str(service.base_url), "phone", "light") as window:
        page = window.page
        window.open(f"{ITEMS}/rows")
        page.get_by_role("link", name="New row").click()
        page.get_by_label("id BIGINT").fill("7")
        page.get_by_label("price DECIMAL").fill("much")
        page.get_by_label(f"{HOSTILE} STRING").fill(f"{HOSTILE}\n")
        page.get_by_label("sold BOOLEAN").select_option("false")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("'much' is not a DECIMAL").wait_for()
        assert page.get_by_label("price DECIMAL").get_attribute("aria-invalid") == "true"
        assert axe_and_size(window) == []
        page.get_by_label("price DECIMAL").fill("2.50")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Batch 1 is staged").wait_for()
        expected = {"id": 7, "price": "2.50", "sold": False, HOSTILE: f"{HOSTILE}\n"}
        assert items.get_row("7").json() == expected
        page.get_by_role("link", name="Edit").click()
        page.get_by_label("price DECIMAL").fill("3")
        page.get_by_role("button", name="Try it first").click()
        page.get_by_role("heading", name="What it would do").wait_for()
        assert axe_and_size(window) == []
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Batch 2 is staged").wait_for()
        assert items.get_row("7").json() == {**expected, "price": "3.00"}
        page.get_by_text("Delete this row").click()
        page.get_by_role("button", name="Delete id = 7").click()
        page.get_by_text("There is no row").wait_for()
        assert axe_and_size(window) == []
        assert [complaint for complaint in window.complaints if "400" not in complaint] == []


def test_rows_are_written_and_files_sent_without_a_script(chrome: Browser, service: Client, items: TableClient) -> None:
    with person(chrome, str(service.base_url), java_script_enabled=False) as window:
        page = window.page
        window.open(f"{ITEMS}/row/new")
        page.get_by_label("id BIGINT").fill("1")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Batch 1 is staged").wait_for()
        window.open(f"{ITEMS}/upload")
        page.get_by_label("File", exact=True).set_input_files(
            {"name": "a.csv", "mimeType": "", "buffer": b"id,price\n2,x\n"}
        )
        page.get_by_role("button", name="Upload").click()
        page.get_by_role("cell", name="2,x").wait_for()
        page.get_by_label("File", exact=True).set_input_files(
            {"name": "a.csv", "mimeType": "", "buffer": b"id,price\n2,5\n"}
        )
        page.get_by_role("button", name="Upload").click()
        page.get_by_text("Batch 2 has 1 record and is staged").wait_for()
        page.get_by_role("link", name="All batches").click()
        page.get_by_text("Withdraw", exact=True).first.click()
        page.get_by_role("button", name="Withdraw batch 2").click()
        page.get_by_role("row", name="2 withdrawn").wait_for()
        window.open(f"{ITEMS}/merges")
        page.get_by_role("button", name="Merge now").click()
        page.get_by_role("button", name="Cancel the merge").click()
        page.get_by_text("cancelled").wait_for()
    assert items.get_row("2").status_code == 404


def test_an_upload_shows_its_progress_and_its_faults(chrome: Browser, service: Client, items: TableClient) -> None:
    bad = b"id,price\n" + b"".join(b"%d,<b>%d\n" % (number, number) for number in range(300))
    with person(chrome, str(service.base_url), "phone", "dark") as window:
        page = window.page
        window.open(f"{ITEMS}/upload")
        page.evaluate("window.sameDocument = true")
        page.get_by_label("File", exact=True).set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": bad})
        page.get_by_role("button", name="Upload").click()
        page.get_by_role("heading", name="300 faults, nothing was stored").wait_for()
        page.get_by_role("cell", name="7,<b>7", exact=True).wait_for()
        assert page.evaluate("window.sameDocument") is True
        assert page.evaluate("document.activeElement.id") == "uploaded"
        assert axe_and_size(window) == []
        good = b"id,price\n" + b"".join(b"%d,%d\n" % (number, number) for number in range(200_000))
        page.get_by_label("File", exact=True).set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": good})
        page.evaluate(
            "window.told = []; new MutationObserver(() => window.told.push(document.querySelector('#progress output')"
            ".textContent)).observe(document.getElementById('progress'), {childList: true, subtree: true})"
        )
        page.evaluate("addEventListener('pagehide', () => sessionStorage.setItem('told', JSON.stringify(told)))")
        page.get_by_role("button", name="Upload").click()
        page.get_by_text("200 000 records and is staged".replace(" ", "\u2009", 1)).wait_for()
        reported = page.evaluate("JSON.parse(sessionStorage.getItem('told'))")
        assert any("100 %" in one and "MiB" in one for one in reported), reported
        assert "sent; its records are read" in reported
        assert [complaint for complaint in window.complaints if "400" not in complaint] == []


def test_merges_and_batches_are_watched_live(chrome: Browser, service: Client, items: TableClient, data: Path) -> None:
    items.post_batch([{"id": 1}]).raise_for_status()
    database = CatalogDatabase(Settings(KEYFOLD_DATA=data).catalog_url)
    with person(chrome, str(service.base_url)) as window:
        page = window.page
        window.open(f"{ITEMS}/merges")
        page.get_by_role("button", name="Merge now").click()
        page.get_by_text("pending").wait_for()
        page.evaluate("document.activeElement.blur(); window.sameDocument = true")
        with database.transaction() as repository:
            claimed = claim_next(repository, "worker", 600)
            assert claimed
            repository.claimed_tasks.renew(claimed.task.id, "worker", 600, 0.4, {"tasks": 5, "tasksDone": 2})
        page.get_by_text("40 %, 2 of 5 tasks").wait_for(timeout=20_000)
        assert page.get_by_role("progressbar").get_attribute("value") == "40"
        assert axe_and_size(window) == []
        with database.transaction() as repository:
            repository.claimed_tasks.fail(claimed.task.id, "worker", f"it broke: {HOSTILE}")
        page.get_by_text(f"it broke: {HOSTILE}").first.wait_for(timeout=20_000)
        assert page.evaluate("window.sameDocument") is True
        page.get_by_role("link", name="Batches").click()
        page.evaluate("window.sameDocument = true")
        items.post_batch([{"id": 2}]).raise_for_status()
        page.get_by_role("row", name="2 staged").wait_for(timeout=20_000)
        assert page.evaluate("window.sameDocument") is True
        assert axe_and_size(window) == []
        assert window.complaints == []
    database.close()
