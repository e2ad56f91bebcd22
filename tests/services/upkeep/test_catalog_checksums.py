"""What the catalog says of files, batches and schemas is checked when it is loaded: a changed value is never used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import DamagedCatalog, NotFound
from app.core.table.history import Table
from app.services.merging.compaction_rounds import is_small_table
from app.services.merging.merge_rounds import claim_round, run_round
from app.services.merging.merges import request_merge
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import every_table
from tests.services.builders import create_table, merge, merge_staged, post

Load = Callable[[Repository, Table], object]


def _snapshot(repository: Repository, table: Table) -> object:
    return repository.snapshots.current_of(repository.tables.get("shop", "wide"))


def _staged(repository: Repository, table: Table) -> object:
    return repository.batches.staged(table.id)


def _table(repository: Repository, table: Table) -> object:
    return repository.tables.get("shop", "wide")


def _current(repository: Repository, table: Table) -> object:
    return repository.snapshots.current(table.id)


def _by_id(repository: Repository, table: Table) -> object:
    return repository.tables.find(table.id)


def _lock(repository: Repository, table: Table) -> object:
    return repository.tables.lock(table.id)


def _names(repository: Repository, table: Table) -> object:
    return repository.tables.names("shop")


@pytest.mark.parametrize(
    ("change", "load"),
    [
        ("UPDATE data_files SET max_token = max_token - 1", _snapshot),
        ("UPDATE data_files SET min_token = min_token + 1", _snapshot),
        ("UPDATE data_files SET rows = rows + 1", _snapshot),
        ("UPDATE data_files SET name = 'x' || name", _snapshot),
        ("DELETE FROM data_files", _snapshot),
        ("UPDATE runs SET schema_id = 1", _snapshot),
        ("UPDATE runs SET totals = replace(totals, '1', '0')", _snapshot),
        ("UPDATE runs SET totals = NULL", _snapshot),
        ("DELETE FROM snapshot_runs", _snapshot),
        ("UPDATE batches SET file = 'x' || file WHERE state = 'staged'", _staged),
        ("UPDATE batches SET number = number + 8 WHERE state = 'staged'", _staged),
        ("UPDATE batches SET accepted_at = 'yesterday' WHERE state = 'staged'", _staged),
        ("UPDATE tables SET name = 'wode'", _table),
        ("UPDATE databases SET name = 'shup'", _table),
        ("UPDATE tables SET schema_id = 1", _table),
        ("UPDATE tables SET snapshot_id = 3", _current),
        ("UPDATE tables SET snapshot_id = NULL", _current),
        ("UPDATE tables SET snapshot_id = NULL", _lock),
        ("UPDATE tables SET schema_id = 1", _by_id),
        ("UPDATE tables SET name = 'wode'", _names),
        ("UPDATE table_schemas SET body = replace(body, 'BIGINT', 'INT')", _table),
        ("UPDATE table_schemas SET body = 'x' || body, checksum = NULL", _table),
        ("UPDATE table_schemas SET body = '{}', checksum = NULL", _table),
    ],
)
def test_a_changed_value_is_damage_of_the_catalog(site: MergeSite, catalog_url: str, change: str, load: Load) -> None:
    if "yesterday" in change and not site.database.embedded:
        pytest.skip("PostgreSQL itself refuses a text for a time")
    table = create_table(site.database)
    merge(site, table, {"id": 1, "n": 1})
    post(site.database, site.warehouse, {"id": 2, "n": 2})
    with site.database.transaction() as repository:
        load(repository, table)
    with site.database.transaction() as repository:
        repository.transaction.execute(sa.text(change))
    again = CatalogDatabase(catalog_url)
    try:
        with (
            again.transaction() as repository,
            pytest.raises(DamagedCatalog, match=r"restore the catalog from a backup"),
        ):
            load(repository, table)
    finally:
        again.close()


@pytest.mark.parametrize(
    "change", ["UPDATE tables SET schema_id = 1 WHERE id = :table", "DELETE FROM snapshot_runs WHERE table_id = :table"]
)
def test_work_for_all_tables_goes_on_without_a_damaged_one(site: MergeSite, catalog_url: str, change: str) -> None:
    made = [create_table(site.database, name=name) for name in ("wide", "other")]
    for one in made:
        post(site.database, site.warehouse, {"id": 1, "n": 1}, name=one.name)
        merge_staged(site.database, site.warehouse, one.id)
        post(site.database, site.warehouse, {"id": 1, "n": 1}, name=one.name)
        request_merge(site.database, one.id)
    with site.database.transaction() as repository:
        repository.transaction.execute(sa.text(change), {"table": made[0].id})
    again = replace(site, database=CatalogDatabase(catalog_url))
    with again.database.reading() as repository:
        waiting = repository.rounds.waiting()
        waits = repository.stats.waits()
        assert [is_small_table(repository, one.id) for one in made][1]
    assert made[1].id in {one.table.id for one in waiting} & {wait.table.id for wait in waits}
    assert made[1].id in {one.id for one in every_table(again.database)}
    leases = claim_round(again, "worker", waiting)
    [done] = run_round(again, leases)
    assert done.claimed.table.id == made[1].id
    again.database.close()


def test_a_table_that_a_damaged_index_does_not_find_is_found(tmp_path: Path, sqlite_template: Path) -> None:
    shutil.copy(sqlite_template, tmp_path / "catalog.db")
    database = CatalogDatabase(f"sqlite:///{tmp_path}/catalog.db")
    made = create_table(database, name="wide_table")
    with database.reading() as repository:
        pages = sa.text("SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_tables_%'")
        found = [*repository.transaction.execute(pages).scalars()]
        size = repository.transaction.execute(sa.text("PRAGMA page_size")).scalar_one()
    database.close()
    content = bytearray((tmp_path / "catalog.db").read_bytes())
    for page in found:
        place = slice((page - 1) * size, page * size)
        content[place] = content[place].replace(b"wide_table", b"wide_tabld")
    (tmp_path / "catalog.db").write_bytes(content)
    with database.reading() as repository:
        by_name = sa.text("SELECT 1 FROM tables WHERE database_id = :database AND name = 'wide_table'")
        database_id = repository.databases.get("shop").id
        assert repository.transaction.execute(by_name, {"database": database_id}).first() is None
        assert repository.tables.get("shop", "wide_table").id == made.id
        with pytest.raises(NotFound):
            repository.tables.get("shop", "wide_tabl")
    database.close()
