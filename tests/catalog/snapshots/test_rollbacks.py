"""Rollbacks of the catalog: new snapshots with old runs, beside merges, compactions and readers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import Conflict, ErrorCode, NotFound
from app.core.table.history import Snapshot, SnapshotKind, Table
from tests.catalog.builders import grow, run


def roll_back(database: CatalogDatabase, table: Table, number: int, base: int | None = None) -> Snapshot:
    with database.transaction() as repository:
        return repository.snapshots.roll_back(table.id, number, base_snapshot_id=base)


def test_a_rollback_is_a_new_snapshot_with_the_runs_of_the_old_one(database: CatalogDatabase, table: Table) -> None:
    first, _, third = grow(database, table, "a", "b", "c")
    made = roll_back(database, table, 1)
    assert (made.id, made.kind, made.runs, made.merge_id) == (4, SnapshotKind.ROLLBACK, first.runs, None)
    with database.reading() as repository:
        [rewrite] = repository.rewrites.after(table.id)
    assert (rewrite.snapshot_id, rewrite.kind, rewrite.restored_from) == (4, SnapshotKind.ROLLBACK, 1)
    assert roll_back(database, table, 3).runs == third.runs
    with database.reading() as repository:
        current = repository.snapshots.current(table.id)
        assert (current.id, current.runs) == (5, third.runs)
        assert repository.tables.written(table.id).compacted == 0


def test_a_rollback_names_a_snapshot_that_exists(database: CatalogDatabase, table: Table) -> None:
    for number in (1, 0):
        with pytest.raises(NotFound) as missing:
            roll_back(database, table, number)
        assert "nothing was merged yet" in missing.value.message
    with pytest.raises(NotFound) as gone, database.transaction() as repository:
        repository.snapshots.roll_back("none", 1)
    assert gone.value.code is ErrorCode.TABLE_NOT_FOUND


def test_merges_and_rollbacks_at_the_same_time_are_one_after_the_other(database: CatalogDatabase, table: Table) -> None:
    grow(database, table, "first")

    def append(number: int) -> None:
        """What a merge does at its end: its run on top of whatever is current by then."""
        while True:
            with database.reading() as repository:
                base = repository.snapshots.current(table.id)
            assert base is not None
            try:
                with database.transaction() as repository:
                    new = (*base.runs, run(f"m{number}"))
                    repository.snapshots.commit(table.id, base.id, new, SnapshotKind.MERGE)
                return
            except Conflict:
                continue

    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(append, number) for number in range(12)]
        done += [threads.submit(roll_back, database, table, 1) for _ in range(6)]
        assert [one.result() for one in done]
    with database.reading() as repository:
        history = list(reversed(repository.snapshots.page(table.id, limit=99)))
    assert [snapshot.id for snapshot in history] == list(range(1, 20))
    for before, after in pairwise(history):
        appended = after.runs[:-1] == before.runs and after.kind is SnapshotKind.MERGE
        assert appended or (after.runs == history[0].runs and after.kind is SnapshotKind.ROLLBACK)


def test_a_compaction_of_runs_that_were_rolled_back_gives_up(database: CatalogDatabase, table: Table) -> None:
    grow(database, table, "a", "b")
    roll_back(database, table, 1)
    with pytest.raises(Conflict), database.transaction() as repository:
        repository.snapshots.commit(table.id, 2, [run("compacted")], SnapshotKind.COMPACTION)
    with pytest.raises(Conflict):
        roll_back(database, table, 2, base=2)
    assert roll_back(database, table, 2, base=3).id == 4
