"""Commits on whatever snapshot is current."""

from __future__ import annotations

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict
from app.core.table.history import Snapshot, SnapshotKind
from app.services.shared.commits import COMMIT_TRIES, Commit, commit_on_current
from tests.services.builders import create_table


class Writer:
    """Commits an empty snapshot on the current one; the first ``slower`` times somebody else does so before."""

    def __init__(self, database: CatalogDatabase, slower: int) -> None:
        self.database = database
        self.slower = slower
        self.table = create_table(database)
        self.bases: list[int | None] = []

    def prepare(self, _: Repository, base: Snapshot | None) -> Commit[Snapshot]:
        number = base.id if base else None
        self.bases.append(number)

        def commit(repository: Repository) -> Snapshot:
            return repository.snapshots.commit(self.table.id, number, [], SnapshotKind.PARTITION_DROP)

        if len(self.bases) <= self.slower:
            with self.database.transaction() as repository:
                commit(repository)
        return commit

    def run(self) -> Snapshot | None:
        return commit_on_current(self.database, self.table.id, self.prepare)


def test_a_commit_that_another_overtook_is_prepared_again(database: CatalogDatabase) -> None:
    writer = Writer(database, slower=2)
    made = writer.run()
    assert (made.id, writer.bases) == (3, [None, 1, 2])


def test_one_that_is_always_overtaken_ends(database: CatalogDatabase) -> None:
    writer = Writer(database, slower=COMMIT_TRIES)
    with pytest.raises(Conflict, match="other commits of the table came first; retry later"):
        writer.run()
    assert len(writer.bases) == COMMIT_TRIES


def test_a_conflict_about_something_else_is_raised_at_once(database: CatalogDatabase) -> None:
    table = create_table(database)
    tries = []

    def prepare(_: Repository, base: Snapshot | None) -> Commit[None]:
        def commit(_: Repository) -> None:
            tries.append(base)
            raise Conflict("the lease is lost")

        return commit

    with pytest.raises(Conflict, match="the lease is lost"):
        commit_on_current(database, table.id, prepare)
    assert tries == [None]


def test_nothing_to_commit_opens_no_transaction(database: CatalogDatabase) -> None:
    table = create_table(database)
    before = database.commits
    assert commit_on_current(database, table.id, lambda *_: None) is None
    assert database.commits == before
