"""Every page in a real Chromium: two widths, both schemes, no complaint of browser or axe, no other host."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from app.catalog.database import CatalogDatabase
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.api.conftest import fields_of
from tests.console.chromium import NEEDS_CHROMIUM, WIDTHS, faults_of, person
from tests.service import Client, TableClient, serving

pytestmark = [*NEEDS_CHROMIUM]
HOSTILE = "<b onx=1>\"'&{{7*7}}"
# The pages that are walked; each must be there on a service with the table shop.wide.
SHOWN = [
    *("/", "/?q=nothing", "/console/nothing", "/console/search", "/console/search?q=id"),
    *("/console/search?q=no-such-name", "/console/reference", "/console/search?q=sequence", "/console/examples"),
    *("/console/examples/parcels", "/console/tables/shop/wide", "/console/tables/shop/wide/row"),
    *("/console/tables/shop/wide/row?key=1&sent=gone", "/console/tables/shop/wide/row?key=7&try=%7B%7D"),
    *("/console/tables/shop/wide/row/new", "/console/tables/shop/wide/row/edit?key=1"),
    *("/console/tables/shop/wide/rows", "/console/tables/shop/wide/upload", "/console/tables/shop/wide/batches"),
    *("/console/tables/shop/wide/batches?state=poisoned", "/console/tables/shop/wide/set-aside-events"),
    *("/console/tables/shop/wide/merges", "/console/tables/shop/wide/snapshots"),
    *("/console/tables/shop/wide/snapshots/changes", "/console/tables/shop/wide/snapshots/rollback"),
    *("/console/tables/shop/wide/changelog", "/console/tables/shop/wide/files", "/console/tables/shop/wide/settings"),
    "/console/tables/shop/wide/settings?q=staleness&changed=1",
    *("/console/tables/shop/wide/settings?q=merge.max-staleness", "/console/tables/shop/wide/code", "/console/new"),
    *("/console/new?kind=json", "/console/new?kind=sample", "/console/new?kind=columns", "/console/playground"),
    *("/console/operations", "/console/operations?as=tables", "/console/operations/tokens"),
    "/console/operations/audit",
]


@pytest.fixture(scope="module", autouse=True)
def tables(service: Client) -> None:
    """Two tables, one of a hostile name."""
    fields = fields_of(id="BIGINT NOT NULL", **{HOSTILE: "STRING"})
    for name in ("wide", HOSTILE):
        schema = {"fields": fields, "primaryKeys": ["id"], "options": {}, "comment": HOSTILE}
        service.create_table("shop", name, schema).raise_for_status()
    TableClient(service, "shop", "wide").post_batch([{"id": 1, HOSTILE: HOSTILE * 1000}, {"id": 2}])


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_is_whole_light_and_without_fault(chrome: Browser, service: Client, path: str) -> None:
    assert faults_of(chrome, str(service.base_url), path) == []


def test_the_tables_are_live_and_leave_the_focus_alone(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open("/?q=later")
        assert "No table has" in window.page.inner_text("main")
        service.create_database("later")
        fields = [{"id": 0, "name": "id", "type": "BIGINT NOT NULL"}]
        service.create_table("later", "on", {"fields": fields, "primaryKeys": ["id"]}).raise_for_status()
        window.page.get_by_role("link", name="later.on").wait_for(timeout=10_000)
        assert window.complaints == []


def test_an_empty_service_greets_with_an_example_that_is_played(chrome: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, workers="0") as (_, client), person(chrome, str(client.base_url), "phone") as window:
        window.open("/")
        assert window.axe() == []
        window.page.get_by_role("button", name="Load Sequence groups").click()
        for number in (1, 2, 3):
            window.page.get_by_role("button", name=f"Play record {number}").click()
        window.page.get_by_text("3 of 3 played").wait_for()
        assert window.axe() == []
        assert not window.wider_than_window()
        window.page.get_by_role("button", name="Drop the example").click()
        window.page.get_by_text("No table yet").wait_for()
        assert window.complaints == []


def test_a_table_is_checked_while_it_is_typed_mended_and_made(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open("/console/new")
        window.page.get_by_label("Database").fill("typed")
        text = window.page.get_by_label("CREATE TABLE")
        text.fill(text.input_value().replace("'partial-update'", "'partial-updat'"))
        window.page.get_by_role("button", name="Write partial-update for partial-updat").wait_for()
        assert window.axe() == []
        window.page.get_by_role("button", name="Write partial-update").click()
        window.page.locator(".rulelines", has_text="primary key").wait_for()
        window.page.get_by_role("button", name="Make the table").click()
        window.page.wait_for_url("**/console/tables/typed/orders")
    assert service.get("/v1/catalog/databases/typed/tables").json()["tables"] == ["orders"]


def test_the_example_of_a_function_changes_with_what_is_chosen(chrome: Browser, service: Client) -> None:
    service.create_database("another")
    with person(chrome, str(service.base_url)) as window:
        window.open("/console/new?kind=columns")
        assert window.page.get_by_label("Database").input_value() == ""  # of several databases none is chosen
        example = window.page.locator("#example-3")
        assert example.locator("b").inner_text() == "10.00"
        window.page.get_by_label("Value of column 4").select_option("max")
        example.locator("b", has_text="5.00").wait_for()
        window.page.get_by_label("Type of column 4").fill("STRING")
        example.locator("b", has_text="c").wait_for()
        window.page.get_by_label("Value of column 4").select_option("sum")
        example.get_by_text("sum takes a number").wait_for()
        assert window.axe() == []
        example.get_by_role("link", name="sum").click()
        window.page.wait_for_url("**/console/reference#function-sum")
        assert window.complaints == []


def test_the_keyboard_reaches_the_page_at_once(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open("/")
        window.page.keyboard.press("Tab")
        assert window.page.evaluate("document.activeElement.textContent") == "Skip to the page"
        window.page.keyboard.press("Enter")
        assert window.page.evaluate("document.activeElement.id") == "main"


def test_somebody_signs_in_and_out(chrome: Browser, tmp_path: Path) -> None:
    database = CatalogDatabase(Settings(KEYFOLD_DATA=tmp_path).catalog_url)
    database.migrate()
    token = create_token(database, "boss")
    database.close()
    with serving(tmp_path, workers="0") as (_, client):
        for width in WIDTHS:
            with person(chrome, str(client.base_url), width) as window:
                window.open("/?q=x")
                assert window.axe() == []
                window.page.get_by_label("Token").fill(token)
                window.page.get_by_role("button", name="Sign in").click()
                window.page.wait_for_url("**/?q=x")
                assert "boss" in window.page.inner_text("header")
                window.page.get_by_role("button", name="Sign out").click()
                window.page.wait_for_url("**/console/sign-in")
                assert window.axe() == []
                assert window.complaints == []


def test_a_slash_goes_to_the_search_but_not_out_of_a_field(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open("/console/tables/shop/wide/settings")
        window.page.get_by_label("merge.max-staleness").press("/")
        assert window.page.evaluate("document.activeElement.id") != "find"
        window.open("/console/operations")
        window.page.keyboard.press("/")
        window.page.keyboard.type("shop.wi")
        window.page.keyboard.press("Enter")
        window.page.get_by_role("heading", name="What is called “shop.wi”").wait_for()
        window.page.get_by_role("main").get_by_role("link", name="shop.wide").first.click()
        window.page.wait_for_url("**/console/tables/shop/wide")
        assert window.complaints == []


DROP = """() => {
  const data = new DataTransfer();
  data.items.add(new File(['{"id": 77}'], "rows.ndjson"));
  const drop = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
  document.getElementById("upload").dispatchEvent(drop);
}"""


def test_a_file_that_is_dropped_is_uploaded_and_leads_to_its_rows(chrome: Browser, service: Client) -> None:
    with person(chrome, str(service.base_url)) as window:
        window.open("/console/tables/shop/wide/upload")
        window.page.evaluate(DROP)
        window.page.get_by_role("button", name="Upload", exact=True).click()
        window.page.get_by_role("status").get_by_role("link", name="Rows").click()
        window.page.get_by_role("link", name="77", exact=True).wait_for()
        assert window.complaints == []


@pytest.mark.parametrize("shown", [True, False])
def test_the_page_of_the_api_leads_back_to_a_console(chrome: Browser, service: Client, shown: bool) -> None:
    with person(chrome, str(service.base_url)) as window:
        if not shown:  # as a service without it answers: test_sign_in.py
            window.page.route(f"{service.base_url}".rstrip("/") + "/", lambda route: route.fulfill(status=404))
        window.open("/docs")
        window.page.get_by_role("heading", name="Keyfold").first.wait_for()
        window.page.wait_for_load_state("networkidle")
        assert window.page.get_by_role("link", name="Back to the console").is_visible() is shown
