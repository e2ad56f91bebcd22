"""Readiness: whether the catalog and the warehouse answer, and whether the warehouse belongs to this catalog."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from app.catalog.database import CatalogDatabase
from app.core.errors import DamagedCatalog, Unavailable
from app.files.layout import Warehouse
from app.files.writable import claim, holds_table, holds_tables, is_claimed, reason_of, try_writing
from app.services.shared.polled import Refreshed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Condition:
    """Why the catalog or the warehouse cannot be used now, in words; None if it can."""

    catalog: str | None
    warehouse: str | None


@dataclass(frozen=True)
class _Verdict:
    fault: str | None


_SILENT = _Verdict("it does not answer in time")


class Conditions:
    """Checks that the catalog answers and is at this program's newest migration, and that a small file can be written
    to the warehouse. The checks are separate: if one hangs, the other still reports.
    """

    def __init__(
        self, database: CatalogDatabase, warehouse: Warehouse, seconds: float, patience_seconds: float
    ) -> None:
        """See ``Refreshed`` for ``seconds`` and ``patience_seconds``."""
        self._catalog = Refreshed(lambda: _Verdict(_catalog_fault(database)), seconds, patience_seconds)
        self._warehouse = Refreshed(lambda: _Verdict(warehouse_fault(database, warehouse)), seconds, patience_seconds)

    async def now(self) -> Condition:
        """Return the condition that was measured recently; a part that does not answer in time is not ready."""
        catalog, warehouse = await asyncio.gather(self._catalog.now(), self._warehouse.now())
        return Condition((catalog or _SILENT).fault, (warehouse or _SILENT).fault)


def warehouse_fault(database: CatalogDatabase, warehouse: Warehouse) -> str | None:
    """Return why the warehouse cannot be written; None if a file could be written there just now."""
    if warehouse.is_store:  # it may not have answered when the service started
        try:
            _taken(database, warehouse)
        except OSError as error:
            return reason_of(error)
        except (Unavailable, DamagedCatalog) as error:
            return f"whether it is this catalog's is unknown: {error.message}"
    return try_writing(warehouse)


def _catalog_fault(database: CatalogDatabase) -> str | None:
    try:
        database.ping()
        return None if database.is_current() else "it is not at this version's schema; run: keyfold migrate"
    except (Unavailable, DamagedCatalog) as error:
        return error.message


def check_not_lost(database: CatalogDatabase, warehouse: Warehouse) -> None:
    """Raise ``Unavailable`` before a new catalog is created for a warehouse that holds tables. The old catalog was
    lost, or the setting is wrong; an empty catalog would let sweeps delete all files.
    """
    try:
        lost = database.revision() is None and holds_tables(warehouse) and database.revision() is None
    except OSError:  # a warehouse that does not answer is not swept either
        return
    if lost:
        raise Unavailable(
            "there is no catalog, but the warehouse holds tables: put the catalog's file or database, or a backup of"
            " it, in its place; to start empty, name another warehouse or remove this one"
        )


def take_warehouse(database: CatalogDatabase, warehouse: Warehouse) -> None:
    """Mark the warehouse as this catalog's, if it is new or holds files of the catalog's tables.

    A folder without the expected files is the wrong one: a disk is not mounted, or a setting is wrong. No batches are
    written to it, nor to one that cannot be marked. Raise ``Unavailable`` if the catalog does not answer.
    """
    try:
        if not _taken(database, warehouse):
            logger.error("the warehouse holds no file of the catalog's tables: check its disk and its setting")
    except OSError as error:
        logger.error("the warehouse cannot be written: %s", reason_of(error))  # noqa: TRY400  # the reason is all


def _taken(database: CatalogDatabase, warehouse: Warehouse) -> bool:
    """Return whether the mark exists, and create it if it may. Raise ``OSError``, ``Unavailable``."""
    if is_claimed(warehouse):
        return True
    with database.reading() as repository:
        tables = repository.stats.tables_with_files()
    if tables and not any(holds_table(warehouse, table) for table in tables):
        return False
    claim(warehouse)
    return True
