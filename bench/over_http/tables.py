"""Tables whose runs are written directly and committed to a real catalog: what merges leave, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.catalog.database import CatalogDatabase
from app.core.table.history import Snapshot, SnapshotKind, Table
from app.files.layout import Warehouse
from app.settings import Settings
from bench.reads.orders import Orders, write_run
from bench.site import DATABASE, NO_COMPACTION

TABLES_PATH = f"/v1/catalog/databases/{DATABASE}/tables"


class CommittedTables:
    """A data folder with catalog and warehouse, for services to serve."""

    def __init__(self, folder: Path) -> None:
        settings = Settings(KEYFOLD_DATA=folder)
        self.folder = folder
        self.warehouse = Warehouse(settings.warehouse_root)
        self.database = CatalogDatabase(settings.catalog_url, folder=folder)
        self.database.migrate()
        with self.database.transaction() as repository:
            repository.databases.create(DATABASE, {})

    def create(self, name: str, orders: Orders) -> Table:
        """An empty table that nothing compacts."""
        with self.database.transaction() as repository:
            return repository.tables.create(DATABASE, name, orders.schema(NO_COMPACTION))

    def commit(self, table: Table, orders: Orders, rows: int) -> Snapshot:
        """One more run, with the same keys as the others, and the snapshot that has it; notify the readers."""
        with self.database.reading() as repository:
            base = repository.snapshots.current(table.id)
        before = base.runs if base else ()
        run = write_run(self.warehouse, table.id, f"r{len(before)}", orders, rows, seed=len(before))
        runs = [replace(run, schema_id=table.schema_id)]
        with self.database.transaction() as repository:
            kind = SnapshotKind.MERGE
            return repository.snapshots.commit(table.id, base.id if base else None, [*before, *runs], kind)

    def close(self) -> None:
        """End the catalog's connections."""
        self.database.close()
