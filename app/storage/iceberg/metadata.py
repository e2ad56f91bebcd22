"""The metadata of a published table: the answer of a catalog that loads it, and a file for readers without a catalog.

It follows from the versions that are kept, and from the schemas of the table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from app.core.plan.columns.iceberg_schema import iceberg_schema
from app.core.table.history import Table
from app.core.table.published import PublishedVersion
from app.core.table.schema import TableSchema
from app.core.types.field_ids import LARGEST_ID
from app.files.layout import Warehouse, iceberg_file
from app.storage.iceberg.snapshots import list_file, sequence_number
from app.storage.published.replaced import replace_file

_FIRST_PARTITION_FIELD: Final = 1000
# Spark's procedures remove files that they consider orphaned, without the catalog; with this property they refuse.
_PROPERTIES: Final = {"gc.enabled": "false"}


def metadata_file(version: PublishedVersion) -> tuple[str, ...]:
    """Return the segments of the metadata of the versions up to this one. The name differs from those that Iceberg's
    folder catalogs search: they would write the next version themselves.
    """
    name = f"{version.version:05}-{uuid.UUID(version.table_id)}.metadata.json"
    return iceberg_file(version.table_id, "metadata", name)


def metadata_of(
    warehouse: Warehouse, versions: Sequence[PublishedVersion], schemas: Mapping[int, TableSchema]
) -> dict[str, Any]:
    """Return Iceberg's metadata (version 2) of a table with these versions, in order and at least one; ``schemas`` are
    those of the versions, by id.
    """
    newest = versions[-1]
    of_snapshots = {version.as_of: version for version in versions}  # the newest of those that show the same
    shown = list(of_snapshots.values())
    parents = [None, *(version.as_of for version in shown)]
    return _metadata(warehouse, newest.table_id, schemas, newest.schema_id) | {
        "last-sequence-number": sequence_number(newest),
        "last-updated-ms": _millis(newest.committed_at),
        "current-snapshot-id": newest.as_of,
        "refs": {"main": {"snapshot-id": newest.as_of, "type": "branch"}},
        "snapshots": [
            _snapshot(warehouse, published_version, before)
            for published_version, before in zip(shown, parents, strict=False)
        ],
        "snapshot-log": [
            {"snapshot-id": published_version.as_of, "timestamp-ms": _millis(published_version.committed_at)}
            for published_version in shown
        ],
    }


def empty_metadata(warehouse: Warehouse, table: Table) -> dict[str, Any]:
    """Return the metadata of a table that is to be published and has no version yet."""
    return _metadata(warehouse, table.id, {table.schema_id: table.schema}, table.schema_id) | {
        "last-sequence-number": 0,
        "last-updated-ms": _millis(table.created_at),
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
    }


def _metadata(warehouse: Warehouse, table_id: str, schemas: Mapping[int, TableSchema], current: int) -> dict[str, Any]:
    return {
        "format-version": 2,
        "table-uuid": str(uuid.UUID(table_id)),
        "location": warehouse.uri(*iceberg_file(table_id)),
        "last-column-id": LARGEST_ID,  # hidden columns of the files have ids, too: ClickHouse refuses larger ones
        "schemas": [iceberg_schema(schemas[number]) | {"schema-id": number} for number in sorted(schemas)],
        "current-schema-id": current,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": _FIRST_PARTITION_FIELD - 1,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": _PROPERTIES,
        "metadata-log": [],
    }


def _snapshot(warehouse: Warehouse, version: PublishedVersion, parent: int | None) -> dict[str, Any]:
    return {
        "snapshot-id": version.as_of,
        **({} if parent is None else {"parent-snapshot-id": parent}),
        "sequence-number": sequence_number(version),
        "timestamp-ms": _millis(version.committed_at),
        "manifest-list": warehouse.uri(*list_file(version)),
        "schema-id": version.schema_id,
        "summary": {"operation": "overwrite", **_totals(version)},
    }


def _totals(version: PublishedVersion) -> dict[str, str]:
    """Return the summary totals that Iceberg's writers record, and from which readers estimate and count rows; empty
    for versions of an earlier release.
    """
    counts = version.counts
    if counts is None:
        return {}
    totals = {
        "total-data-files": counts.data_files,
        "total-records": counts.rows,
        "total-delete-files": counts.delete_files,
        "total-position-deletes": counts.deleted_rows,
        "total-equality-deletes": 0,
    }
    return {name: str(count) for name, count in totals.items()}


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def write_metadata(
    warehouse: Warehouse, versions: Sequence[PublishedVersion], schemas: Mapping[int, TableSchema]
) -> None:
    """Write the metadata as a file, for readers without a catalog."""
    content = json.dumps(metadata_of(warehouse, versions, schemas), ensure_ascii=False).encode()
    replace_file(warehouse, metadata_file(versions[-1]), content)
