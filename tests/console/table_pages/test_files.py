"""The page of a table's files: runs by partition, amplifications over snapshots, and who else can read them."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI

from app.console.parts.courses import course
from app.console.table_pages.files import MOST_RUNS, Bar
from app.core.table.history import DataFile, Run, Snapshot, SnapshotKind
from app.http.parts import Parts
from app.services.operating.stats import amplified
from tests.api.conftest import TABLES, Create, fields_of
from tests.console.conftest import Browser, link_of, words
from tests.console.merged import HOSTILE, MANUAL, Merged, MergedTable
from tests.console.table_pages.test_snapshots import BEGIN

PAGE = "/console/tables/shop/wide/files"


def run(name: str, size: int) -> Run:
    """A run that the snapshot of its name's time wrote."""
    return Run(name, 0, (DataFile("a.parquet", 1, size, 0, 0),), changed_at=BEGIN)


def snapshot(number: int, kind: SnapshotKind, *runs: Run) -> Snapshot:
    return Snapshot(number, "t", runs, None, BEGIN, kind)


def test_amplifications_are_those_of_what_was_written_and_is_there() -> None:
    first, second, whole = run("a", 100), run("b", 50), run("c", 120)
    found = amplified(
        [
            snapshot(1, SnapshotKind.MERGE, first),
            snapshot(2, SnapshotKind.MERGE, first, second),
            snapshot(3, SnapshotKind.COMPACTION, whole),
            snapshot(4, SnapshotKind.ROLLBACK, first, second),
        ]
    )
    assert [(one.write, one.read, one.space) for one in found] == [
        (1.0, 1, 1.0),
        (1.0, 2, 1.5),
        (1.8, 1, 1.0),
        (1.8, 2, 1.5),
    ]
    assert amplified([]) == []


def test_what_was_written_before_the_first_snapshot_looked_at_is_not_counted() -> None:
    old = Run("old", 0, (DataFile("a.parquet", 1, 1000, 0, 0),), changed_at=None)
    [only] = amplified([snapshot(7, SnapshotKind.COMPACTION, old)])
    assert (only.write, only.read, only.space) == (None, 1, 1.0)


def test_a_course_has_gaps_where_nothing_is_known_and_names_its_ends() -> None:
    plot = course("Write", "per byte", str, "blue", [7, 8, 9], [None, 2.0, 4.0])
    assert plot.times == ["snapshot 7", "snapshot 9"]
    assert plot.path(plot.lines[0]) == "M300.0 60.0L600.0 20.0"
    assert "now 4.0, at most 4.0" in plot.summary
    single = course("Write", "per byte", str, "blue", [7], [1.0])
    assert (single.times, single.dots(single.lines[0])) == (["snapshot 7"], "M600.0 0.0h0")


def test_a_bar_of_many_runs_draws_the_newest_of_them_together() -> None:
    bar = Bar(None, [run(str(number), 10) for number in range(MOST_RUNS + 40)], 1000)
    assert len(bar.pieces) == MOST_RUNS + 1
    assert bar.pieces[-1].description.startswith("40 newer runs, 400 B")
    assert bar.pieces[-1].begin + bar.pieces[-1].width == pytest.approx(100)


def test_what_stats_answer_is_shown(merged: Merged, browser: Browser) -> None:
    table = merged()
    for number in range(3):
        table.merge({"id": number, "note": "x"})
    text = browser.text(PAGE)
    stats = table.client.get(f"{table.path}/stats").json()
    assert stats["mostRuns"] == 3
    assert f"Write amplification {stats['writeAmplification']:g} ×" in text
    assert "Read amplification 3 " in text
    assert f"Space amplification {stats['spaceAmplification']:.3g} ×" in text
    assert "a partition has several runs" in text
    assert len(re.findall(r'class="file-run[ "]', browser.shown)) == 3
    table.compact()
    text = browser.text(PAGE)
    assert "these files are the table" in text
    assert "Read amplification 1 " in text
    assert re.search(r'aria-label="Read amplification, [^"]*: now 1, at most 3"', browser.shown)


def test_runs_are_reported_by_partition(app: FastAPI, create: Create, browser: Browser) -> None:
    fields = fields_of(id="BIGINT NOT NULL", day="STRING NOT NULL")
    made = create("wide", fields=fields, primaryKeys=["id", "day"], partitionKeys=["day"], options=MANUAL)
    parts: Parts = app.state.parts
    table = MergedTable(browser.client, f"{TABLES}/wide", made["id"], parts.database, parts.warehouse)
    table.merge({"id": 1, "day": HOSTILE}, {"id": 2, "day": "tue"})
    table.merge({"id": 3, "day": "tue"})
    text = browser.text(PAGE)
    assert "<b onx" not in browser.shown
    assert "2 partitions" in text
    bars = browser.shown[browser.shown.index(">Runs by partition<") : browser.shown.index(">Data files<")]
    rows = [words(row) for row in re.findall(r"<tr>.*?</tr>", bars, re.DOTALL)[1:]]
    assert [re.sub(" [0-9.]+ KiB.*", "", row) for row in rows if "tue" in row] == ['{"day":"tue"} 2 2 2']
    assert len(rows) == 2


def test_files_are_paged(merged: Merged, browser: Browser) -> None:
    table = merged(**{"target-file-size": "1 b"})
    table.merge(*({"id": number} for number in range(128)))
    count = len(table.client.get(f"{table.path}/files", params={"maxResults": 1000}).json()["files"])
    assert 50 < count <= 100
    first = browser.get(PAGE).text
    assert len(re.findall(r'class="mono file-name"', first)) == 50
    rest = browser.get(link_of(first, "Next page")).text
    assert len(re.findall(r'class="mono file-name"', rest)) == count - 50


def test_a_table_that_was_never_merged_has_no_files(merged: Merged, browser: Browser) -> None:
    table = merged()
    table.stage({"id": 1})
    text = browser.text(PAGE)
    assert "Nothing was merged yet" in text
    assert "1 batch" in text
