"""Batches as their owner sees them: listed, read, withdrawn."""

from __future__ import annotations

from enum import StrEnum

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.table.history import Batch, BatchState, Table
from app.files.layout import Warehouse
from app.services.shared.pages import Page, PageRequest, page_of
from app.storage.staging.staging import delete_batch


class BatchOrder(StrEnum):
    """Which end of a table's batches a list begins with; they are numbered as they came."""

    NEWEST = "newest"
    OLDEST = "oldest"


def list_batches(
    repository: Repository,
    table: Table,
    request: PageRequest,
    state: BatchState | None = None,
    order: BatchOrder = BatchOrder.NEWEST,
) -> Page[Batch]:
    """A page of the table's batches, of those that are in ``state`` if one is given. Raises ``Invalid``."""
    look = repository.batches.newest if order is BatchOrder.NEWEST else repository.batches.page
    found = look(table.id, after_number=request.after_number, limit=request.and_one_more, state=state)
    return page_of(found, request, lambda batch: batch.number)


def withdraw_batch(database: CatalogDatabase, warehouse: Warehouse, name: tuple[str, str], batch_id: str) -> Batch:
    """Take a staged batch of the table ``name`` (database, table) back.

    Raises ``NotFound``, and ``Conflict`` when a merge has it already.
    """
    with database.transaction() as repository:
        table = repository.tables.get(*name)
        batch = repository.batches.delete_staged(table.id, batch_id)
    delete_batch(warehouse, table.id, batch.file)
    return batch


def retry_batch(database: CatalogDatabase, name: tuple[str, str], batch_id: str) -> Batch:
    """Stage a batch again that was set aside, under the next number: it counts as come now.

    Raises ``NotFound``, and ``Conflict`` for a batch that is not set aside.
    """
    with database.transaction() as repository:
        table = repository.tables.get(*name)
        repository.set_aside.take_back(repository.batches.get(table.id, batch_id))
        return repository.batches.get(table.id, batch_id)


def current_batch(database: CatalogDatabase, batch: Batch) -> Batch:
    """The batch as it is now."""
    with database.reading() as repository:
        return repository.batches.get(batch.table_id, batch.id)
