"""Batches are kept out while what is staged has reached its bounds, or the warehouse cannot take them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import KeyfoldError, NotStored, StagingFull
from app.core.plan.records.bounds import Bounds
from app.core.table.history import Batch, Table
from app.files.layout import Warehouse
from app.files.writable import MARK
from app.services.batches.admission import Admission, StagingBounds
from app.services.batches.batches import Upload, accept_batch
from app.services.batches.group_commit import GroupCommit
from app.services.bodies.formats import NDJSON
from app.services.operating.readiness import take_warehouse
from app.services.shared.executor import MergeSite
from app.telemetry.entries import Bound, Counted
from tests.catalog.conftest import catalog_url
from tests.services.builders import QUIET, create_table, merge_staged
from tests.services.clocks import Seconds, SetClock

__all__ = ["catalog_url"]

MANY = 10**15
WIDE = StagingBounds(MANY, MANY, timedelta(days=10_000), MANY, MANY, 0)


class Entrance:
    """A process that accepts batches under some bounds."""

    def __init__(self, database: CatalogDatabase, warehouse: Warehouse, folder: Path, bounds: StagingBounds) -> None:
        self.database, self.warehouse = database, warehouse
        self.clock = Seconds()
        self.admission = Admission(database, warehouse, folder, bounds, self.clock)
        take_warehouse(database, warehouse)

    def post(self, records: int = 1, name: str = "wide", key: str | None = None) -> Batch:
        body = b"".join(b'{"id": %d, "n": 1}\n' % number for number in range(records))
        upload = Upload(body, NDJSON[0], key)
        commits = GroupCommit(self.database, self.warehouse)
        bounds = Bounds(1000)
        return accept_batch(
            self.database, self.warehouse, "shop", name, upload, bounds, commits, admission=self.admission
        ).batch

    def refused(self, **post: Any) -> KeyfoldError:
        with pytest.raises(KeyfoldError) as reported:
            self.post(**post)
        return reported.value


Opened = Callable[..., Entrance]


@pytest.fixture
def opened(database: CatalogDatabase, warehouse: Warehouse, tmp_path: Path) -> Opened:
    return lambda **bounds: Entrance(database, warehouse, tmp_path, replace(WIDE, **bounds))


def refusals(database: CatalogDatabase, bound: Bound) -> float:
    return database.metrics.totals()[Counted.REFUSED_BATCHES, (bound.value,)][0]


def staged_files(warehouse: Warehouse, table: Table) -> list[Path]:
    return list(Path(warehouse.path(table.id, "staging")).glob("*"))


def test_a_table_takes_batches_until_its_records_reach_the_bound_and_again_once_they_are_merged(
    database: CatalogDatabase, warehouse: Warehouse, opened: Opened
) -> None:
    table, other = create_table(database, QUIET), create_table(database, QUIET, "other")
    entrance = opened(table_records=5)
    assert [entrance.post(records).number for records in (2, 2, 3)] == [1, 2, 3]
    reported = entrance.refused()
    assert isinstance(reported, StagingFull)
    assert "shop.wide has 7 records, and the most is 5; nothing was stored" in reported.message
    assert [violation.code for violation in reported.violations] == ["staged_records"]
    assert "GET …/merges" in reported.violations[0].fix
    assert len(staged_files(warehouse, table)) == 3
    assert refusals(database, Bound.TABLE_RECORDS) == 1
    assert entrance.post(name="other").table_id == other.id
    merge_staged(database, warehouse, table.id)
    entrance.clock.time += 2
    assert entrance.post().number == 4


def test_the_bytes_of_a_table_have_a_bound_and_bodies_under_way_count(
    database: CatalogDatabase, opened: Opened
) -> None:
    table = create_table(database, QUIET)
    entrance = opened(table_bytes=1000)
    with entrance.admission.admitted(table, 1000):
        assert [violation.code for violation in entrance.refused().violations] == ["staged_bytes"]
    entrance.post()
    entrance = opened(table_bytes=100)
    assert [violation.code for violation in entrance.refused().violations] == ["staged_bytes"]


@pytest.mark.parametrize(("bounds", "bound"), [({"all_records": 3}, Bound.RECORDS), ({"all_bytes": 2000}, Bound.BYTES)])
def test_what_all_tables_have_staged_has_bounds_too(
    database: CatalogDatabase, opened: Opened, bounds: dict[str, int], bound: Bound
) -> None:
    create_table(database, QUIET)
    create_table(database, QUIET, "other")
    entrance = opened(**bounds)
    entrance.post(2)
    entrance.post(2, name="other")
    assert isinstance(entrance.refused(), StagingFull)
    assert "the staging areas of all tables have" in entrance.refused(name="other").message
    assert refusals(database, bound) == 2


def test_a_batch_that_waits_too_long_for_its_merge_keeps_others_of_its_table_out(
    catalog_url: str, warehouse: Warehouse, tmp_path: Path
) -> None:
    time = SetClock()
    database = CatalogDatabase(catalog_url, time)
    table = create_table(database, {"merge.max-staleness": "1 h"})
    create_table(database, QUIET, "other")
    entrance = Entrance(database, warehouse, tmp_path, replace(WIDE, late=timedelta(minutes=10)))
    entrance.post()
    time.move(minutes=69)
    entrance.admission.read()
    entrance.post()
    time.move(minutes=2)
    entrance.admission.read()
    reported = entrance.refused()
    assert [violation.code for violation in reported.violations] == ["staged_too_long"]
    assert "4260 seconds, and 4200 is the most" in reported.message
    entrance.post(name="other")
    merge_staged(database, warehouse, table.id)
    entrance.clock.time += 2
    entrance.post()
    database.close()


def test_a_bound_counts_what_other_processes_accept_as_soon_as_it_refuses_or_a_second_later(
    database: CatalogDatabase, opened: Opened
) -> None:
    create_table(database, QUIET)
    here, there = opened(table_records=4), opened(table_records=4)
    here.post(2)
    there.post(2)
    here.clock.time += 2
    here.admission.read()  # as its thread does
    assert isinstance(here.refused(), StagingFull)


def test_a_repeated_request_is_answered_though_the_bound_is_reached(database: CatalogDatabase, opened: Opened) -> None:
    create_table(database, QUIET)
    entrance = opened(table_records=1)
    first = entrance.post(key="k")
    assert entrance.post(key="k") == first
    entrance.refused(key="other")


def test_no_batch_costs_a_query_for_its_bounds(database: CatalogDatabase, opened: Opened) -> None:
    create_table(database, QUIET)
    entrance = opened()
    entrance.post()
    reads = [database.metrics.totals()[Counted.CATALOG_WAIT, ("read",)][:-1]]
    for _ in range(3):
        entrance.post()
        reads.append(database.metrics.totals()[Counted.CATALOG_WAIT, ("read",)][:-1])
    assert [sum(read) - sum(reads[0]) for read in reads] == [0, 1, 2, 3]  # the look at the schema


def test_a_disk_with_too_little_room_takes_nothing(site: MergeSite, opened: Opened) -> None:
    table = create_table(site.database, QUIET)
    entrance = opened(free_bytes=MANY)
    reported = entrance.refused()
    assert isinstance(reported, NotStored)
    assert [violation.code for violation in reported.violations] == ["no_room"]
    assert f"less than {MANY} (KEYFOLD_LEAST_FREE_MIB)" in reported.message
    assert staged_files(site.warehouse, table) == []
    assert refusals(site.database, Bound.ROOM) == 1


def lost(root: Path) -> None:
    """The folder is gone."""
    shutil.move(root, root.with_name("elsewhere"))


def unmounted(root: Path) -> None:
    """What is left where a disk was mounted."""
    lost(root)
    root.mkdir()


def replaced(root: Path) -> None:
    """A file is in its place."""
    lost(root)
    root.write_bytes(b"")


@pytest.mark.parametrize("lose", [lost, unmounted, replaced])
def test_a_warehouse_that_is_not_there_takes_nothing_and_is_not_made_again(
    database: CatalogDatabase, warehouse: Warehouse, opened: Opened, lose: Callable[[Path], None]
) -> None:
    create_table(database, QUIET)
    entrance = opened()
    first = entrance.post()
    root = Path(warehouse.path())
    lose(root)
    there = list(root.glob("*"))
    reported = entrance.refused()
    assert isinstance(reported, NotStored)
    assert "the warehouse cannot be written: it is not there; nothing was stored" in reported.message
    assert [violation.code for violation in reported.violations] == ["warehouse_not_writable"]
    take_warehouse(database, warehouse)  # as a process does that is started now
    assert isinstance(entrance.refused(), NotStored)
    assert list(root.glob("*")) == there
    if root.is_file():
        root.unlink()
    elif root.exists():
        root.rmdir()
    shutil.move(root.with_name("elsewhere"), root)
    assert entrance.post().number == first.number + 1


def test_a_warehouse_of_an_older_version_is_marked_when_it_holds_files_of_the_catalog(
    database: CatalogDatabase, warehouse: Warehouse, opened: Opened
) -> None:
    create_table(database, QUIET)
    entrance = opened()
    entrance.post()
    mark = Path(warehouse.path(MARK))
    mark.unlink()
    assert isinstance(entrance.refused(), NotStored)
    take_warehouse(database, warehouse)
    assert mark.exists()
    assert entrance.post().number == 2
