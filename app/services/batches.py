"""Batches as their owner sees them: listed, read, withdrawn."""

from __future__ import annotations

import re

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Invalid
from app.core.table.history import Batch, Table
from app.storage.layout import Warehouse
from app.storage.staging import delete_batch


def list_batches(
    repository: Repository, table: Table, page_token: str | None, limit: int
) -> tuple[list[Batch], str | None]:
    """Batches in arrival order after ``page_token``, and the token of the next page. Raises ``Invalid``."""
    found = repository.batches.page(table.id, after_number=_number_of(page_token), limit=limit + 1)
    page = found[:limit]
    return page, str(page[-1].number) if len(found) > limit else None


def _number_of(page_token: str | None) -> int:
    """The batch number that a page token is."""
    if not page_token:
        return 0
    if not re.fullmatch("[0-9]{1,18}", page_token):
        raise Invalid("the page token is not one that this list gave")
    return int(page_token)


def withdraw_batch(database: CatalogDatabase, warehouse: Warehouse, name: tuple[str, str], batch_id: str) -> Batch:
    """Take a staged batch of the table ``name`` (database, table) back.

    Raises ``NotFound``, and ``Conflict`` when a merge has it already.
    """
    with database.transaction() as repository:
        table = repository.tables.get(*name)
        batch = repository.batches.delete_staged(table.id, batch_id)
    delete_batch(warehouse, table.id, batch.file)
    return batch


def current_batch(database: CatalogDatabase, batch: Batch) -> Batch:
    """The batch as it is now."""
    with database.reading() as repository:
        return repository.batches.get(batch.table_id, batch.id)
