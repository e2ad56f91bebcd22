"""Tables that publish, their Delta logs, and what engines read of each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.core.table.published import Format, PublishedVersion
from app.files.layout import Warehouse, delta_log, table_folder
from app.services.publishing.publications import LEAST_INTERVAL, Publisher
from app.services.shared.executor import MergeSite
from app.storage.iceberg.metadata import metadata_file
from tests import delta_readers, iceberg_readers
from tests.delta_readers import READERS, Rows
from tests.services.builders import SUM

PUBLISHED = SUM | {"delta.publish": "true", "num-sorted-run.compaction-trigger": "99"}
BOTH = {one.publish: "true" for one in Format}
ENGINES = {Format.DELTA: delta_readers.READERS, Format.ICEBERG: iceberg_readers.READERS}


def publish(database: CatalogDatabase, warehouse: Warehouse) -> int:
    return Publisher(database, warehouse).publish()


def publish_merges(database: CatalogDatabase, warehouse: Warehouse) -> int:
    """As ``publish``, when the least interval between versions of merges is over."""
    publisher = Publisher(database, warehouse)
    with database.reading() as repository:
        later = repository.now() + LEAST_INTERVAL
    publisher.follow_merges(later)
    return publisher.publish()


def folder_of(warehouse: Warehouse, table: Table) -> str:
    return warehouse.path(*table_folder(table.id))


def log_of(warehouse: Warehouse, table: Table) -> list[str]:
    return sorted(path.name for path in Path(warehouse.path(*delta_log(table.id))).iterdir())


def actions(warehouse: Warehouse, table: Table, version: int) -> list[dict[str, Any]]:
    text = Path(warehouse.path(*delta_log(table.id, f"{version:020}.json"))).read_text()
    return [json.loads(line) for line in text.splitlines()]


def read(warehouse: Warehouse, table: Table, reader: str = "deltalake") -> Rows:
    return sorted(READERS[reader](folder_of(warehouse, table)), key=lambda row: str(row["id"]))


def versions(database: CatalogDatabase, table: Table, form: Format = Format.DELTA) -> list[PublishedVersion]:
    with database.reading() as repository:
        return repository.published.page(table.id, form)


def metadata(site: MergeSite, table: Table) -> str:
    """The newest metadata file of Iceberg."""
    return site.warehouse.path(*metadata_file(versions(site.database, table, Format.ICEBERG)[-1]))


def place_of(site: MergeSite, table: Table, form: Format) -> str:
    """What readers of the format are told: the folder, or the metadata."""
    return folder_of(site.warehouse, table) if form is Format.DELTA else metadata(site, table)


def read_by_all(site: MergeSite, table: Table, where: str = "id IS NOT NULL") -> Rows:
    """The rows, by key, that every engine reads of every format."""
    found = {
        (form, name): sorted(reader(place_of(site, table, form), where), key=str)
        for form, readers in ENGINES.items()
        for name, reader in readers.items()
    }
    rows = found[Format.DELTA, "deltalake"]
    assert found == dict.fromkeys(found, rows)
    return rows
