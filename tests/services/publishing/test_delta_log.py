"""How long a Delta log and its files are kept, and what ALTER makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from app.catalog.database import CatalogDatabase
from app.catalog.shared.models import merges
from app.core.table.history import Table
from app.core.table.published import Format
from app.files.layout import Warehouse, delta_log
from app.services.merging.compactions import request_failed_compactions
from app.services.publishing.files import list_files
from app.services.publishing.publications import keep_published, keep_versions, request_due_publications
from app.services.shared.executor import MergeSite
from app.services.shared.pages import PageRequest
from app.services.tables.tables import alter_table
from app.services.upkeep.sweeps import sweep
from tests.catalog.builders import CATALOGS
from tests.delta_readers import READERS, plain
from tests.services.builders import SUM, compact, create_table, later, merge, run_next_compaction, set_options
from tests.services.executor import BrokenExecutor
from tests.services.publishing.delta_logs import PUBLISHED, actions, folder_of, log_of, publish, read, versions

NAME = ("shop", "wide")


def alter(database: CatalogDatabase, *changes: dict[str, Any]) -> Table:
    return alter_table(database, NAME, list(changes))


def paths_of(warehouse: Warehouse, table: Table, version: int) -> Sequence[str]:
    return [uri.removeprefix("file://") for uri in DeltaTable(folder_of(warehouse, table), version=version).file_uris()]


def several_versions(site: MergeSite, table: Table, count: int) -> None:
    """One more than ``count``, for the first merge is one."""
    for number in range(count):
        merge(site, table, {"id": 1, "n": number})
        compact(site, table)
    publish(site.database, site.warehouse)


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_files_of_a_version_are_kept_until_the_log_forgets_it(site: MergeSite, database: CatalogDatabase) -> None:
    few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = create_table(database, PUBLISHED | few)
    several_versions(site, table, 3)
    sweep(database, site.warehouse, timedelta(0))
    assert [version.version for version in versions(database, table)] == [0, 1, 2, 3]
    for number in range(4):
        assert all(Path(path).exists() for path in paths_of(site.warehouse, table, number))
    assert keep_versions(database, site.warehouse, table.id, Format.DELTA, later(database, hours=2)) == 3
    assert log_of(site.warehouse, table) == [f"{3:020}.checkpoint.parquet", f"{3:020}.json", "_last_checkpoint"]
    sweep(database, site.warehouse, timedelta(0))
    for reader in READERS:
        assert read(site.warehouse, table, reader) == [{"id": 1, "n": 3}]
    sweep(database, site.warehouse, timedelta(0))
    assert len(list(Path(folder_of(site.warehouse, table), "runs").iterdir())) == 1


def test_a_version_is_kept_as_long_as_the_option_says_after_the_next(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISHED | {"delta.log-retained": "3 h"})
    several_versions(site, table, 2)
    assert keep_versions(site.database, site.warehouse, table.id, Format.DELTA, later(site.database, hours=2)) == 0
    assert keep_versions(site.database, site.warehouse, table.id, Format.DELTA, later(site.database, hours=4)) == 2
    assert keep_versions(site.database, site.warehouse, table.id, Format.DELTA, later(site.database, hours=4)) == 0


@pytest.mark.slow(reason="writes logs that are read by three engines")
def test_engines_begin_with_a_checkpoint_and_read_on(site: MergeSite, database: CatalogDatabase) -> None:
    table = create_table(database, PUBLISHED)
    several_versions(site, table, 11)
    assert f"{10:020}.checkpoint.parquet" in log_of(site.warehouse, table)
    for reader in READERS:
        assert read(site.warehouse, table, reader) == [{"id": 1, "n": sum(range(11))}]
    keep_versions(database, site.warehouse, table.id, Format.DELTA, later(database, hours=2))
    merge(site, table, {"id": 2, "n": 1})
    compact(site, table)
    publish(database, site.warehouse)
    for reader in READERS:
        assert read(site.warehouse, table, reader) == [{"id": 1, "n": sum(range(11))}, {"id": 2, "n": 1}]


def test_time_travel_finds_the_snapshot_of_a_version(site: MergeSite, database: CatalogDatabase) -> None:
    table = create_table(database, PUBLISHED)
    several_versions(site, table, 3)
    for one in versions(database, table):
        [reported] = [a["commitInfo"] for a in actions(site.warehouse, table, one.version) if "commitInfo" in a]
        assert reported["operationParameters"]["snapshotId"] == str(one.as_of)
        found = DeltaTable(folder_of(site.warehouse, table), version=one.version)
        rows = plain(QueryBuilder().register("t", found).execute("SELECT * FROM t").read_all())
        with database.reading() as repository:
            then = list_files(repository, site.warehouse, table, str(one.as_of), PageRequest(10))
        [file] = then.files
        assert rows == pq.ParquetFile(file.uri.removeprefix("file://")).read(columns=["id", "n"]).to_pylist()
    assert rows == [{"id": 1, "n": 3}]


def test_the_removal_of_versions_goes_on_where_it_ended(site: MergeSite, database: CatalogDatabase) -> None:
    """The log first, then the catalog: killed in between, the files are kept and it is done once more."""
    table = create_table(database, PUBLISHED)
    several_versions(site, table, 3)
    Path(site.warehouse.path(*delta_log(table.id, f"{0:020}.json"))).unlink()
    with database.reading() as repository:
        table_now = repository.tables.existing(table.id)
    assert keep_published(database, site.warehouse, [table_now]) == 0
    assert keep_versions(database, site.warehouse, table.id, Format.DELTA, later(database, hours=2)) == 3
    assert read(site.warehouse, table) == [{"id": 1, "n": 3}]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_the_first_publication_is_tried_again_where_its_compaction_failed(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "99"})
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 2})
    set_options(site.database, table, {"delta.publish": "true"})
    assert versions(site.database, table) == []
    failing = MergeSite(site.database, site.warehouse, BrokenExecutor(OSError("the disk is full")), 600)
    assert run_next_compaction(failing, "compactor")
    assert not run_next_compaction(site, "compactor")
    with site.database.transaction() as repository:
        now = repository.now() - timedelta(hours=1)
        repository.transaction.execute(merges.update().values(finished_at=now))
    request_failed_compactions(site.database)
    assert run_next_compaction(site, "compactor")
    publish(site.database, site.warehouse)
    assert read(site.warehouse, table) == [{"id": 1, "n": 3}]


def test_a_table_that_begins_to_publish_when_it_is_compacted_is_published_at_once(site: MergeSite) -> None:
    table = create_table(site.database, SUM)
    merge(site, table, {"id": 1, "n": 1})
    set_options(site.database, table, {"delta.publish": "true"})
    assert publish(site.database, site.warehouse) == 1
    assert not run_next_compaction(site, "compactor")
    set_options(site.database, table, {"delta.log-retained": "2 h"})
    assert publish(site.database, site.warehouse) == 0


def test_a_table_that_is_turned_off_stays_readable_as_it_was_and_goes_on_when_it_is_turned_on(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISHED)
    several_versions(site, table, 2)
    set_options(site.database, table, {"delta.publish": "false"})
    merge(site, table, {"id": 1, "n": 10})
    compact(site, table)
    assert publish(site.database, site.warehouse) == 0
    sweep(site.database, site.warehouse, timedelta(0))
    assert keep_versions(site.database, site.warehouse, table.id, Format.DELTA, later(site.database, hours=2)) == 2
    assert read(site.warehouse, table) == [{"id": 1, "n": 1}]
    set_options(site.database, table, {"delta.publish": "true"})
    publish(site.database, site.warehouse)
    assert read(site.warehouse, table) == [{"id": 1, "n": 11}]
    assert [version.version for version in versions(site.database, table)] == [2, 3]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_log_that_lags_by_the_interval_has_the_table_compacted(site: MergeSite, database: CatalogDatabase) -> None:
    table = create_table(database, PUBLISHED | {"delta.publish.interval": "1 h"})
    then = later(database, hours=2)
    merge(site, table, {"id": 1, "n": 1})
    assert request_due_publications(database, then) == 0
    merge(site, table, {"id": 1, "n": 1})
    assert request_due_publications(database, then) == 1
    assert request_due_publications(database, then) == 0
    assert run_next_compaction(site, "compactor")
    assert request_due_publications(database, then) == 0
    publish(database, site.warehouse)
    assert read(site.warehouse, table) == [{"id": 1, "n": 2}]


def test_a_log_that_lags_less_than_the_interval_waits_but_not_for_a_version_of_the_future(
    site: MergeSite, database: CatalogDatabase
) -> None:
    table = create_table(database, PUBLISHED | {"delta.publish.interval": "1 h"})
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 1})
    assert request_due_publications(database) == 0
    assert request_due_publications(database, later(database, hours=-2)) == 1, "the clock was set back"


@pytest.mark.slow(reason="writes logs that are read by three engines")
@pytest.mark.parametrize("more", [{}, {"sequence.field": "n"}], ids=["by arrival", "by a sequence"])
def test_a_table_that_takes_no_deletes_any_more_is_read_on(more: dict[str, str], site: MergeSite) -> None:
    """What is asked of readers changes with the rows that may be hidden."""
    table = create_table(site.database, {"delta.publish": "true", **more})
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 1})
    merge(site, table, {"_kind": "-D", "id": 1, "n": 2})
    compact(site, table)
    publish(site.database, site.warehouse)
    set_options(site.database, table, {"ignore-delete": "true"})
    merge(site, table, {"id": 3, "n": 1}, {"_kind": "-D", "id": 2, "n": 5})
    compact(site, table)
    assert publish(site.database, site.warehouse) == 1
    for hours in (0, 2):
        keep_versions(site.database, site.warehouse, table.id, Format.DELTA, later(site.database, hours=hours))
        for reader in READERS:
            assert [row["id"] for row in read(site.warehouse, table, reader)] == [2, 3]
