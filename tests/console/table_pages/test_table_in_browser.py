"""The tabs of a table in a real Chromium: snapshots, changelog, files, settings, code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.settings import Settings
from tests.console.chromium import NEEDS_CHROMIUM, WIDTHS, faults_of, person
from tests.console.merged import EVENTS, FIELDS, HOSTILE, MANUAL, MergedTable
from tests.service import Client

pytestmark = [*NEEDS_CHROMIUM]
BASE = "/console/tables/shop/kept"
# What differs from the pages of a table that was never merged: tests/console/test_browser.py has those.
SHOWN = [
    *(f"{BASE}/snapshots", f"{BASE}/snapshots/changes?since=1&version=3", f"{BASE}/snapshots/changes?version=9"),
    *(f"{BASE}/snapshots/rollback?to=1", f"{BASE}/changelog", f"{BASE}/changelog?until=2", f"{BASE}/files"),
    *(f"{BASE}/settings", "/console/tables/shop/broad/changelog"),
    "/console/tables/shop/broad/snapshots/changes?version=1",
]


@pytest.fixture(scope="module", autouse=True)
def kept(service: Client, data: Path) -> Iterator[MergedTable]:
    """A table of three snapshots; there is one of two hundred columns, too."""
    settings = Settings(KEYFOLD_DATA=data)
    database = CatalogDatabase(settings.catalog_url)
    options = {**MANUAL, "merge-engine": "partial-update", "changelog-producer": "lookup"}
    options["partial-update.remove-record-on-delete"] = "true"

    def made(name: str, fields: list[dict[str, Any]]) -> MergedTable:
        schema = {"fields": fields, "primaryKeys": ["id"], "options": options}
        created = service.create_table("shop", name, schema).raise_for_status().json()
        path = f"/v1/catalog/databases/shop/tables/{name}"
        return MergedTable(service, path, created["id"], database, Warehouse(settings.warehouse_root, marked=True))

    many = ({"id": number, "name": f"c{number}", "type": "STRING"} for number in range(1, 200))
    made("broad", [FIELDS[0], *many]).merge({"id": 1, "c1": "x" * 2**20, "c199": HOSTILE})
    table = made("kept", FIELDS)
    for records in EVENTS:
        table.merge(*records)
    service.post(f"{table.path}/tags", json={"tagName": HOSTILE, "snapshotId": 2}).raise_for_status()
    yield table
    database.close()


@pytest.mark.parametrize("path", SHOWN)
def test_a_tab_is_whole_light_and_without_fault(chrome: Chromium, service: Client, path: str) -> None:
    assert faults_of(chrome, str(service.base_url), path) == []


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("tab", ["", "/batches", "/snapshots", "/code"])
def test_a_phone_shows_tabs_in_a_line_and_the_current(
    chrome: Chromium, service: Client, tab: str, script: bool
) -> None:
    with person(chrome, str(service.base_url), "phone", java_script_enabled=script) as window:
        window.open(f"{BASE}{tab}")
        tabs = window.page.get_by_role("navigation", name="Parts of the table")
        box, current = tabs.bounding_box(), tabs.locator("[aria-current]").bounding_box()
        assert box
        assert current
        assert box["height"] < 2 * current["height"]
        assert 0 <= current["x"] <= WIDTHS["phone"] - current["width"]
        if script and tab:  # the one before it is whole, too
            before = tabs.locator("a:has(+ [aria-current])").bounding_box()
            assert before
            assert 0 <= before["x"] <= current["x"] - before["width"]
        tabs.get_by_role("link", name="Code").click()
        window.page.wait_for_url("**/code")


def test_tabs_are_reached_by_the_keyboard_on_a_phone(chrome: Chromium, service: Client) -> None:
    with person(chrome, str(service.base_url), "phone") as window:
        window.open(f"{BASE}/code")
        tabs = window.page.get_by_role("navigation", name="Parts of the table").get_by_role("link")
        tabs.first.focus()
        for place in range(tabs.count()):
            box = window.page.locator(":focus").bounding_box()
            assert window.page.locator(":focus").inner_text() == tabs.nth(place).inner_text()
            assert box
            assert 0 <= box["x"] <= WIDTHS["phone"] - box["width"]
            window.page.keyboard.press("Tab")


def test_snapshots_are_picked_compared_and_tagged_without_a_script(chrome: Chromium, service: Client) -> None:
    with person(chrome, str(service.base_url), java_script_enabled=False) as window:
        window.open(f"{BASE}/snapshots")
        window.page.get_by_label("Compare from snapshot 1").check()
        window.page.get_by_role("button", name="Compare the two").click()
        window.page.get_by_role("heading", name="From snapshot 1 to snapshot 3").wait_for()
        window.page.get_by_role("link", name="All snapshots").click()
        window.page.get_by_label("Name").fill("by-hand")
        window.page.get_by_role("button", name="Make the tag").click()
        row = window.page.get_by_role("row", name="by-hand").last
        row.get_by_text("delete", exact=True).click()
        row.get_by_role("button", name="Delete by-hand").click()
        window.page.get_by_text("by-hand").first.wait_for(state="detached")
        window.page.get_by_role("heading", name="Tags").wait_for()


def test_a_table_is_gone_back_by_its_name_and_forth_again(chrome: Chromium, service: Client, kept: MergedTable) -> None:
    before = service.get(f"{kept.path}/rows:scan").text
    with person(chrome, str(service.base_url), "phone") as window:
        window.open(f"{BASE}/snapshots")
        window.page.get_by_role("link", name="Go back to snapshot 1").click()
        window.page.get_by_label("Type the name of the table").fill("keep")
        window.page.get_by_role("button", name="Go back to snapshot 1").click()
        window.page.get_by_role("alert").wait_for()
        assert window.axe() == []
        window.page.get_by_label("Type the name of the table").fill("kept")
        window.page.get_by_role("button", name="Go back to snapshot 1").click()
        window.page.wait_for_url("**/snapshots")
        assert [snapshot["kind"] for snapshot in kept.snapshots()[:1]] == ["rollback"]
        assert service.get(f"{kept.path}/rows:scan").text != before
        window.page.get_by_role("link", name="Go back to snapshot 3").click()
        window.page.get_by_label("Type the name of the table").fill("kept")
        window.page.get_by_role("button", name="Go back to snapshot 3").click()
        window.page.wait_for_url("**/snapshots")
        assert [complaint for complaint in window.complaints if "400" not in complaint] == []
    assert service.get(f"{kept.path}/rows:scan").text == before


def test_changes_are_seen_without_reloading_until_a_pause(chrome: Chromium, service: Client, kept: MergedTable) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open(f"{BASE}/changelog")
        window.page.evaluate("window.sameDocument = true")
        kept.merge({"id": 70, "note": "seen at once"})
        window.page.get_by_text("seen at once").wait_for(timeout=20_000)
        assert window.page.evaluate("window.sameDocument") is True
        assert window.axe() == []
        window.page.get_by_role("button", name="Pause").click()
        window.page.get_by_text("Paused at snapshot").wait_for()
        kept.merge({"id": 71, "note": "not seen"})
        window.page.evaluate("document.body.dispatchEvent(new Event('keyfold:tick'))")
        assert window.page.get_by_text("not seen").count() == 0
        window.page.get_by_role("link", name="Go on").click()
        window.page.get_by_text("not seen").wait_for()
        assert window.complaints == []


def test_settings_are_checked_at_the_field_and_altered(chrome: Chromium, service: Client, kept: MergedTable) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open(f"{BASE}/settings")
        field = window.page.get_by_label("snapshot.time-retained")
        field.fill("soon")
        window.page.get_by_text("write a number and a unit").wait_for()
        assert window.page.evaluate("document.activeElement.name") == "set.snapshot.time-retained"
        assert window.page.get_by_role("heading", name="1 fault").is_visible()
        assert window.axe() == []
        field.fill("3 h")
        window.page.get_by_role("heading", name="1 change, nothing wrong").wait_for()
        window.page.get_by_text("write a number and a unit").wait_for(state="detached")
        assert "snapshot.time-retained" not in kept.options()
        window.page.get_by_role("button", name="Alter the table").click()
        window.page.locator(".set-when", has_text="Altered").wait_for()
        assert kept.options()["snapshot.time-retained"] == "3 h"
        assert window.complaints == []


def test_settings_are_altered_without_a_script(chrome: Chromium, service: Client, kept: MergedTable) -> None:
    with person(chrome, str(service.base_url), java_script_enabled=False) as window:
        window.open(f"{BASE}/settings")
        window.page.get_by_label("target-file-size").fill("large")
        window.page.get_by_label("merge.max-staged-rows").fill("-1")
        window.page.get_by_role("button", name="Alter the table").click()
        window.page.get_by_role("heading", name="2 faults").wait_for()
        assert window.page.locator("[aria-invalid=true]").count() == 2
        window.page.get_by_label("target-file-size").fill("64 mb")
        window.page.get_by_label("merge.max-staged-rows").fill("500")
        window.page.get_by_role("button", name="Alter the table").click()
    assert kept.options()["target-file-size"] == "64 mb"
    assert kept.options()["merge.max-staged-rows"] == "500"


def test_a_program_is_copied(chrome: Chromium, service: Client) -> None:
    with person(chrome, str(service.base_url), permissions=["clipboard-read", "clipboard-write"]) as window:
        window.open(f"{BASE}/code")
        window.page.locator("#curl").get_by_role("button", name="Copy").first.click()
        window.page.get_by_role("button", name="Copied").wait_for()
        copied = window.page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("curl ")
        assert window.complaints == []
