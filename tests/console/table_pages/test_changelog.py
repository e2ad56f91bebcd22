"""The page of the changelog: the newest first, followed, paused, and what to do where there is none."""

from __future__ import annotations

import re

import pytest

from app.console.table_pages.changelog import NO_CHANGE
from app.core.table.history import SnapshotKind
from app.services.shared.executor import MergeSite
from tests.console.conftest import Browser, live_part, words
from tests.console.merged import EVENTS, HOSTILE, Merged, MergedTable
from tests.services.executor import PythonExecutor
from tests.services.upkeep.forgetting import forget

PAGE = "/console/tables/shop/wide/changelog"
LOOKUP = {"changelog-producer": "lookup"}


@pytest.fixture
def table(merged: Merged) -> MergedTable:
    """A table that keeps the changes of three snapshots."""
    made = merged(**LOOKUP)
    for records in EVENTS:
        made.merge(*records)
    return made


def changes_in(page: str) -> list[str]:
    """All changes, as text."""
    return [words(row) for row in re.findall(r'<tr><td class="log-kind.*?</tr>', page, re.DOTALL)]


def test_changes_are_reported_newest_first_and_updates_in_one_line(table: MergedTable, browser: Browser) -> None:
    page = browser.get(PAGE).text
    assert re.findall(r">Snapshot (\d)<", page) == ["3", "2", "1"]
    reported = changes_in(page)
    assert reported[0] == "-D 2 b null"
    assert sorted(reported[1:3]) == ["+I 3 " + HOSTILE + " null", "+U 1 a → c 1"]
    assert sorted(reported[3:]) == ["+I 1 a 1", "+I 2 b null"]
    assert "<b onx" not in page


def test_what_is_shown_already_is_not_sent_again(table: MergedTable, browser: Browser) -> None:
    address = live_part(browser.get(PAGE).text)
    assert browser.get(address).status_code == 204
    table.merge({"id": 9, "note": "new"})
    answer = browser.get(address)
    assert changes_in(answer.text)[0] == "+I 9 new null"
    assert browser.get(live_part(answer.text)).status_code == 204


def test_a_page_that_is_paused_stands_still(table: MergedTable, browser: Browser) -> None:
    table.merge({"id": 9, "note": "new"})
    page = browser.get(f"{PAGE}?until=3").text
    assert "Paused at snapshot 3" in words(page)
    assert "hx-get" not in page
    assert changes_in(page)[0] == "-D 2 b null"


NO_SNAPSHOTS = [("9", 404), ("0", 400), ("x", 400), ("-1", 400), ("9" * 20, 400)]


def test_a_pause_at_no_snapshot_is_reported(table: MergedTable, browser: Browser) -> None:
    for until, status in NO_SNAPSHOTS:
        assert browser.get(f"{PAGE}?until={until}").status_code == status, until


def test_a_table_without_a_changelog_says_what_to_do(merged: Merged, browser: Browser) -> None:
    table = merged(**{"merge-engine": "partial-update"})
    table.merge({"id": 1})
    page = browser.get(PAGE)
    text = words(page.text)
    assert page.status_code == 200
    assert "This table keeps no changelog" in text
    assert "/console/tables/shop/wide/settings#of-changelog-producer" in page.text
    assert 'id="of-changelog-producer"' in browser.get("/console/tables/shop/wide/settings").text


def test_an_alter_that_ends_the_changelog_loads_the_page_again(merged: Merged, browser: Browser) -> None:
    table = merged(**LOOKUP, **{"merge-engine": "partial-update"})
    table.merge({"id": 1})
    address = live_part(browser.get(PAGE).text)
    table.alter([{"action": "removeOption", "key": "changelog-producer"}])
    reported = browser.get(address)
    assert (reported.status_code, reported.headers["hx-refresh"]) == (204, "true")
    table.alter([{"action": "setOption", "key": "changelog-producer", "value": "lookup"}])
    table.merge({"id": 2})
    browser.get(PAGE)
    assert [change.split()[:2] for change in changes_in(browser.shown)] == [["+I", "2"], ["+I", "1"]]


def test_a_large_snapshot_is_begun_and_others_are_left_to_the_api(merged: Merged, browser: Browser) -> None:
    table = merged(**LOOKUP)
    table.merge({"id": 0})
    table.merge(*({"id": number} for number in range(1, 301)))
    page = browser.get(PAGE).text
    assert len(changes_in(page)) == 200
    assert "200 changes, and more" in words(page)
    assert "Snapshot 1<" not in page
    assert "Only the newest changes" in words(page)


def test_a_table_that_was_never_merged_waits(merged: Merged, browser: Browser) -> None:
    merged(**LOOKUP)
    assert "Nothing was merged yet" in browser.text(PAGE)
    assert browser.get(live_part(browser.shown)).status_code == 204


def test_why_a_snapshot_has_no_change_is_told_of_every_kind(table: MergedTable, browser: Browser) -> None:
    assert set(NO_CHANGE) == set(SnapshotKind)
    answer = table.client.post(f"{table.path}/rows:forget", json={"keys": [{"id": 1}]})
    assert answer.status_code == 202, answer.text
    assert forget(MergeSite(table.database, table.warehouse, PythonExecutor(), 600)) == 1
    assert NO_CHANGE[SnapshotKind.FORGETTING] in browser.text(PAGE)
    assert "forgetting" in browser.text("/console/tables/shop/wide/snapshots")
