"""Compactions: what the policy picks, what merges beside them cannot break, what a failure leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.shared.models import snapshots
from app.core.errors import Conflict, Unavailable
from app.core.table.history import DataFile, Run, SnapshotKind, Table, TaskKind, TaskState, TaskTrigger
from app.services.merging.compactions import replaced
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.services.builders import (
    SUM,
    compact,
    create_table,
    merge,
    request_compaction,
    run_next_compaction,
    snapshot_of,
    tasks_of,
    totals,
)
from tests.services.executor import InterruptedExecutor, PythonExecutor


def run_ids(site: MergeSite, table: Table) -> list[str]:
    return [run.id for run in snapshot_of(site.database, table).runs]


def test_a_merge_asks_for_a_compaction_once_the_runs_reach_the_trigger(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "3"})
    for number in range(1, 3):
        merge(site, table, {"id": 1, "n": 1}, {"id": number, "n": 0})
        assert not run_next_compaction(site, "compactor")
    merge(site, table, {"id": 1, "n": 1})
    assert len(run_ids(site, table)) == 3
    assert run_next_compaction(site, "compactor")
    done = tasks_of(site.database, table, TaskKind.COMPACTION)[0]
    snapshot = snapshot_of(site.database, table)
    assert (done.state, done.trigger, done.snapshot_id) == (TaskState.SUCCEEDED, TaskTrigger.RUNS, snapshot.id)
    assert [run.full for run in snapshot.runs] == [True]
    assert totals(site.database, images, table, [1, 2]) == [3, 0]
    assert not run_next_compaction(site, "compactor")


class GoneOnceCompacted(CatalogDatabase):
    """A catalog that answers no more once a compaction is committed, as for a process that is killed then."""

    gone = False

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        if self.gone:
            raise Unavailable("the process is killed")
        with super().transaction(wakes=wakes) as repository:
            yield repository
            kinds = repository.transaction.execute(sa.select(snapshots.c.kind)).scalars()
            self.gone = SnapshotKind.COMPACTION in kinds


def test_a_compaction_is_over_with_its_last_commit(site: MergeSite, catalog_url: str, tmp_path: Path) -> None:
    table = create_table(site.database)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    request_compaction(site.database, table)
    killed = GoneOnceCompacted(catalog_url, folder=tmp_path)
    assert run_next_compaction(replace(site, database=killed), "compactor")
    killed.close()
    assert killed.gone
    assert len(run_ids(site, table)) == 1
    assert tasks_of(site.database, table, TaskKind.COMPACTION)[0].state is TaskState.SUCCEEDED


def test_small_new_runs_are_combined_and_the_large_old_one_is_left_alone(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "3"})
    merge(site, table, *({"id": number, "n": 1} for number in range(900)))
    oldest = run_ids(site, table)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    assert run_next_compaction(site, "compactor")
    assert run_ids(site, table)[:1] == oldest
    assert len(run_ids(site, table)) == 2
    assert totals(site.database, images, table, [0, 1]) == [1, 3]


def test_a_compaction_that_is_requested_takes_all_runs_and_a_compacted_table_is_left_alone(
    site: MergeSite, executor: PythonExecutor
) -> None:
    table = create_table(site.database)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    compact(site, table)
    [only] = run_ids(site, table)
    assert compact(site, table).state is TaskState.SUCCEEDED
    assert (run_ids(site, table), executor.compactions) == ([only], 1)


def test_full_compactions_come_after_as_many_merges_as_the_table_says(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"full-compaction.delta-commits": "2"})
    counts = []
    for _ in range(4):
        merge(site, table, {"id": 1, "n": 1})
        run_next_compaction(site, "compactor")
        counts.append(len(run_ids(site, table)))
    assert counts == [1, 1, 2, 1]


def test_a_merge_that_comes_during_a_compaction_stays_on_top_of_it(site: MergeSite, images: Images) -> None:
    table = create_table(site.database)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    busy = InterruptedExecutor(lambda: merge(site, table, {"id": 1, "n": 100}), in_compaction=True)
    compact(replace(site, executor=busy), table)
    assert len(run_ids(site, table)) == 2
    assert totals(site.database, images, table, [1]) == [102]


def test_a_compaction_whose_runs_are_gone_changes_nothing(site: MergeSite, images: Images) -> None:
    """Its lease ran out, another worker was faster: what it wrote is garbage."""
    table = create_table(site.database)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})

    def faster() -> None:
        running = tasks_of(site.database, table, TaskKind.COMPACTION)[0]
        with site.database.transaction() as repository:
            repository.claimed_tasks.renew(running.id, "late", -1)
        assert run_next_compaction(site, "rival")

    request_compaction(site.database, table)
    late = InterruptedExecutor(faster, in_compaction=True)
    assert run_next_compaction(replace(site, executor=late), "late")
    current = snapshot_of(site.database, table)
    assert (current.id, len(current.runs)) == (3, 1)
    assert tasks_of(site.database, table, TaskKind.COMPACTION)[0].state is TaskState.SUCCEEDED
    assert totals(site.database, images, table, [1]) == [2]


def run(name: str, size: int = 100, *, partition: str | None = None, full: bool = False) -> Run:
    return Run(name, 0, (DataFile(f"{name}.parquet", 1, size, 0, 0),), partition, full)


def test_compacted_runs_take_the_place_of_those_they_were_made_of() -> None:
    runs = [run(name, partition=name[0]) for name in ("a1", "b1", "a2", "b2", "a3")]
    left = replaced(runs, [["a1", "a2"]], [run("a", partition="a")])
    assert [one.id for one in left] == ["a", "b1", "b2", "a3"]
    assert [one.id for one in replaced(runs, [["b1", "b2"]], [])] == ["a1", "a2", "a3"]
    for gone in ([["a1", "a3"]], [["a1", "x"]]):
        with pytest.raises(Conflict):
            replaced(runs, gone, [run("a", partition="a")])
