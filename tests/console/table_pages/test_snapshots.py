"""The page of snapshots: the line of time, tags, two compared, and a rollback that asks for the table's name."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from urllib.parse import quote

import pytest

from app.console.parts.timeline import APART, FIRST, LAST, timeline_of
from app.core.access import Role
from tests.console.conftest import Browser, SignedIn, words
from tests.console.merged import EVENTS, HOSTILE, Merged, MergedTable

PAGE = "/console/tables/shop/wide/snapshots"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def table(merged: Merged) -> MergedTable:
    """A table of three snapshots."""
    made = merged()
    for records in EVENTS:
        made.merge(*records)
    return made


def rows_after(page: str, heading: str) -> list[str]:
    """The rows of the first table behind a heading, as text."""
    found = re.search(rf"{heading}.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    assert found
    return [words(row) for row in re.findall(r"<tr.*?</tr>", found[1], re.DOTALL)]


def test_every_snapshot_is_on_the_line_and_in_the_list(table: MergedTable, browser: Browser) -> None:
    table.compact()
    page = browser.get(PAGE).text
    assert re.findall(r"<title>Snapshot (\d), ([\w-]+),", page) == [
        ("1", "merge"),
        ("2", "merge"),
        ("3", "merge"),
        ("4", "compaction"),
    ]
    assert [row.split()[0] for row in rows_after(page, ">Snapshots<")] == ["4", "3", "2", "1"]


def test_marks_keep_their_order_and_a_distance_however_near_their_times_are() -> None:
    times = [BEGIN, *(BEGIN + timedelta(days=1, milliseconds=number) for number in range(49))]
    line = timeline_of(times, lambda one: one, lambda _: 5)
    places = [mark.across for mark in line.marks]
    assert places[0] == FIRST
    assert places[-1] == LAST
    assert all(later - before >= APART - 0.02 for before, later in pairwise(places))
    assert timeline_of([], lambda _: BEGIN, lambda _: 0).marks == []
    assert [mark.across for mark in timeline_of([BEGIN], lambda one: one, lambda _: 0).marks] == [50.0]


def test_a_tag_is_made_shown_and_deleted(table: MergedTable, browser: Browser) -> None:
    browser.get(PAGE)
    assert browser.send(f"{PAGE}/tags", tag=HOSTILE, snapshot="2", retained="").status_code == 303
    assert table.client.get(f"{table.path}/tags").json()["tags"] == [HOSTILE]
    page = browser.get(PAGE).text
    assert "<b onx" not in page
    assert rows_after(page, ">Tags<")[0].startswith(f"{HOSTILE} 2 ")
    assert browser.send(f"{PAGE}/tags/delete", tag=HOSTILE).status_code == 303
    assert table.client.get(f"{table.path}/tags").json()["tags"] == []


NO_TAGS = [
    ({"tag": "7"}, 400, "means a snapshot already"),
    ({"tag": "v1", "snapshot": "9"}, 404, "9"),
    ({"tag": "v1", "snapshot": "x"}, 400, "no number of a snapshot"),
    ({"tag": "v1", "retained": "soon"}, 400, "not a duration"),
    ({"tag": "old"}, 409, "old"),
]


def test_a_tag_that_cannot_be_is_refused_with_what_was_written(table: MergedTable, browser: Browser) -> None:
    table.client.post(f"{table.path}/tags", json={"tagName": "old"}).raise_for_status()
    browser.get(PAGE)
    for fields, status, said in NO_TAGS:
        refused = browser.send(f"{PAGE}/tags", **fields)
        assert refused.status_code == status, fields
        [alert] = re.findall(r'role="alert".*?</div>', refused.text, re.DOTALL)
        assert said in words(alert), fields
        assert f'value="{fields["tag"]}"' in refused.text, fields
        assert table.client.get(f"{table.path}/tags").json()["tags"] == ["old"], fields


def test_two_snapshots_are_compared_either_way_round_and_column_by_column(table: MergedTable, browser: Browser) -> None:
    forth = browser.text(f"{PAGE}/changes?since=1&version=3")
    assert "From snapshot 1 to snapshot 3 Added 1 Changed 1 Removed 1" in forth
    assert "note a → c" in forth.replace('"', "")
    assert HOSTILE in forth
    back = browser.text(f"{PAGE}/changes?since=3&version=1")
    assert "From snapshot 3 to snapshot 1 Added 1 Changed 1 Removed 1" in back
    assert "note c → a" in back
    assert "From snapshot 2 to snapshot 3 Added 0 Changed 0 Removed 1" in browser.text(f"{PAGE}/changes?version=3")
    assert "Nothing differs" in browser.text(f"{PAGE}/changes?since=2&version=2")

    browser.text(f"{PAGE}/changes?since=1&version=3")
    assert rows_after(browser.shown, ">By column<") == ["note 1"]


NOT_THERE = ["version=9", "since=nope", "since=%3Cb%3E&version=1"]


def test_a_snapshot_that_is_not_there_is_reported(table: MergedTable, browser: Browser) -> None:
    for wrong in NOT_THERE:
        reported = browser.get(f"{PAGE}/changes?{wrong}")
        assert (reported.status_code, 'role="alert"' in reported.text) == (404, True), wrong
        assert "<b>" not in reported.text, wrong


def test_a_rollback_shows_its_changes_and_is_done_once_the_name_is_typed(table: MergedTable, browser: Browser) -> None:
    asked = browser.text(f"{PAGE}/rollback?to=1")
    assert "What it would change Added 1 Changed 1 Removed 1" in asked
    gone = browser.send(f"{PAGE}/rollback", to="1", typed=" wide ", **{"from": "3"})
    assert (gone.status_code, gone.headers["location"]) == (303, PAGE)
    [made] = table.snapshots()[:1]
    assert (made["kind"], made["id"]) == ("rollback", 4)
    rows = table.client.get(f"{table.path}/rows:scan?integers=number").text.splitlines()
    assert len(rows) == 2


OTHER_NAMES = ["", "Wide", "wide2", "shop.wide"]


def test_nothing_is_gone_back_to_unless_the_name_is_typed(table: MergedTable, browser: Browser) -> None:
    browser.get(f"{PAGE}/rollback?to=1")
    for typed in OTHER_NAMES:
        refused = browser.send(f"{PAGE}/rollback", to="1", typed=typed, **{"from": "3"})
        assert (refused.status_code, "the table was not changed" in refused.text) == (400, True), typed
        assert len(table.snapshots()) == 3, typed


def test_nothing_is_gone_back_to_when_something_was_merged_since(table: MergedTable, browser: Browser) -> None:
    browser.get(f"{PAGE}/rollback?to=1")
    table.merge({"id": 4})
    refused = browser.send(f"{PAGE}/rollback", to="1", typed="wide", **{"from": "3"})
    assert refused.status_code == 409
    assert 'name="from" value="4"' in refused.text
    assert [snapshot["kind"] for snapshot in table.snapshots()] == ["merge"] * 4


def test_a_tag_is_gone_back_to(table: MergedTable, browser: Browser) -> None:
    table.client.post(f"{table.path}/tags", json={"tagName": "v 1", "snapshotId": 2}).raise_for_status()
    assert "Go back to snapshot 2" in browser.text(f"{PAGE}/rollback?to={quote('v 1')}")


def test_a_reader_is_offered_nothing_that_changes(merged: Merged, signed_in: SignedIn) -> None:
    table = merged()
    table.merge({"id": 1})
    table.merge({"id": 2})
    reader = signed_in(Role.READ)
    page = reader.get(PAGE).text
    assert "go back" not in page
    assert "Make the tag" not in page
    assert reader.get(f"{PAGE}/rollback?to=1").status_code == 403
    assert reader.send(f"{PAGE}/rollback", to="1", typed="wide").status_code == 403
    assert reader.get(PAGE).status_code == 200
    assert reader.send(f"{PAGE}/tags", tag="mine").status_code == 403


def test_a_writer_makes_tags_and_deletes_none(merged: Merged, signed_in: SignedIn) -> None:
    table = merged()
    table.merge({"id": 1})
    writer = signed_in(Role.WRITE)
    writer.get(PAGE)
    assert writer.send(f"{PAGE}/tags", tag="mine").status_code == 303
    page = writer.get(PAGE).text
    assert "mine" in page
    assert "Delete" not in page
    assert writer.send(f"{PAGE}/tags/delete", tag="mine").status_code == 403
