"""What a Delta log says, who writes it, and when."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaProtocolError

from app.catalog.database import CatalogDatabase
from app.catalog.shared.models import published_versions
from app.core.table.history import Table
from app.core.table.published import Format
from app.files.layout import delta_log
from app.services.publishing.publications import Publisher
from app.services.shared.executor import MergeSite
from tests.catalog.builders import CATALOGS
from tests.delta_readers import READERS
from tests.services.builders import compact, create_table, merge, merge_staged, post
from tests.services.executor import InterruptedExecutor
from tests.services.publishing.delta_logs import PUBLISHED, actions, folder_of, log_of, publish, read, versions

# Late records must meet a delete, which therefore stays in the run.
PUBLISHED_ROWS = {"delta.publish": "true", "sequence.field": "n"}


@pytest.fixture
def table(database: CatalogDatabase) -> Table:
    return create_table(database, PUBLISHED)


def test_a_version_says_its_snapshot_and_what_changed(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": -4})
    merge(site, table, {"id": 1, "n": 2}, {"id": 9, "n": None})
    compact(site, table)
    publish(site.database, site.warehouse)
    first, second = actions(site.warehouse, table, 0), actions(site.warehouse, table, 1)
    assert [next(iter(one)) for one in first] == ["commitInfo", "protocol", "metaData", "add"]
    assert [next(iter(one)) for one in second] == ["commitInfo", "remove", "add"]
    assert second[0]["commitInfo"]["operationParameters"]["snapshotId"] == "3"
    assert second[1]["remove"]["path"] == first[3]["add"]["path"]
    stats = json.loads(second[2]["add"]["stats"])
    assert stats["numRecords"] == 2
    assert (stats["minValues"], stats["maxValues"]) == ({"id": 1, "n": -2}, {"id": 9, "n": -2})
    assert stats["nullCount"] == {"id": 0, "n": 1}


def test_a_log_that_somebody_else_wrote_to_is_left_alone_and_told(
    site: MergeSite, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    merge(site, table, {"id": 1, "n": 1})
    path = Path(site.warehouse.path(*delta_log(table.id, f"{0:020}.json")))
    path.parent.mkdir()
    path.write_text('{"commitInfo": {"engineInfo": "other"}}\n')
    assert publish(site.database, site.warehouse) == 0
    assert "is not the version that the catalog has" in caplog.text
    assert path.read_text() == '{"commitInfo": {"engineInfo": "other"}}\n'


def test_a_log_of_another_time_of_the_catalog_is_not_taken_for_its_own(
    site: MergeSite, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """A catalog that was put back beside a newer warehouse numbers snapshots and versions once more."""
    merge(site, table, {"id": 1, "n": 1})
    publish(site.database, site.warehouse)
    with site.database.transaction() as repository:
        later = repository.now() + timedelta(seconds=5)
        values = {"committed_at": later, "written_at": None}
        repository.transaction.execute(published_versions.update().values(values))
    assert publish(site.database, site.warehouse) == 0
    assert "is not the version that the catalog has" in caplog.text


def test_a_table_that_fails_does_not_keep_the_others_waiting(site: MergeSite, table: Table) -> None:
    other = create_table(site.database, PUBLISHED, "other")
    for one in (table, other):
        post(site.database, site.warehouse, {"id": 1, "n": 1}, name=one.name)
        merge_staged(site.database, site.warehouse, one.id)
    Path(site.warehouse.path(*delta_log(table.id))).write_text("no folder")
    now = [0.0]
    publisher = Publisher(site.database, site.warehouse, lambda: now[0])
    assert publisher.publish() == 1
    Path(site.warehouse.path(*delta_log(table.id))).unlink()
    assert publisher.publish() == 0
    now[0] = 60.0
    assert publisher.publish() == 1


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_compaction_is_published_although_merges_were_committed_meanwhile(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 2})
    busy = InterruptedExecutor(lambda: merge(site, table, {"id": 1, "n": 100}), in_compaction=True)
    compact(MergeSite(site.database, site.warehouse, busy, 600), table)
    publish(site.database, site.warehouse)
    assert read(site.warehouse, table) == [{"id": 1, "n": 3}]
    newest = versions(site.database, table)[-1]
    assert (newest.as_of, newest.snapshot_id) == (2, 4)
    compact(site, table)
    publish(site.database, site.warehouse)
    assert read(site.warehouse, table) == [{"id": 1, "n": 103}]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_compaction_whose_last_snapshot_has_expired_by_its_end_is_published_by_the_next(
    site: MergeSite, database: CatalogDatabase, table: Table
) -> None:
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 1})
    with database.reading() as repository:
        base = repository.snapshots.get(table.id, 2)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    with database.transaction() as repository:
        last = repository.snapshots.get(table.id, 3)
        repository.snapshots.expire(table.id, {2})
        before = repository.published.page(table.id, Format.DELTA)
        repository.published.follow_compaction(base, last, set())
        assert repository.published.page(table.id, Format.DELTA) == before


@pytest.mark.parametrize("catalog_kind", CATALOGS)
@pytest.mark.slow(reason="threads race for a while")
def test_publishers_at_once_write_each_version_once(site: MergeSite, table: Table) -> None:
    for number in range(12):
        merge(site, table, {"id": 1, "n": number})
        compact(site, table)
    start = Barrier(4)

    def work(_: int) -> None:
        start.wait()
        publish(site.database, site.warehouse)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    kept = versions(site.database, table)
    assert [one.version for one in kept] == list(range(13))
    assert all(one.written_at is not None for one in kept)
    checkpoint = f"{10:020}.checkpoint.parquet"
    assert log_of(site.warehouse, table) == sorted(
        [*(f"{n:020}.json" for n in range(13)), checkpoint, "_last_checkpoint"]
    )
    for reader in READERS:
        assert read(site.warehouse, table, reader) == [{"id": 1, "n": sum(range(12))}]


def test_other_writers_refuse_the_log(site: MergeSite, table: Table) -> None:
    """A feature of writers that only Keyfold knows keeps them out."""
    merge(site, table, {"id": 1, "n": 1})
    publish(site.database, site.warehouse)
    more = pa.table({"id": pa.array([5], pa.int64()), "n": pa.array([5], pa.int64())})
    with pytest.raises(Exception, match=r"(?i)unsupported|unknown|not supported"):
        write_deltalake(folder_of(site.warehouse, table), more, mode="append")
    assert log_of(site.warehouse, table) == [f"{0:020}.json"]


def test_readers_without_deletion_vectors_read_the_versions_that_have_none(site: MergeSite) -> None:
    """deltalake's own datasets, which pandas users have, do without them."""
    table = create_table(site.database, PUBLISHED_ROWS)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 1})
    merge(site, table, {"id": 2, "n": 2, "_kind": "-D"})
    compact(site, table)
    publish(site.database, site.warehouse)
    folder = folder_of(site.warehouse, table)
    assert DeltaTable(folder, version=0).to_pyarrow_table().num_rows == 2
    with pytest.raises(DeltaProtocolError, match="deletionVectors"):
        DeltaTable(folder, version=1).to_pyarrow_table()
    merge(site, table, {"id": 2, "n": 3})
    compact(site, table)
    publish(site.database, site.warehouse)
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 2
    assert all(DeltaTable(folder, version=number).version() == number for number in range(3))


def test_spark_may_go_back_to_every_version_that_is_kept(site: MergeSite, table: Table) -> None:
    """It asks the table for how long (168 hours by itself); what is kept is decided by delta.log-retained alone."""
    merge(site, table, {"id": 1, "n": 1})
    publish(site.database, site.warehouse)
    configuration = DeltaTable(folder_of(site.warehouse, table)).metadata().configuration
    assert configuration == {"delta.deletedFileRetentionDuration": "interval 36500 days"}
