"""History: the records that merges have folded, kept for a while to explain rows (docs/decisions/0034).

Two snapshot numbers for each table say which records are kept, and where; merges have no extra work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.models import (
    batches,
    data_files,
    histories,
    history_bases,
    history_files,
    snapshot_runs,
    snapshots,
    tables,
)
from app.catalog.shared.transaction import Transaction
from app.catalog.tables.tables import Tables
from app.core.errors import NotFound
from app.core.table.history import Base, Batch, BatchState, HistoryExtent, HistoryFile

_FILE = tuple(history_files.c[field.name] for field in fields(HistoryFile))
_AT_ONCE = 500  # numbers in one query


def kept() -> sa.ColumnElement[bool]:
    """Return the condition that a batch's records are kept as history."""
    return _merged_after(_of_its_table(histories.c.since))


def unfiled() -> sa.ColumnElement[bool]:
    """Return the condition that they are kept in the batch's staging file alone."""
    return _merged_after(_of_its_table(histories.c.filed))


def _of_its_table(snapshot: sa.Column[int]) -> sa.ColumnElement[int]:
    """Return what the history of a batch's table has in the column ``snapshot``."""
    of_table = sa.select(snapshot).where(histories.c.table_id == batches.c.table_id)
    return sa.func.coalesce(of_table.scalar_subquery(), 0)


def _merged_after(snapshot: sa.ColumnElement[int] | int) -> sa.ColumnElement[bool]:
    """Return the condition that a batch with records was merged into a later snapshot."""
    return sa.and_(batches.c.state == BatchState.MERGED, batches.c.records > 0, batches.c.snapshot_id > snapshot)


@dataclass(frozen=True)
class HistoryTotals:
    """The records of merged batches that are kept, all since snapshot ``since`` (0: from the first), and their size:
    history files, and runs that are kept only for the ``bases`` of explanations.
    """

    since: int = 0
    batches: int = 0
    records: int = 0
    files: int = 0
    size_bytes: int = 0
    bases: int = 0
    base_bytes: int = 0


