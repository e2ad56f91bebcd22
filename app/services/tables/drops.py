"""Dropping of tables and databases: from the catalog at once, then their files."""

from __future__ import annotations

import logging

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.files.layout import Warehouse, table_folder
from app.services.tables.tables import Check, no_check

log = logging.getLogger(__name__)


def drop_table(catalog: CatalogDatabase, warehouse: Warehouse, name: tuple[str, str], check: Check = no_check) -> None:
    """Remove the table ``name`` (database, table), then its files. Raise ``NotFound``, and what ``check`` raises if
    the table has changed since the caller read it.
    """
    with catalog.transaction() as repository:
        table = repository.tables.drop(*name)
        check(table)
    _remove_files(warehouse, table)


def drop_database(catalog: CatalogDatabase, warehouse: Warehouse, name: str, *, cascade: bool) -> int:
    """Remove the database ``name``, with ``cascade`` also its tables. Return the number of removed tables.

    All or nothing. Raise ``NotFound``, or ``Conflict`` if it has tables and ``cascade`` is false.
    """
    with catalog.transaction() as repository:
        repository.databases.row(name, lock=True)  # locked: no new table from here on
        names = repository.tables.names(name) if cascade else []
        repository.tables.lock_all(repository.tables.ids(name))  # in the order in which rounds of merges lock them
        dropped = [repository.tables.drop(name, table) for table in names]
        repository.databases.drop(name)
    for table in dropped:
        _remove_files(warehouse, table)
    return len(dropped)


def _remove_files(warehouse: Warehouse, table: Table) -> None:
    """Remove the files, as far as possible: once the catalog has forgotten the table they are garbage, which is also
    swept later.
    """
    folder = warehouse.path(*table_folder(table.id))
    try:
        warehouse.filesystem.delete_dir(folder)
    except FileNotFoundError:
        pass  # nothing was ever posted
    except OSError as error:
        log.warning(
            "the files of the dropped table %s stay in %s until they are swept: %s", table.full_name, folder, error
        )
