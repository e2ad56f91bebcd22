"""What is published in a bucket of a real S3 server over HTTP, read from there."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable

from app.core.table.history import Table
from app.core.table.published import Format
from app.files.layout import Warehouse, table_folder
from app.services.operating.readiness import take_warehouse
from app.services.publishing.publications import keep_versions
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_table
from app.services.upkeep.sweeps import sweep
from app.storage.iceberg.metadata import metadata_file
from tests.delta_readers import plain
from tests.object_store import Fault, FaultyLine, objects_in
from tests.services.builders import compact, create_table, later, merge
from tests.services.publishing.delta_logs import BOTH, publish, versions

pytestmark = pytest.mark.slow(reason="starts an object store")


def test_what_is_published_in_a_bucket_is_written_kept_and_removed(site: MergeSite, store: str) -> None:
    take_warehouse(site.database, site.warehouse)
    table = create_table(site.database, {**BOTH, "sequence.field": "n"})
    for number in range(3):
        merge(site, table, {"id": number, "n": 1})
    merge(site, table, {"id": 3, "n": 1}, {"_kind": "-D", "id": 1, "n": 2})
    compact(site, table)
    for _ in range(2):
        assert publish(site.database, site.warehouse) == 4
        with site.database.transaction() as repository:
            repository.published.mark_unwritten()  # then they are there: nothing is written over
    assert publish(site.database, site.warehouse) == 4
    metadata = site.warehouse.uri(*metadata_file(versions(site.database, table, Format.ICEBERG)[-1]))
    settings = {
        "s3.endpoint": f"http://{store}",
        "s3.region": "us-east-1",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    iceberg = StaticTable.from_metadata(metadata, settings)
    for _ in range(2):
        assert read(site.warehouse, table, store) == [{"id": number, "n": 1} for number in (0, 2, 3)]
        assert sorted(iceberg.scan().to_arrow()["id"].to_pylist()) == [0, 2, 3]
        for form in Format:
            keep_versions(site.database, site.warehouse, table.id, form, later(site.database, hours=2))
            assert len(versions(site.database, table, form)) == 1
    drop_table(site.database, site.warehouse, ("shop", "wide"))
    sweep(site.database, site.warehouse, timedelta(seconds=-10))
    assert not [name for name in objects_in(site.warehouse) if "_delta_log" in name or "iceberg" in name]


def test_files_are_requested_before_one_is_answered(site: MergeSite, line: FaultyLine) -> None:
    table = create_table(site.database, {**BOTH, "sequence.field": "n"}, partitions=("id",))
    merge(site, table, *({"id": number, "n": 1} for number in range(5)))
    asked = len(line.requests)
    line.fail(Fault.SILENCE)
    assert publish(site.database, site.warehouse) == 0
    line.heal()
    files = {request.split()[1] for request in line.requests[asked:] if request.split()[1].endswith(".parquet")}
    assert len(files) == 5
    assert publish(site.database, site.warehouse) == 2


def read(warehouse: Warehouse, table: Table, store: str) -> list[dict[str, object]]:
    options = {
        "AWS_ENDPOINT_URL": f"http://{store}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
        "AWS_SECRET_ACCESS_KEY": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    found = DeltaTable(warehouse.uri(*table_folder(table.id)), storage_options=options)
    rows = plain(QueryBuilder().register("t", found).execute("SELECT * FROM t").read_all())
    return sorted(rows, key=lambda row: str(row["id"]))
