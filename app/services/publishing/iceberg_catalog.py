"""Answers of Iceberg's REST catalog: the published tables, and the metadata of one (docs/decisions/0053)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from app.catalog.repository import Repository
from app.core.errors import Resource, not_found
from app.core.table.history import Table
from app.core.table.published import Format
from app.files.layout import Warehouse
from app.services.publishing.formats import iceberg_versions
from app.services.shared.pages import Page, PageRequest, page_of
from app.storage.iceberg.metadata import empty_metadata, metadata_file, metadata_of


@dataclass(frozen=True)
class Loaded:
    """Iceberg's metadata of a table, and the URI of its file; None before the first version."""

    metadata: dict[str, Any]
    location: str | None


def list_published(
    repository: Repository, database: str, request: PageRequest, among: Collection[str] | None
) -> Page[str]:
    """Return the names of the published tables in a page of the database. Raise ``NotFound``."""
    listed = repository.tables.page(database, after=request.after, limit=request.and_one_more, among=among)
    page = page_of(listed, request, lambda table: table.name)
    known = repository.published.table_ids(Format.ICEBERG)
    names = [item.name for item in page.items if item.schema.parsed[Format.ICEBERG.publish] or item.id in known]
    return Page(names, page.next_token)


def load_table(repository: Repository, warehouse: Warehouse, table: Table, *, all_snapshots: bool = True) -> Loaded:
    """Return the published metadata of a table, which was read in the same transaction. Raise ``NotFound`` if it is
    not published.
    """
    versions, schemas = iceberg_versions(repository, table.id)
    if not versions and not table.schema.parsed[Format.ICEBERG.publish]:
        message = f"table {table.full_name} is not published as Iceberg: set iceberg.publish = true"
        raise not_found(Resource.TABLE, table.full_name, message)
    written = [version for version in versions if version.written_at is not None]
    if not written:
        return Loaded(empty_metadata(warehouse, table), None)
    location = warehouse.uri(*metadata_file(written[-1]))
    shown = written if all_snapshots else written[-1:]
    return Loaded(metadata_of(warehouse, shown, schemas), location)
