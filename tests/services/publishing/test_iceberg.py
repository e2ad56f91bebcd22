"""What the files of Iceberg say of a table, and how long they are kept."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.table import StaticTable

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.core.table.published import Format, PublishedVersion
from app.files.layout import Warehouse, iceberg_file
from app.services.publishing.publications import keep_versions
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.services.upkeep.sweeps import sweep
from app.storage.iceberg.metadata import metadata_file
from app.storage.iceberg.snapshots import list_file
from tests.delta_readers import Rows
from tests.iceberg_readers import READERS
from tests.services.builders import SUM, compact, create_table, later, merge, set_options
from tests.services.publishing import delta_logs
from tests.services.publishing.delta_logs import metadata, publish

PUBLISHED = SUM | {"iceberg.publish": "true", "num-sorted-run.compaction-trigger": "99"}
# Late records must meet a delete, which therefore stays in the run.
PUBLISHED_ROWS = {"iceberg.publish": "true", "sequence.field": "n"}


@pytest.fixture
def table(database: CatalogDatabase) -> Table:
    return create_table(database, PUBLISHED)


def versions(site: MergeSite, table: Table) -> list[PublishedVersion]:
    return delta_logs.versions(site.database, table, Format.ICEBERG)


def read(site: MergeSite, table: Table, reader: str = "pyiceberg") -> Rows:
    return READERS[reader](metadata(site, table))


def files_of(warehouse: Warehouse, table: Table) -> dict[str, bytes]:
    root = Path(warehouse.path(*iceberg_file(table.id)))
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def named_manifests(warehouse: Warehouse, version: PublishedVersion) -> list[Mapping[str, Any]]:
    content = Path(warehouse.path(*list_file(version))).read_bytes()
    return [dict(record) for record in fastavro.reader(io.BytesIO(content)) if isinstance(record, dict)]


def test_a_reader_goes_back_to_every_version_that_is_kept(site: MergeSite, table: Table) -> None:
    several_versions(site, table)
    found = StaticTable.from_metadata(metadata(site, table))
    numbers = [version.as_of for version in versions(site, table)]
    assert [snapshot.snapshot_id for snapshot in found.snapshots()] == numbers == [1, 3, 5]
    assert [snapshot.parent_snapshot_id for snapshot in found.snapshots()] == [None, 1, 3]
    assert [found.scan(snapshot_id=number).to_arrow()["n"].to_pylist() for number in numbers] == [[1], [2], [3]]


def several_versions(site: MergeSite, table: Table) -> None:
    """Three, for the first merge is one."""
    for number in range(3):
        merge(site, table, {"id": 1, "n": 1})
        if number:
            compact(site, table)
    publish(site.database, site.warehouse)


def test_a_run_may_have_a_column_that_iceberg_has_no_type_for_if_it_was_dropped(site: MergeSite) -> None:
    table = create_table(site.database, {}, columns=(("id", "BIGINT"), ("at", "TIME"), ("n", "BIGINT")))
    merge(site, table, {"id": 1, "at": "10:00:00", "n": 2})
    _alter(site, table, {"action": "dropColumn", "fieldNames": ["at"]})
    set_options(site.database, table, {"iceberg.publish": "true"})
    assert publish(site.database, site.warehouse) == 1
    for reader in READERS:
        assert read(site, table, reader) == [{"id": 1, "n": 2}]


def _alter(site: MergeSite, table: Table, change: Mapping[str, Any]) -> None:
    alter_table(site.database, (table.database, table.name), [change])


def test_the_manifest_of_a_run_is_written_once_and_named_again(site: MergeSite, database: CatalogDatabase) -> None:
    table = create_table(database, PUBLISHED_ROWS)
    merge(site, table, {"id": 1, "n": 1}, {"_kind": "-D", "id": 2, "n": 1})
    publish(database, site.warehouse)
    before = files_of(site.warehouse, table)
    _alter(site, table, {"action": "addColumn", "fieldNames": ["note"], "dataType": "STRING"})
    publish(database, site.warehouse)
    first, second = (named_manifests(site.warehouse, version) for version in versions(site, table))
    assert first == second
    assert [one["content"] for one in first] == [0, 1]  # its rows, and those of them that are deleted
    assert {(one["sequence_number"], one["added_snapshot_id"]) for one in second} == {(1, 1)}
    after = files_of(site.warehouse, table)
    assert {name: after[name] for name in before} == before


def test_files_of_a_warehouse_without_them_are_written_again(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 1})
    compact(site, table)
    publish(site.database, site.warehouse)
    site.warehouse.filesystem.delete_dir(site.warehouse.path(*iceberg_file(table.id)))
    with site.database.transaction() as repository:
        repository.published.mark_unwritten()
    assert publish(site.database, site.warehouse) == 2
    assert read(site, table) == [{"id": 1, "n": 2}]


def test_versions_and_their_files_are_forgotten_and_the_others_stay_readable(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISHED | {"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s"})
    several_versions(site, table)
    then = later(site.database, hours=2)
    assert keep_versions(site.database, site.warehouse, table.id, Format.ICEBERG, then) == 2
    [kept] = versions(site, table)
    assert kept.version == 2
    assert [one.snapshot_id for one in StaticTable.from_metadata(metadata(site, table)).snapshots()] == [kept.as_of]
    names = {name for name in files_of(site.warehouse, table) if name.startswith("metadata/")}
    assert names == {"metadata/snap-2.avro", f"metadata/{metadata_file(kept)[-1]}"}
    sweep(site.database, site.warehouse, timedelta(0))  # of the table's own snapshots one is kept
    keep_versions(site.database, site.warehouse, table.id, Format.ICEBERG, then)
    assert len({name.split("/")[1] for name in files_of(site.warehouse, table) if name.startswith("runs/")}) == 1
    assert read(site, table) == [{"id": 1, "n": 3}]


def test_a_format_that_is_turned_on_later_begins_then_and_the_other_goes_on(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"delta.publish": "true"})
    merge(site, table, {"id": 1, "n": 1})
    set_options(site.database, table, {"iceberg.publish": "true", "delta.publish": "false"})
    merge(site, table, {"id": 1, "n": 1})
    compact(site, table)
    publish(site.database, site.warehouse)
    assert read(site, table) == [{"id": 1, "n": 2}]
    of_formats = {one: [v.as_of for v in delta_logs.versions(site.database, table, one)] for one in Format}
    assert of_formats == {Format.DELTA: [1], Format.ICEBERG: [1, 3]}
