"""Whether what requests need answers, and whether the warehouse is this catalog's."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable
from app.storage.layout import Warehouse
from app.storage.writable import claim, holds_table, is_claimed, reason_of, try_writing

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Condition:
    """Why the catalog or the warehouse cannot be used now, in words; None where it can."""

    catalog: str | None
    warehouse: str | None


UNKNOWN = Condition("it does not answer in time", "it does not answer in time")


def condition_of(database: CatalogDatabase, warehouse: Warehouse) -> Condition:
    """Whether the catalog answers and is at this program's newest migration, and whether the warehouse can be written:
    a small file is.
    """
    catalog = _catalog_fault(database)
    if catalog is None and warehouse.is_store:
        take_warehouse(database, warehouse)  # it may not have answered when the service started
    return Condition(catalog, try_writing(warehouse))


def _catalog_fault(database: CatalogDatabase) -> str | None:
    try:
        database.ping()
        return None if database.is_current() else "it is not at this version's schema; run: keyfold migrate"
    except Unavailable as error:
        return error.message


def take_warehouse(database: CatalogDatabase, warehouse: Warehouse) -> None:
    """Mark the warehouse as the one that is written to, if it is new or holds files of the catalog's tables.

    A folder that should hold some and does not is another one: a disk that is not mounted, a wrong setting. Batches are
    kept out of it, and so they are of one that cannot be marked.
    """
    try:
        if is_claimed(warehouse):
            return
        with database.reading() as repository:
            tables = repository.stats.tables_with_files()
        if tables and not any(holds_table(warehouse, table) for table in tables):
            logger.error("the warehouse holds no file of the catalog's tables: is its disk mounted, its setting right?")
            return
        claim(warehouse)
    except OSError as error:
        logger.error("the warehouse cannot be written: %s", reason_of(error))  # noqa: TRY400  # the reason is all
