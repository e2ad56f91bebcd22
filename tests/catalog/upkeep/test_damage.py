"""Damage that is kept: noted once, listed while somebody needs the file, forgotten when it is well."""

from __future__ import annotations

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Batch, ChangelogFile, SnapshotKind, Table
from app.core.table.upkeep.damage import DamagedFile, DamageReason, FileKind, NamedFile
from tests.catalog.builders import post, run


def staging_file(batch: Batch) -> NamedFile:
    path = f"{batch.table_id}/staging/{batch.file}"
    owner = {"batch_id": batch.id, "batch_number": batch.number}
    return NamedFile(FileKind.STAGING, batch.table_id, path, 100, "00ff", **owner)


def data_file(table: Table, run_id: str) -> NamedFile:
    return NamedFile(FileKind.RUN, table.id, f"{table.id}/runs/{run_id}/f", 100, "00ff", b"12345678", run_id=run_id)


def changelog_file(table: Table, number: int) -> NamedFile:
    return NamedFile(FileKind.CHANGELOG, table.id, f"{table.id}/changelog/c/f", 100, snapshot_id=number)


def note(database: CatalogDatabase, *found: DamagedFile) -> None:
    with database.transaction() as repository:
        repository.damage.note(found)


def listed(database: CatalogDatabase, table: Table) -> list[tuple[str, str]]:
    with database.reading() as repository:
        return [(one.path, one.found) for one in repository.damage.page(table.id, limit=10)]


def missing(file: NamedFile) -> DamagedFile:
    return DamagedFile(file, DamageReason.MISSING, "no file")


def test_a_damage_says_whose_file_it_is_and_when_it_was_first_found(database: CatalogDatabase, table: Table) -> None:
    file = staging_file(post(database, table))
    note(database, DamagedFile(file, DamageReason.WRONG_SIZE, "7 bytes"))
    with database.reading() as repository:
        [first] = repository.damage.page(table.id, limit=10)
    assert (first.path, first.kind, first.reason) == (file.path, FileKind.STAGING, DamageReason.WRONG_SIZE)
    assert (first.expected, first.found) == ("100 bytes, xxh3-128 00ff", "7 bytes")
    assert (first.batch_id, first.batch_number, first.run_id) == (file.batch_id, file.batch_number, None)
    note(database, missing(file))
    with database.reading() as repository:
        [again] = repository.damage.page(table.id, limit=10)
    assert (again.reason, again.found, again.found_at) == (DamageReason.MISSING, "no file", first.found_at)


def test_only_the_same_finding_is_known(database: CatalogDatabase, table: Table) -> None:
    file = staging_file(post(database, table))
    note(database, missing(file))
    with database.reading() as repository:
        assert repository.damage.is_recorded(missing(file))
        assert not repository.damage.is_recorded(DamagedFile(file, DamageReason.WRONG_SIZE, "7 bytes"))
        assert not repository.damage.is_recorded(missing(staging_file(post(database, table))))


def test_damage_is_listed_while_somebody_needs_the_file(database: CatalogDatabase, table: Table) -> None:
    batch = post(database, table)
    with database.transaction() as repository:
        repository.snapshots.commit(
            table.id, None, [run("r1")], SnapshotKind.MERGE, changelog=[ChangelogFile("c/f", 1, 100)]
        )
    files = [changelog_file(table, 1), data_file(table, "r1"), staging_file(batch)]
    note(database, *map(missing, files))
    assert listed(database, table) == [(file.path, "no file") for file in files]
    with database.transaction() as repository:
        assert [repository.damage.is_needed(file) for file in files] == [True] * 3
        repository.batches.delete_staged(table.id, batch.id)
        repository.snapshots.commit(table.id, 1, [run("r2")], SnapshotKind.COMPACTION)
        repository.snapshots.expire(table.id, [])
    assert listed(database, table) == []
    with database.transaction() as repository:
        assert [repository.damage.is_needed(file) for file in files] == [False] * 3
        assert repository.damage.paths() == {table.id: {file.path for file in files}}
        assert repository.damage.forget_unneeded() == 3
        assert repository.damage.paths() == {}


def test_what_is_well_again_is_forgotten_and_nothing_else(database: CatalogDatabase, table: Table) -> None:
    files = [staging_file(post(database, table)) for _ in range(3)]
    note(database, *map(missing, files))
    with database.transaction() as repository:
        repository.damage.clear(table.id, [files[0].path, "another"])
    assert {path for path, _ in listed(database, table)} == {file.path for file in files[1:]}


def test_a_list_goes_on_behind_a_path(database: CatalogDatabase, table: Table) -> None:
    paths = sorted(file.path for file in [staging_file(post(database, table)) for _ in range(3)])
    with database.reading() as repository:
        batches = repository.batches.staged(table.id)
    note(database, *(missing(staging_file(batch)) for batch in batches))
    with database.reading() as repository:
        assert [one.path for one in repository.damage.page(table.id, limit=2)] == paths[:2]
        assert [one.path for one in repository.damage.page(table.id, after=paths[1], limit=2)] == paths[2:]


def test_a_dropped_table_takes_its_damage_along(database: CatalogDatabase, table: Table) -> None:
    file = staging_file(post(database, table))
    note(database, missing(file))
    with database.transaction() as repository:
        repository.tables.drop("shop", table.name)
    note(database, missing(file))
    with database.reading() as repository:
        assert repository.damage.paths() == {}


@pytest.mark.parametrize("kind", FileKind)
def test_of_every_kind_of_file_it_is_known_whether_somebody_needs_it(database: CatalogDatabase, kind: FileKind) -> None:
    with database.reading() as repository:
        assert not repository.damage.is_needed(NamedFile(kind, "t1", "t1/f", 1))
