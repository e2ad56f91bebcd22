"""The catalog's rows of one table, loaded to be compared with their checksums: for ``keyfold verify`` and scrubs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.models import batches, runs, snapshot_runs, snapshots, table_schemas
from app.catalog.shared.transaction import Transaction
from app.catalog.snapshots.snapshots import Snapshots, named_runs, run_of
from app.catalog.tables.stored_schemas import schema_in
from app.catalog.tables.tables import Tables
from app.core.errors import DamagedCatalog

_AT_ONCE = 1000  # batches in one query: tables keep many days of them


@dataclass(frozen=True)
class Integrity:
    """Checks the catalog's rows of a table."""

    transaction: Transaction
    tables: Tables
    snapshots: Snapshots

    def faults(self, table_id: str) -> list[DamagedCatalog]:
        """Return an error for each of the table's catalog rows whose checksum does not match.

        The transaction must not have loaded anything before: ``CatalogDatabase.reading(afresh=True)``.
        """
        faults: list[DamagedCatalog] = []
        for check in (self._table, self._schemas, self._runs, self._snapshots, self._batches):
            with _kept(faults):  # a row that cannot be read at all ends the check of its kind
                check(table_id, faults)
        return faults

    def _table(self, table_id: str, _: list[DamagedCatalog]) -> None:
        self.tables.find(table_id)

    def _schemas(self, table_id: str, faults: list[DamagedCatalog]) -> None:
        current = self.tables.schema_id_of(table_id)
        condition = table_schemas.c.table_id == table_id
        for row in self.transaction.execute(
            sa.select(table_schemas).where(condition).order_by(table_schemas.c.schema_id)
        ):
            if row.schema_id != current:  # which the table itself was loaded with
                with _kept(faults):
                    schema_in(table_id, row.schema_id, row)

    def _runs(self, table_id: str, faults: list[DamagedCatalog]) -> None:
        files = self.snapshots.every_data_file(table_id)
        for row in self.transaction.execute(named_runs(table_id)):
            with _kept(faults):
                run_of(table_id, row, tuple(files.get(row.id, ())))

    def _snapshots(self, table_id: str, faults: list[DamagedCatalog]) -> None:
        same = (snapshot_runs.c.table_id == runs.c.table_id) & (snapshot_runs.c.run_id == runs.c.id)
        query = sa.select(snapshot_runs.c.snapshot_id, runs.c.id).join(runs, same)
        named: dict[int, list[str]] = defaultdict(list)
        condition = query.where(snapshot_runs.c.table_id == table_id)
        for number, run_id in self.transaction.execute(condition.order_by(snapshot_runs.c.position)):
            named[number].append(run_id)
        every = sa.select(snapshots).where(snapshots.c.table_id == table_id).order_by(snapshots.c.id)
        for row in self.transaction.execute(every):
            with _kept(faults):
                checksum = checksums.of_snapshot(table_id, row.id, row.schema_id, named.get(row.id, ()))
                checksums.check(row.checksum, checksum, checksums.of_runs_named(table_id, row.id))

    def _batches(self, table_id: str, faults: list[DamagedCatalog]) -> None:
        query = sa.select(batches).where(batches.c.table_id == table_id).order_by(batches.c.number).limit(_AT_ONCE)
        after = -1
        while rows := self.transaction.execute(query.where(batches.c.number > after)).all():
            after = rows[-1].number
            for row in rows:
                with _kept(faults):
                    checksums.batch_of(row)


@contextmanager
def _kept(faults: list[DamagedCatalog]) -> Iterator[None]:
    try:
        yield
    except DamagedCatalog as error:
        faults.append(error)
