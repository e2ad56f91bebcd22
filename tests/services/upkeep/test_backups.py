"""Backups: everything that the catalog names, from a running service, put back into an empty folder and compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.dumps import dump
from app.core.errors import Conflict, Invalid
from app.core.table.history import Table
from app.core.table.published import Format
from app.files.layout import Warehouse
from app.services.explaining.history import KeptRecord, file_history
from app.services.publishing.publications import keep_versions
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.upkeep.backups import Backup, back_up, restore
from app.services.upkeep.sweeps import sweep
from app.storage.backup_folder import BackupFolder
from tests.delta_readers import READERS
from tests.services import builders
from tests.services.builders import NO_HISTORY, QUIET, SUM, compact, create_table, later, post, totals
from tests.services.damaged import flip
from tests.services.kept import kept_of
from tests.services.publishing.delta_logs import PUBLISHED, log_of, publish, read
from tests.services.upkeep.test_sweeps import NO_GRACE, age

Told = Callable[[str], None]
KEYS = list(range(6))


def merge(site: MergeSite, table: Table, *keys: int) -> None:
    for key in keys:
        post(site.database, site.warehouse, {"id": key, "n": 1})
    builders.merge(site, table)


def taken(site: MergeSite, target: BackupFolder, reported: Told = lambda _: None) -> Backup:
    return back_up(site.database, site.warehouse, target, "1.2.3", reported)


def rows(database: CatalogDatabase) -> list[str]:
    with database.reading() as repository:
        dumped = list(dump(repository.transaction))
    return [line for line in dumped if not line.startswith('["backed_up"')]  # when, which no backup of that time has


@pytest.fixture
def target(tmp_path: Path) -> BackupFolder:
    return BackupFolder(tmp_path / "backups")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[tuple[CatalogDatabase, Warehouse]]:
    """Where backups are put back: another kind of catalog than half of them come from."""
    database = CatalogDatabase(f"sqlite:///{tmp_path / 'new' / 'catalog.sqlite'}")
    yield database, Warehouse(str(tmp_path / "new" / "warehouse"))
    database.close()


def put_back(source: BackupFolder, empty: tuple[CatalogDatabase, Warehouse], name: str | None = None) -> None:
    assert restore(source, name, *empty, lambda _: None).version == "1.2.3"


def history(database: CatalogDatabase, warehouse: Warehouse, table: Table) -> Sequence[KeptRecord]:
    return kept_of(database, warehouse, table, 2).records


def files_in(warehouse: Warehouse) -> dict[str, bytes]:
    root = Path(warehouse.path())
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_is_put_back_is_what_was_there(
    site: MergeSite, images: Images, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse], tmp_path: Path
) -> None:
    """Merged, compacted, staged, with a tag of an older snapshot."""
    table = create_table(site.database, SUM | QUIET)
    merge(site, table, 1, 2)
    with site.database.transaction() as repository:
        repository.tags.create(table.id, "first", 1, None)
    merge(site, table, 2, 3)
    file_history(site.database, site.warehouse, table)
    merge(site, table, 2)
    compact(site, table)
    post(site.database, site.warehouse, {"id": 4, "n": 7}, key="staged")
    before = totals(site.database, images, table, KEYS, latest=True)
    records = history(site.database, site.warehouse, table)
    assert len(records) == 3
    taken(site, target)
    put_back(target, empty)
    database, warehouse = empty
    assert rows(database) == rows(site.database)
    there, kept = files_in(warehouse), files_in(site.warehouse)
    assert there.keys() <= kept.keys()
    assert {path: kept[path] for path in there} == there
    restored = Images(tmp_path / "restored images", warehouse)
    assert totals(database, restored, table, KEYS, latest=True) == before
    restored.close()
    assert history(database, warehouse, table) == records
    again = MergeSite(database, warehouse, site.executor, lease_seconds=600)
    merge(again, table, 4)
    assert post(database, warehouse, {"id": 4, "n": 7}, key="staged").number == 6, "a key is still known"


@pytest.mark.slow(reason="makes several backups")
def test_files_are_copied_once_and_forgotten_with_the_last_backup_that_names_them(
    site: MergeSite, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse]
) -> None:
    table = create_table(
        site.database, SUM | QUIET | NO_HISTORY | {"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 s"}
    )
    merge(site, table, 1)
    first = taken(site, target)
    assert (first.files, first.copied) == (1, 1)
    merge(site, table, 2)
    second = taken(site, target)
    assert (second.files, second.copied) == (2, 1)
    assert taken(site, target).copied == 0
    names = target.names()
    assert target.forget_all_but(2) == 0
    with pytest.raises(Invalid, match="has no backup"):
        restore(target, names[0], *empty, lambda _: None)
    compact(site, table)
    age(site)
    with site.database.transaction() as repository:
        repository.snapshots.expire(table.id, [3])
    taken(site, target)
    assert target.forget_all_but(1) == 2, "both runs before the compaction"
    put_back(target, empty)


def test_a_backup_that_removes_old_ones_leaves_the_files_of_one_under_way(
    site: MergeSite, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse]
) -> None:
    """Scheduled ones overlap where one takes longer than usual."""
    table = create_table(site.database, SUM | QUIET | NO_HISTORY)
    merge(site, table, 1)
    merge(site, table, 2)
    refused = []

    def overlap(_path: str) -> None:
        if not refused:
            refused.append(True)
            builders.compact(site, table)
            with site.database.transaction() as repository:
                repository.snapshots.expire(table.id, [3])
            with pytest.raises(Conflict, match="another backup is writing to"):
                back_up(site.database, site.warehouse, target, "1.2.3", lambda _: None, keep=1)

    before = rows(site.database)
    done = taken(site, target, overlap)
    assert (refused, done.damaged) == ([True], [])
    put_back(target, empty, done.name)
    assert rows(empty[0]) == before


def test_a_backup_begins_again_where_its_files_are_swept_meanwhile(
    site: MergeSite, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse]
) -> None:
    table = create_table(site.database, SUM | QUIET | NO_HISTORY)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    post(site.database, site.warehouse, {"id": 2, "n": 1})
    swept = []

    def sweep_once(_path: str) -> None:
        if not swept:
            builders.merge(site, table)
            age(site)
            swept.append(sweep(site.database, site.warehouse, NO_GRACE))

    done = taken(site, target, sweep_once)
    assert swept == [2], "the staging files of both batches, of which one was copied"
    assert (done.files, done.damaged) == (1, [])
    put_back(target, empty)
    assert rows(empty[0]) == rows(site.database)


def test_what_a_killed_backup_left_goes_with_the_next_one(site: MergeSite, target: BackupFolder) -> None:
    merge(site, create_table(site.database, SUM | QUIET | NO_HISTORY), 1)

    def die(_path: str) -> None:
        left.append([path.read_bytes() for path in target.path.rglob("*.writing")])

    left: list[list[bytes]] = []
    taken(site, target, die)
    [[content]] = left
    (target.path / "catalogs" / "20260601T120000000000Z.writing").write_bytes(content)
    taken(site, target)
    assert [*target.path.rglob("*.writing")] == []


def test_what_is_damaged_is_reported_and_all_else_is_put_back(
    site: MergeSite, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse]
) -> None:
    table = create_table(site.database, SUM | QUIET | NO_HISTORY)
    merge(site, table, 1)
    post(site.database, site.warehouse, {"id": 2, "n": 1})
    [run] = Path(site.warehouse.path(table.id, "runs")).rglob("*.parquet")
    flip(run, 100)
    done = taken(site, target)
    assert [error.file.path.split("/")[1] for error in done.damaged] == ["runs"]
    assert done.copied == 1
    assert [path.split("/")[1] for path in files_in(target.files)] == ["staging"]
    put_back(target, empty)
    assert rows(empty[0]) == rows(site.database)
    assert files_in(empty[1]) == files_in(target.files)


def test_a_damaged_backup_is_not_put_back(
    site: MergeSite, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse]
) -> None:
    table = create_table(site.database, SUM | QUIET | NO_HISTORY)
    merge(site, table, 1)
    taken(site, target)
    [file] = Path(target.files.path()).rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Invalid, match="damaged in the backup"):
        put_back(target, empty)
    assert empty[0].revision() is None, "and no catalog names what is not there"
    file.unlink()
    with pytest.raises(Invalid, match="not in the backup any more"):
        put_back(target, (empty[0], Warehouse(empty[1].path("other"))))


def test_nothing_is_put_back_over_what_is_there(
    site: MergeSite, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse]
) -> None:
    with pytest.raises(Invalid, match="has no backup"):
        put_back(target, empty)
    merge(site, create_table(site.database, SUM | QUIET | NO_HISTORY), 1)
    taken(site, target)
    with pytest.raises(Conflict, match="catalog is not empty"):
        put_back(target, (site.database, empty[1]))
    with pytest.raises(Conflict, match="is not empty"):
        put_back(target, (empty[0], site.warehouse))


def test_only_the_owner_may_look_into_backups(site: MergeSite, target: BackupFolder) -> None:
    create_table(site.database)
    taken(site, target)
    assert os.stat(target.path).st_mode & 0o777 == 0o700


def test_delta_logs_are_written_again_where_a_backup_is_put_back(
    site: MergeSite, target: BackupFolder, empty: tuple[CatalogDatabase, Warehouse]
) -> None:
    """Also of a table whose first versions are forgotten: the log begins with a checkpoint."""
    table = create_table(site.database, PUBLISHED)
    for _ in range(3):
        merge(site, table, 1)
        compact(site, table)
    publish(site.database, site.warehouse)
    assert keep_versions(site.database, site.warehouse, table.id, Format.DELTA, later(site.database, hours=2)) == 3
    taken(site, target)
    put_back(target, empty)
    publish(*empty)
    assert log_of(empty[1], table) == [f"{3:020}.checkpoint.parquet", f"{3:020}.json", "_last_checkpoint"]
    for reader in READERS:
        assert read(empty[1], table, reader) == [{"id": 1, "n": 3}]
