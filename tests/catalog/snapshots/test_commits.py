"""Which snapshots a reader of the changelog can read without a gap, and what brought them."""

from __future__ import annotations

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Commit
from app.core.table.history import SnapshotKind
from tests.catalog.builders import create_table
from tests.catalog.snapshots.test_snapshots import grow


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


def test_a_commit_is_its_snapshot_without_runs(database: CatalogDatabase) -> None:
    table = create_table(database)
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
