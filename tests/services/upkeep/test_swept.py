"""What a sweep leaves: files of batches under way, and folders with something named or young by the files' clock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.tasks.claimed_tasks import ClaimedTask
from app.core.errors import Unavailable
from app.core.table.history import ChangelogFile, DataFile, Run, Table, TaskKind, TaskTrigger
from app.files.layout import Warehouse, run_folder
from app.files.writable import claim
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import GRACE, expire_snapshots, sweep
from lab.faults.places import Clock
from tests.catalog.builders import claim_next
from tests.services.builders import SUM, batches_of, create_table, post, totals
from tests.services.upkeep.test_sweeps import NO_GRACE, age


class SleepyDatabase(CatalogDatabase):
    """Calls ``before`` once, before the ``which``-th write transaction begins, and ``within`` before that commits."""

    def __init__(
        self,
        url: str,
        which: int = 1,
        before: Callable[[], object] = lambda: None,
        within: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(url)
        self._left, self._before, self._within = which, before, within

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        self._left -= 1
        chosen = self._left == 0
        if chosen:
            self._before()
        with super().transaction(wakes=wakes) as repository:
            yield repository
            if chosen:
                self._within()


def test_a_batch_whose_file_was_swept_before_its_commit_is_not_acknowledged(
    catalog_url: str, site: MergeSite, images: Images
) -> None:
    table = create_table(site.database)

    def sleep() -> None:
        age(site)
        assert sweep(site.database, site.warehouse) == 1

    sleepy = SleepyDatabase(catalog_url, before=sleep)
    with pytest.raises(Unavailable, match="nothing was accepted; retry"):
        post(sleepy, site.warehouse, {"id": 1, "n": 1}, key="once")
    assert batches_of(site.database, table) == []
    assert post(sleepy, site.warehouse, {"id": 1, "n": 1}, key="once").number == 1
    assert totals(site.database, images, table, [1], latest=True) == [1]
    sleepy.close()


def test_a_file_that_a_sweep_found_unnamed_is_looked_up_again_when_its_batch_is_in_the_catalog(
    catalog_url: str, site: MergeSite, images: Images
) -> None:
    """The sweep lists the file, then sleeps; the batch is committed; the sweep wakes."""
    table = create_table(site.database)
    listed, committed = threading.Event(), threading.Event()

    def sleep() -> None:
        listed.set()
        assert committed.wait(60)

    sleepy = SleepyDatabase(catalog_url, which=2, before=sleep)  # the first one expires snapshots

    def sweep_meanwhile() -> None:
        age(site)
        sweeping.append(pool.submit(sweep, sleepy, site.warehouse))
        assert listed.wait(60)

    sweeping: list[object] = []
    with ThreadPoolExecutor(1) as pool:
        posting = SleepyDatabase(catalog_url, before=sweep_meanwhile)
        post(posting, site.warehouse, {"id": 1, "n": 1})
        committed.set()
    assert totals(site.database, images, table, [1], latest=True) == [1]
    posting.close()
    sleepy.close()


def test_a_sweep_waits_for_a_commit_that_has_looked_for_its_file(
    catalog_url: str, site: MergeSite, images: Images
) -> None:
    table = create_table(site.database)

    def sweep_meanwhile() -> None:
        age(site)
        sweeping = pool.submit(sweep, site.database, site.warehouse)
        wait([sweeping], timeout=1.0)  # it would be done by now if it did not wait

    with ThreadPoolExecutor(1) as pool:
        posting = SleepyDatabase(catalog_url, within=sweep_meanwhile)
        post(posting, site.warehouse, {"id": 1, "n": 1})
    assert totals(site.database, images, table, [1], latest=True) == [1]
    posting.close()


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
        found = claim_next(repository, "worker", 600, kind)
    assert found is not None
    return found


def commit(site: MergeSite, table: Table, *run_ids: str, changelog: tuple[str, ...] = (), keep: bool = False) -> None:
    """A snapshot of runs and changelog files with these ids and names; the ones before it expire unless ``keep``."""
    runs = [Run(run_id, 0, (DataFile("part.parquet", 1, 4, 0, 0),)) for run_id in run_ids]
    files = [ChangelogFile(name, 1, 4) for name in changelog]
    merge = claimed(site, table)
    base = merge.base.id if merge.base else None
    with site.database.transaction() as repository:
        repository.claimed_tasks.commit_merge(
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
        repository.claimed_tasks.fail(running.task.id, "worker", "no luck")
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


def test_an_expired_run_is_young_before_another_worker_sees_that_nothing_names_it(
    catalog_url: str, site: MergeSite
) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = create_table(site.database, SUM | options)
    old = write(site, table, "runs", "old", "part.parquet", age=DAY).parent
    for run_id in ("old", "new"):
        commit(site, table, run_id, keep=True)
    seen = []
    database = SleepyDatabase(catalog_url, within=lambda: seen.append(old.stat().st_mtime > time.time() - DAY / 2))
    expire_snapshots(database, site.warehouse)
    database.close()
    assert seen == [True]
    assert sweep(site.database, site.warehouse) == 0


SWEEP = """
import sys
from datetime import UTC, datetime
from app.catalog.database import CatalogDatabase
from app.services.upkeep.sweeps import sweep
from app.files.layout import Warehouse
database = CatalogDatabase(sys.argv[1])
print(datetime.now(UTC).timestamp(), sweep(database, Warehouse(sys.argv[2], marked=True)))
database.close()
"""


@pytest.mark.slow(reason="starts a process")
def test_a_young_file_is_young_by_the_file_systems_clock(
    database: CatalogDatabase, catalog_url: str, tmp_path: Path
) -> None:
    clock = Clock.made(tmp_path)
    if clock.why_not:
        pytest.skip(clock.why_not)
    warehouse = Warehouse(str(tmp_path / "warehouse"), marked=True)
    claim(warehouse)
    table = create_table(database)
    folders = [Path(warehouse.path(*run_folder(table.id, name))) for name in ("young", "old")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "part-00000.parquet").write_bytes(b"rows")
    for path in (folders[1] / "part-00000.parquet", folders[1]):
        os.utime(path, (path.stat().st_mtime - 4000,) * 2)
    command = [sys.executable, "-c", SWEEP, catalog_url, warehouse.root]
    environment = {**os.environ, **clock.environment(tmp_path)}
    with clock.ahead(1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    reported, removed = done.stdout.split()
    assert float(reported) > folders[0].stat().st_mtime + 3000, "its clock is ahead"
    assert (removed, [folder.exists() for folder in folders]) == ("1", [True, False])