@dataclass(frozen=True)
class History:
    """Reads and writes the kept history."""

    transaction: Transaction
    tables: Tables

    def extent(self, table_id: str) -> HistoryExtent:
        """Return the extent of the table's kept history."""
        query = sa.select(histories.c.since, histories.c.filed).where(histories.c.table_id == table_id)
        row = self.transaction.execute(query).first()
        return HistoryExtent() if row is None else HistoryExtent(row.since, row.filed)

    def behind(self, least: int) -> list[str]:
        """Return the ids of the tables with snapshots whose records are not in history files yet, those of ``least``
        batches or more.
        """
        joined = tables.outerjoin(histories, histories.c.table_id == tables.c.id)
        filed = sa.func.coalesce(histories.c.filed, 0)
        condition = (batches.c.table_id == tables.c.id) & _merged_after(filed)
        waiting = sa.select(sa.func.count()).select_from(batches).where(condition).correlate(tables, histories)
        later = (tables.c.snapshot_id > filed, waiting.scalar_subquery() >= least)
        query = sa.select(tables.c.id).select_from(joined).where(*later)
        return list(self.transaction.execute(query).scalars())

    def unfiled(self, table_id: str, after: int = 0, most: int | None = None) -> list[Batch]:
        """Return the batches whose records are kept in their staging files alone, in merge order, from snapshots after
        ``after``; at most ``most``.
        """
        condition = (batches.c.table_id == table_id) & _merged_after(max(after, self.extent(table_id).filed))
        query = sa.select(batches).where(condition).order_by(batches.c.snapshot_id, batches.c.number).limit(most)
        return [checksums.batch_of(row) for row in self.transaction.execute(query)]

    def batches(self, table_id: str, numbers: Collection[int]) -> dict[int, Batch]:
        """Return those of the table's batches that have one of the ``numbers``, by number."""
        wanted = sorted(numbers)
        pieces = (self._some(table_id, wanted[start : start + _AT_ONCE]) for start in range(0, len(wanted), _AT_ONCE))
        return {batch.number: batch for some in pieces for batch in some}

    def files(self, table_id: str, after: int = 0) -> list[HistoryFile]:
        """Return the table's history files, oldest first, those with records of snapshots after ``after``."""
        query = sa.select(*_FILE).where(history_files.c.table_id == table_id, history_files.c.last_snapshot > after)
        # If a merge was cut into several files, the one that also has earlier merges comes first.
        age = (history_files.c.last_snapshot, history_files.c.first_snapshot)
        ordered = query.order_by(*age, history_files.c.schema_id, history_files.c.name)
        return [HistoryFile(*row) for row in self.transaction.execute(ordered)]

    def bases(self, table_id: str) -> list[Base]:
        """Return the snapshots that are kept as bases of explanations, oldest first."""
        same = (snapshots.c.table_id == history_bases.c.table_id) & (snapshots.c.id == history_bases.c.snapshot_id)
        query = sa.select(snapshots.c.id, snapshots.c.committed_at).join(history_bases, same)
        condition = query.where(history_bases.c.table_id == table_id).order_by(snapshots.c.id)
        return [Base(*row) for row in self.transaction.execute(condition)]

    def size_after(self, table_id: str, snapshot_id: int) -> int:
        """Return the bytes of the files that have records of later snapshots, of history and of staging."""
        filed = sa.select(sa.func.coalesce(sa.func.sum(history_files.c.size_bytes), 0)).where(
            history_files.c.table_id == table_id, history_files.c.last_snapshot > snapshot_id
        )
        staged = sa.select(sa.func.coalesce(sa.func.sum(batches.c.size_bytes), 0)).where(
            batches.c.table_id == table_id, _merged_after(max(snapshot_id, self.extent(table_id).filed))
        )
        return sum(int(self.transaction.execute(query).scalar_one()) for query in (filed, staged))

    def totals(self, table_id: str) -> HistoryTotals:
        """Return the totals of the table's kept history."""
        since = self.extent(table_id).since
        count = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(batches.c.records), 0))
        merged, records = self.transaction.execute(count.where(batches.c.table_id == table_id, kept())).one()
        files, bases = len(self.files(table_id)), len(self.bases(table_id))
        size, base_bytes = self.size_after(table_id, since), self._base_bytes(table_id)
        return HistoryTotals(since, merged, int(records), files, size, bases, base_bytes)

    def _base_bytes(self, table_id: str) -> int:
        """Return the bytes of the runs that only bases name, and that are not current."""
        named, current = snapshot_runs.c, sa.select(tables.c.snapshot_id).where(tables.c.id == table_id)
        bases = sa.select(history_bases.c.snapshot_id).where(history_bases.c.table_id == table_id)
        others = named.snapshot_id.not_in(bases) | (named.snapshot_id == current.scalar_subquery())
        elsewhere = sa.select(named.run_id).where(named.table_id == table_id, others)
        size = sa.select(sa.func.coalesce(sa.func.sum(data_files.c.size_bytes), 0))
        condition = size.where(data_files.c.table_id == table_id, data_files.c.run_id.not_in(elsewhere))
        return int(self.transaction.execute(condition).scalar_one())

    def begin_after(self, table_id: str, since: int, bases: Collection[int]) -> None:
        """Drop the history of snapshots up to ``since``, and keep exactly the snapshots ``bases`` for the rest. Raise
        ``NotFound`` if the table was dropped.
        """
        self.tables.lock(table_id)
        before = self.extent(table_id)
        self._say(table_id, before, HistoryExtent(since, max(since, before.filed)))
        kept = {base.snapshot_id for base in self.bases(table_id)}
        if unneeded := kept - set(bases):
            condition = (history_bases.c.table_id == table_id) & history_bases.c.snapshot_id.in_(unneeded)
            self.transaction.execute(history_bases.delete().where(condition))
        if new := set(bases) - kept:
            values = [{"table_id": table_id, "snapshot_id": number} for number in sorted(new)]
            self.transaction.execute(history_bases.insert(), values)
        old = (history_files.c.table_id == table_id) & (history_files.c.last_snapshot <= since)
        self.transaction.execute(history_files.delete().where(old))

    def file(
        self,
        table_id: str,
        before: HistoryExtent,
        filed: int,
        files: Sequence[HistoryFile],
        read: Collection[Batch] = (),
    ) -> bool:
        """Add ``files`` to the history: the kept records of the snapshots after ``before.filed`` up to ``filed``.

        ``read`` are the batches from which they were written. Return False and add nothing if the history is not
        ``before`` any more, or if keys were removed from a batch since. Raise ``NotFound`` if the table was dropped.
        """
        self.tables.lock(table_id)
        if self.extent(table_id) != before or not self._as_they_were(table_id, read):
            return False
        self._add(table_id, files)
        self._say(table_id, before, HistoryExtent(before.since, filed))
        return True

    def _as_they_were(self, table_id: str, read: Collection[Batch]) -> bool:
        return {batch.file for batch in read} <= {batch.file for batch in self.unfiled(table_id)}

    def join(self, table_id: str, parts: Sequence[HistoryFile], whole: HistoryFile) -> bool:
        """Replace ``parts`` by ``whole``, which has their records. Return False, and name nothing, if one of them no
        longer exists. Raise ``NotFound`` if the table was dropped.
        """
        self.tables.lock(table_id)
        condition = (history_files.c.table_id == table_id) & history_files.c.name.in_([part.name for part in parts])
        known = self.transaction.execute(sa.select(sa.func.count()).select_from(history_files).where(condition))
        if known.scalar_one() != len(parts):
            return False
        self.transaction.execute(history_files.delete().where(condition))
        self._add(table_id, [whole])
        return True

    def unnamed(self, table_id: str, names: Collection[str]) -> set[str]:
        """Return those of ``names`` that no history file has; none is added before the transaction ends, since adding
        takes the same lock.
        """
        try:
            self.tables.lock(table_id)
        except NotFound:
            return set(names)
        return set(names) - {file.name for file in self.files(table_id)}

    def _add(self, table_id: str, files: Sequence[HistoryFile]) -> None:
        if files:
            self.transaction.execute(history_files.insert(), [{"table_id": table_id, **asdict(file)} for file in files])

    def _say(self, table_id: str, before: HistoryExtent, now: HistoryExtent) -> None:
        if now == before:
            return
        change = histories.update().where(histories.c.table_id == table_id).values(asdict(now))
        if not self.transaction.execute(change).rowcount:
            self.transaction.execute(histories.insert().values(table_id=table_id, **asdict(now)))

    def _some(self, table_id: str, numbers: Sequence[int]) -> list[Batch]:
        query = sa.select(batches).where(batches.c.table_id == table_id, batches.c.number.in_(numbers))
        return [checksums.batch_of(row) for row in self.transaction.execute(query)]
