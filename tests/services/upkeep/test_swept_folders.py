"""What the sweep makes of folders: runs of partitions, changelogs, and what a merge under way still writes."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from app.catalog.tasks.leases import ClaimedTask
from app.core.table.history import ChangelogFile, DataFile, Run, Table, TaskKind, TaskTrigger
from app.services.merging.merges import MergeSite
from app.services.upkeep.sweeps import GRACE, sweep
from tests.services.builders import SUM, create_table

NO_GRACE = timedelta(0)
DAY = 86400


def write(site: MergeSite, table: Table, *segments: str, age: float = 0) -> Path:
    """A file below the table's folder that looks ``age`` seconds old, like all folders it is in."""
    path = Path(site.warehouse.path(table.id, *segments))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    for entry in (path, *path.parents[: len(segments)]):
        os.utime(entry, (time.time() - age,) * 2)
    return path


def claimed(site: MergeSite, table: Table, kind: TaskKind = TaskKind.MERGE) -> ClaimedTask:
    """A merge or compaction of the table that runs now."""
    with site.database.transaction() as repository:
        repository.tasks.request(table.id, TaskTrigger.REQUEST, kind)
        found = repository.leases.claim("worker", 600, kind)
    assert found is not None
    return found


def commit(site: MergeSite, table: Table, *run_ids: str, changelog: tuple[str, ...] = (), keep: bool = False) -> None:
    """A snapshot of runs and changelog files with these ids and names; the ones before it expire unless ``keep``."""
    runs = [Run(run_id, 0, (DataFile("part.parquet", 1, 4, 0, 0),)) for run_id in run_ids]
    files = [ChangelogFile(name, 1, 4) for name in changelog]
    merge = claimed(site, table)
    base = merge.base.id if merge.base else None
    with site.database.transaction() as repository:
        repository.leases.commit_merge(
            merge.task.id, "worker", runs, base_snapshot_id=base, rows=1, records=0, changelog=files
        )
        if not keep:
            repository.snapshots.expire(table.id, [])


def test_a_folder_of_partitions_stays_while_one_of_its_runs_is_named(site: MergeSite) -> None:
    table = create_table(site.database)
    one, two = (
        write(site, table, "runs", "u", f"_kf_partition={value}", "p.parquet", age=DAY) for value in ("aa", "bb")
    )
    other = write(site, table, "runs", "whole", "p.parquet", age=DAY)
    commit(site, table, "u.aa", "u.bb", "whole")
    assert sweep(site.database, site.warehouse) == 0
    commit(site, table, "u.bb")
    assert sweep(site.database, site.warehouse) == 2
    assert (one.parent.exists(), two.exists(), other.parent.exists()) == (False, True, False)
    commit(site, table, "new")
    assert sweep(site.database, site.warehouse) == 0  # what was removed inside made the folder young
    os.utime(two.parent.parent, (time.time() - DAY,) * 2)
    assert sweep(site.database, site.warehouse) == 1
    assert not two.parent.parent.exists()


def test_a_partition_that_is_still_written_stays(site: MergeSite) -> None:
    table = create_table(site.database)
    commit(site, table, "u.aa")
    write(site, table, "runs", "u", "_kf_partition=aa", "p.parquet", age=DAY)
    young = write(site, table, "runs", "u", "_kf_partition=bb", "p.parquet")
    assert sweep(site.database, site.warehouse) == 0
    assert young.exists()


def test_changelogs_stay_while_a_snapshot_names_one_of_their_files(site: MergeSite) -> None:
    table = create_table(site.database)
    named = write(site, table, "changelog", "c1", "a.parquet", age=DAY)
    garbage = write(site, table, "changelog", "c2", "a.parquet", age=DAY)
    young = write(site, table, "changelog", "c3", "a.parquet", age=GRACE.total_seconds() - 60)
    commit(site, table, "r", changelog=("c1/a.parquet",))
    assert sweep(site.database, site.warehouse) == 1
    assert (named.exists(), garbage.parent.exists(), young.exists()) == (True, False, True)
    commit(site, table, "r")
    assert sweep(site.database, site.warehouse) == 1
    assert not named.parent.exists()


@pytest.mark.parametrize("kind", TaskKind)
def test_what_a_running_merge_may_write_stays_however_long_it_takes(site: MergeSite, kind: TaskKind) -> None:
    table = create_table(site.database)
    running = claimed(site, table, kind)
    folders = [write(site, table, folder, "under-way", "_temporary", "p.parquet") for folder in ("runs", "changelog")]
    older = write(site, table, "runs", "older", "p.parquet", age=DAY)
    assert sweep(site.database, site.warehouse, NO_GRACE) == 1
    assert not older.parent.exists()
    assert all(path.exists() for path in folders)
    with site.database.transaction() as repository:
        repository.leases.fail(running.task.id, "worker", "no luck")
    assert sweep(site.database, site.warehouse, NO_GRACE) == 2
    assert not any(path.exists() for path in folders)


def test_a_folder_is_as_young_as_the_youngest_file_far_below_it(site: MergeSite) -> None:
    table = create_table(site.database)
    file = write(site, table, "runs", "r", "_temporary", "0", "task", "p.parquet", age=DAY)
    os.utime(file, (time.time() - 60,) * 2)
    assert sweep(site.database, site.warehouse) == 0
    os.utime(file, (time.time() - DAY,) * 2)
    assert sweep(site.database, site.warehouse) == 1


def test_what_expired_stays_for_its_readers_until_the_grace_is_over(site: MergeSite) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = create_table(site.database, SUM | options | {"num-sorted-run.compaction-trigger": "99"})
    for run_id in ("old", "new"):
        write(site, table, "runs", run_id, "part.parquet", age=DAY)
    for run_id in ("old", "new"):
        commit(site, table, run_id, keep=True)
    assert sweep(site.database, site.warehouse) == 0
    folder = Path(site.warehouse.path(table.id, "runs", "old"))
    with site.database.reading() as repository:
        assert repository.snapshots.live_run_ids(table.id) == {(table.id, "new")}
    for entry in (*folder.iterdir(), folder):
        os.utime(entry, (time.time() - DAY,) * 2)
    assert sweep(site.database, site.warehouse) == 1
    assert not folder.exists()
