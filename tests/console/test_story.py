"""The whole story with Spark: an example loaded, played and merged, seen live in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.chromium import EXECUTABLE, MISSING, chromium, person
from tests.service import TableClient, serving

pytestmark = [
    pytest.mark.slow(reason="starts a service with Spark, and a browser"),
    pytest.mark.skipif(EXECUTABLE is None, reason=MISSING),
]


def test_a_merge_is_seen_without_reloading(tmp_path: Path, spark_remote: str) -> None:
    with (
        serving(tmp_path, spark_remote=spark_remote) as (_, client),
        chromium() as browser,
        person(browser, str(client.base_url)) as window,
    ):
        window.open("/")
        assert "ready" in window.page.get_by_label("State of the service").inner_text()
        window.page.get_by_role("button", name="Load Partial update").click()
        for number in (1, 2, 3):
            window.page.get_by_role("button", name=f"Play record {number}").click()
        window.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tables", exact=True).click()
        window.page.evaluate("window.sameDocument = true")
        merge = TableClient(client, "examples", "partial_update").merge()
        assert merge["state"] == "succeeded"
        row = window.page.get_by_role("row", name="examples.partial_update")
        row.get_by_text("ago").wait_for(timeout=20_000)
        assert window.page.evaluate("window.sameDocument") is True
        row.get_by_role("link").click()
        window.page.get_by_role("link", name="Rows").click()
        cells = window.page.locator("tbody td").all_inner_texts()
        assert cells == ["1", "25.2", "10", "This is a book"]
        for part in ("Batches", "Merges", "Snapshots"):
            window.page.get_by_role("link", name=part).click()
            window.page.locator("tbody tr").first.wait_for()
            assert window.axe() == []
        assert window.complaints == []
