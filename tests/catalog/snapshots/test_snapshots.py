"""Snapshots, runs and data files of the catalog."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Commit
from app.catalog.shared.models import data_files, runs
from app.core.errors import Conflict
from app.core.table.history import Snapshot, SnapshotKind, Table
from tests.catalog.builders import commit, create_table, request_and_claim, run


def grow(database: CatalogDatabase, table: Table, *names: str) -> list[Snapshot]:
    """A snapshot per name, each with one run more than the one before."""
    kept = [run(name) for name in names]
    return [commit(database, request_and_claim(database, table), kept[: count + 1]) for count in range(len(names))]


def test_a_table_without_a_commit_has_no_snapshot(database: CatalogDatabase, table: Table) -> None:
    with database.reading() as repository:
        assert repository.snapshots.current(table.id) is None
        assert repository.snapshots.current("no table") is None
        assert repository.snapshots.page(table.id, limit=9) == []


def test_every_snapshot_is_read_back_with_its_runs_and_files_in_order(database: CatalogDatabase) -> None:
    table, other = create_table(database), create_table(database, "other")
    grow(database, other, "z", "y")
    first, second, third = grow(database, table, "z", "a", "m")
    with database.reading() as repository:
        assert repository.snapshots.get(table.id, 1) == first
        assert repository.snapshots.get(table.id, 2) == second
        assert repository.snapshots.current(table.id) == third
        assert third.runs == (run("z"), run("a"), run("m"))
        assert third.runs[0].files[0].min_token == -(2**63)


def test_a_run_that_snapshots_share_is_stored_once(database: CatalogDatabase) -> None:
    grow(database, create_table(database), "a", "b", "c")
    with database.reading() as repository:
        assert repository.transaction.execute(sa.select(sa.func.count()).select_from(runs)).scalar() == 3
        assert repository.transaction.execute(sa.select(sa.func.count()).select_from(data_files)).scalar() == 6


def test_pages_of_snapshots_cover_all_of_them_newest_first(database: CatalogDatabase, table: Table) -> None:
    made = grow(database, table, "a", "b", "c", "d", "e")
    with database.reading() as repository:
        assert repository.snapshots.page(table.id, limit=2) == [made[4], made[3]]
        assert repository.snapshots.page(table.id, after=4, limit=2) == [made[2], made[1]]
        assert repository.snapshots.page(table.id, after=2, limit=2) == [made[0]]
        assert repository.snapshots.page(table.id, after=1, limit=2) == []
        assert repository.snapshots.page(table.id, after=-(10**30), limit=2) == []


def test_one_of_many_commits_on_one_base_wins(database: CatalogDatabase, table: Table) -> None:
    grow(database, table, "a")

    def compact(number: int) -> bool:
        try:
            with database.transaction() as repository:
                repository.snapshots.commit(table.id, 1, [run(f"c{number}")], SnapshotKind.COMPACTION)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(compact, range(16))) == 1


def test_a_reader_keeps_the_snapshot_that_it_began_with(database: CatalogDatabase, table: Table) -> None:
    [first] = grow(database, table, "a")
    with database.reading() as repository:
        assert repository.snapshots.current(table.id) == first
        with database.transaction() as writer:
            writer.snapshots.commit(table.id, 1, [run("c")], SnapshotKind.COMPACTION)
            writer.snapshots.expire(table.id, [])
        assert repository.snapshots.current(table.id) == first
    with database.reading() as repository:
        current = repository.snapshots.current(table.id)
        assert current.runs == (run("c"),)


def test_expired_snapshots_take_the_runs_that_only_they_named(database: CatalogDatabase) -> None:
    table, other = create_table(database), create_table(database, "other")
    grow(database, other, "a", "b")
    grow(database, table, "a", "b")
    with database.transaction() as repository:
        current = repository.snapshots.commit(table.id, 2, [run("b"), run("c")], SnapshotKind.COMPACTION)
    with database.transaction() as repository:
        assert repository.snapshots.expire(table.id, [2, 77]) == [1]
        assert {(table.id, "a"), (other.id, "a")} <= repository.snapshots.live_run_ids()
        assert repository.snapshots.expire(table.id, []) == [2]
        assert repository.snapshots.expire(table.id, []) == []
        assert repository.snapshots.live_run_ids() == {
            (table.id, "b"),
            (table.id, "c"),
            (other.id, "a"),
            (other.id, "b"),
        }
        assert repository.snapshots.current(table.id) == current
        files = sa.select(data_files.c.run_id).where(data_files.c.table_id == table.id).distinct()
        assert set(repository.transaction.execute(files).scalars()) == {"b", "c"}


def test_snapshots_are_kept_up_to_the_current_one_without_a_gap(database: CatalogDatabase) -> None:
    table, other = create_table(database), create_table(database, "other")
    with database.reading() as repository:
        assert not repository.commits.kept(table.id)
        assert not repository.commits.kept("no table")
    grow(database, table, *"abcdef")
    grow(database, other, *"ab")
    with database.transaction() as repository:
        assert repository.commits.kept(table.id) == range(1, 7)
        repository.tags.create(table.id, "kept", 2, None)
        repository.snapshots.expire(table.id, [4, 5, 6])
        assert repository.commits.kept(table.id) == range(4, 7)
        assert repository.commits.kept(other.id) == range(1, 3)


def test_a_commit_is_its_snapshot_without_runs(database: CatalogDatabase, table: Table) -> None:
    [snapshot] = grow(database, table, "a")
    with database.reading() as repository:
        commit = repository.commits.find(table.id, 1)
        assert commit == Commit(1, SnapshotKind.MERGE, snapshot.schema_id, snapshot.committed_at)
        assert [run.changed_at for run in repository.snapshots.get(table.id, 1).runs] == [commit.committed_at]
        assert repository.commits.find(table.id, 2) is None


def test_heads_are_told_of_the_tables_that_exist(database: CatalogDatabase) -> None:
    table, empty = create_table(database), create_table(database, "other")
    grow(database, table, *"ab")
    with database.reading() as repository:
        heads = repository.commits.heads({table.id, empty.id, "no table"})
    assert heads == {table.id: 2, empty.id: 0}
