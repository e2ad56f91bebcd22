"""A table that publishes, its log, and what engines read of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.core.table.published import Format, PublishedVersion
from app.files.layout import Warehouse, delta_log, table_folder
from app.services.merging.merges import request_merge, run_next_merge
from app.services.publishing.publications import LEAST_INTERVAL, Publisher
from app.services.shared.executor import MergeSite
from tests.delta_readers import READERS, Rows
from tests.services.builders import SUM, post

PUBLISHED = SUM | {"delta.publish": "true", "num-sorted-run.compaction-trigger": "99"}


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


def versions(database: CatalogDatabase, table: Table) -> list[PublishedVersion]:
    with database.reading() as repository:
        return repository.published.page(table.id, Format.DELTA)


def merge(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> None:
    post(site.database, site.warehouse, *records)
    request_merge(site.database, table.id)
    assert run_next_merge(site, "worker")
