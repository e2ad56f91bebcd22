"""Sweeps remove garbage, and nothing that somebody names or may still name."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from app.services.batches.batches import withdraw_batch
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_table
from app.services.upkeep.sweeps import FILED_GRACE, GRACE, sweep
from app.telemetry.entries import Counted, Upkeep
from tests.services.builders import (
    NO_HISTORY,
    SUM,
    compact,
    create_table,
    merge,
    post,
    snapshot_of,
    totals,
)

NO_GRACE = timedelta(0)


def entries(site: MergeSite, table_id: str) -> set[str]:
    """Staging files and runs of the table, by name."""
    found: Iterable[Path] = Path(site.warehouse.path(table_id)).glob("*/*")
    return {entry.name for entry in found}


def age(site: MergeSite, seconds: float = 2 * 3600) -> None:
    """Makes everything in the warehouse look older."""
    for path in Path(site.warehouse.path()).rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


def test_what_is_named_stays_however_old_it_is(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | NO_HISTORY)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    staged = post(site.database, site.warehouse, {"id": 1, "n": 1})
    age(site)
    assert sweep(site.database, site.warehouse) == 2  # the staging files that are merged
    snapshot = snapshot_of(site.database, table)
    assert entries(site, table.id) == {staged.file, *(run.id for run in snapshot.runs)}
    assert totals(site.database, images, table, [1], latest=True) == [3]


def test_runs_of_earlier_snapshots_stay_for_their_readers(site: MergeSite) -> None:
    table = create_table(site.database, SUM | NO_HISTORY)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    runs = [run.id for run in snapshot_of(site.database, table).runs]
    compact(site, table)
    compacted = snapshot_of(site.database, table)
    age(site)
    sweep(site.database, site.warehouse)
    assert entries(site, table.id) == {*runs, compacted.runs[0].id}


def test_young_garbage_stays_because_it_may_be_named_in_a_moment(site: MergeSite) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    run = Path(site.warehouse.path(table.id, "runs", "under-way"))
    run.mkdir(parents=True)
    (run / "part-00000.parquet").write_bytes(b"")
    aside = Path(site.warehouse.path(table.id, "staging", "b.parquet.writing"))
    aside.write_bytes(b"")
    age(site, GRACE.total_seconds() - 60)
    assert sweep(site.database, site.warehouse) == 0
    age(site, GRACE.total_seconds() + 60)
    assert sweep(site.database, site.warehouse) == 2
    assert not run.exists()
    assert not aside.exists()


def test_the_file_of_a_batch_that_is_over_waits_for_its_readers_only(site: MergeSite) -> None:
    """One that nothing names may belong to a POST under way, and waits longer."""
    table = create_table(site.database, SUM | NO_HISTORY)
    merged = post(site.database, site.warehouse, {"id": 1, "n": 1})
    merge(site, table)
    staged = post(site.database, site.warehouse, {"id": 2, "n": 1})
    under_way = Path(site.warehouse.path(table.id, "staging", "another.parquet"))
    under_way.write_bytes(b"")
    age(site, FILED_GRACE.total_seconds() - 60)
    assert sweep(site.database, site.warehouse) == 0
    age(site, FILED_GRACE.total_seconds() + 60)
    assert sweep(site.database, site.warehouse) == 1
    assert {under_way.name, staged.file} < entries(site, table.id)
    assert merged.file not in entries(site, table.id)


def test_a_withdrawn_batch_is_gone_at_once(site: MergeSite) -> None:
    table = create_table(site.database)
    batch = post(site.database, site.warehouse, {"id": 1, "n": 1})
    withdraw_batch(site.database, site.warehouse, (table.database, table.name), batch.id)
    assert entries(site, table.id) == set()
    assert sweep(site.database, site.warehouse, NO_GRACE) == 0


def test_what_a_dropped_table_left_is_removed(site: MergeSite) -> None:
    table = create_table(site.database)
    batch = post(site.database, site.warehouse, {"id": 1, "n": 1})
    whole = Path(site.warehouse.path(table.id, "staging", batch.file)).read_bytes()
    drop_table(site.database, site.warehouse, ("shop", "wide"))
    assert not Path(site.warehouse.path(table.id)).exists()
    late = Path(site.warehouse.path(table.id, "staging"))
    late.mkdir(parents=True)
    (late / batch.file).write_bytes(whole)
    assert sweep(site.database, site.warehouse, NO_GRACE) == 1
    assert entries(site, table.id) == set()


def test_a_warehouse_that_was_never_used_is_swept_without_complaint(site: MergeSite) -> None:
    assert sweep(site.database, site.warehouse, NO_GRACE) == 0


def test_a_folder_that_is_no_tables_is_left_alone_whatever_is_in_it(site: MergeSite) -> None:
    """A bucket, or a disk, may hold more than the warehouse."""
    kept = [Path(site.warehouse.path(*path)) for path in (("archive", "runs", "1"), ("models", "staging"))]
    trial = Path(site.warehouse.path(f"trial-{'0f' * 16}", "runs", "left"))
    for folder in (*kept, trial):
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(b"")
    empty = Path(site.warehouse.path("lost+found"))
    empty.mkdir()
    age(site)
    assert sweep(site.database, site.warehouse, NO_GRACE) == 1
    assert sorted(empty.parent.rglob("part-0.parquet")) == [folder / "part-0.parquet" for folder in kept]
    assert empty.exists()
    assert not trial.exists()


def test_sweeps_may_run_at_the_same_time(site: MergeSite) -> None:
    table = create_table(site.database)
    folder = Path(site.warehouse.path(table.id, "runs"))
    for number in range(200):
        (folder / f"r{number}").mkdir(parents=True)
        (folder / f"r{number}" / "part.parquet").write_bytes(b"")
    with ThreadPoolExecutor(4) as pool:
        removed = [pool.submit(sweep, site.database, site.warehouse, NO_GRACE) for _ in range(4)]
        counts = [one.result() for one in removed]
    assert sum(counts) >= 200
    assert entries(site, table.id) == set()


FAR = {
    "partition.timestamp-pattern": "$day",
    "partition.expiration-time": "3650000 d",
    "catalog.history-retained": "3650000 d",
    "snapshot.time-retained": "3650000 d",
    "history.time-retained": "3650000 d",
    "tag.default-time-retained": "3650000 d",
}


@pytest.mark.parametrize("kept", ["1 d", "3650000 d"])
def test_times_near_the_ends_of_the_calendar_are_kept_and_stop_no_sweep(site: MergeSite, kept: str) -> None:
    columns, options = [("id", "BIGINT"), ("day", "DATE")], FAR | {"partition.expiration-time": kept}
    days = ["0001-01-01", "2024-01-01", "9999-12-31"]
    table = create_table(site.database, options, "far", columns, key=("id", "day"), partitions=("day",))
    merge(site, table, *({"id": 1, "day": day} for day in days))
    sweep(site.database, site.warehouse)
    left = sorted(json.loads(run.partition or "{}")["day"] for run in snapshot_of(site.database, table).runs)
    assert left == (["9999-12-31"] if kept == "1 d" else days)
    assert faults(site) == 0


def test_the_fault_of_one_table_ends_no_work_on_another(site: MergeSite) -> None:
    """The log of the first one's runs cannot be listed: it is a link to itself."""
    broken, well = (create_table(site.database, SUM | NO_HISTORY, name=name) for name in ("a", "b"))
    staged = post(site.database, site.warehouse, {"id": 1, "n": 1}, name="b")
    merge(site, well)
    folder = Path(site.warehouse.path(broken.id))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "staging").write_text("a file where a folder belongs")
    age(site)
    sweep(site.database, site.warehouse)
    assert staged.file not in entries(site, well.id)
    assert faults(site) == 1


def faults(site: MergeSite) -> float:
    totals = site.database.metrics.totals()
    return sum(sum(totals[Counted.UPKEEP_FAULTS, (work,)]) for work in Upkeep)
