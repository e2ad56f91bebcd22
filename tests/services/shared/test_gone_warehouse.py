"""A warehouse whose disk goes away, so that an empty folder is in its place, and comes back: nothing that was written
beside it is named, and nothing of it is taken for damaged.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import NotStored, Unavailable
from app.core.table.history import BatchState, TaskState
from app.files.layout import Warehouse
from app.files.writable import claim
from app.kernel.tasks import Job, Progress, Result
from app.services.batches.group_commit import GroupCommit
from app.services.operating.readiness import check_not_lost
from app.services.shared.executor import MergeSite
from app.storage.staging.staging import read_batch
from tests.services.batches.test_group_commit import staged
from tests.services.builders import batches_of, committed, create_table, merge, post
from tests.services.executor import PythonExecutor


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """One that services have marked."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), marked=True)
    claim(warehouse)
    return warehouse


def unmount(warehouse: Warehouse) -> None:
    Path(warehouse.root).rename(f"{warehouse.root}-disk")
    Path(warehouse.root).mkdir()


def mount(warehouse: Warehouse) -> None:
    shutil.rmtree(warehouse.root)
    Path(f"{warehouse.root}-disk").rename(warehouse.root)


class Unmounted(PythonExecutor):
    """When its merges have written their runs, the disk goes away."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__()
        self.warehouse = warehouse

    def merge(self, tag: str, job: Job, report: Progress) -> list[Result]:
        results = super().merge(tag, job, report)
        unmount(self.warehouse)
        return results


def test_a_batch_that_was_written_beside_the_warehouse_is_not_accepted(site: MergeSite) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    unmount(site.warehouse)
    new = staged(site.warehouse, table)  # the service had looked before
    with pytest.raises(NotStored, match="it is not there"):
        GroupCommit(site.database, site.warehouse).enter(table.id, new)
    mount(site.warehouse)
    assert [batch.number for batch in batches_of(site.database, table)] == [1]


def test_a_run_that_was_written_beside_the_warehouse_is_in_no_snapshot(site: MergeSite) -> None:
    table = create_table(site.database)
    failed = merge(replace(site, executor=Unmounted(site.warehouse)), table, {"id": 1, "n": 1})
    assert failed.state is TaskState.FAILED
    assert "the warehouse is missing" in (failed.error or "")
    assert not committed(site.database, table)
    assert [batch.state for batch in batches_of(site.database, table)] == [BatchState.STAGED]
    mount(site.warehouse)
    assert merge(site, table).state is TaskState.SUCCEEDED


def test_no_batch_is_set_aside_because_its_disk_is_away(
    site: MergeSite, database: CatalogDatabase, warehouse: Warehouse
) -> None:
    table = create_table(database)
    batch = post(database, warehouse, {"id": 1, "n": 1})
    unmount(warehouse)
    for _ in range(6):
        merge(site, table)
    with pytest.raises(Unavailable, match="the warehouse is missing"):
        read_batch(warehouse, batch, table.schema)
    assert [batch.state for batch in batches_of(database, table)] == [BatchState.STAGED]
    with database.reading() as repository:
        assert repository.damage.paths() == {}
    mount(warehouse)
    merge(site, table)
    assert [batch.state for batch in batches_of(database, table)] == [BatchState.MERGED]


def test_a_file_that_is_gone_from_a_warehouse_that_is_there_is_damage(site: MergeSite) -> None:
    table = create_table(site.database)
    batch = post(site.database, site.warehouse, {"id": 1, "n": 1})
    Path(site.warehouse.path(table.id, "staging", batch.file)).unlink()
    with pytest.raises(Exception, match="is missing; restore it"):
        read_batch(site.warehouse, batch, table.schema)


def test_a_catalog_is_not_made_again_beside_a_warehouse_that_holds_tables(tmp_path: Path, warehouse: Warehouse) -> None:
    database = CatalogDatabase(f"sqlite:///{tmp_path}/lost.sqlite")
    Path(warehouse.root, "lost+found").mkdir()
    check_not_lost(database, warehouse)
    Path(warehouse.root, uuid.uuid4().hex).mkdir()
    with pytest.raises(Unavailable, match="no catalog, but the warehouse holds tables"):
        check_not_lost(database, warehouse)
    assert not (tmp_path / "lost.sqlite").exists()
    database.migrate()
    check_not_lost(database, warehouse)
    database.close()
