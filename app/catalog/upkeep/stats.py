"""Counts of a table: rows, files, staged and merged batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from app.catalog.shared.models import (
    batches,
    changelog_files,
    damages,
    data_files,
    databases,
    forgettings,
    merges,
    snapshots,
    tables,
    tags,
)
from app.catalog.shared.transaction import Transaction
from app.catalog.tables.tables import TABLES, intact
from app.catalog.tasks.tasks import FORGOTTEN, task_of
from app.core.table.history import SET_ASIDE, BatchState, CatalogTask, TaskKind, TaskState
from app.core.table.upkeep.overdue import Wait

_LAST_BATCHES = 100


@dataclass(frozen=True)
class StagedTotals:
    """The batches that no merge has folded yet."""

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    oldest_accepted_at: datetime | None = None


@dataclass(frozen=True)
class StagedTable:
    """The staged batches of the table with this name."""

    table_id: str
    database: str
    table: str
    staged: StagedTotals


@dataclass(frozen=True)
class RetainedTotals:
    """The totals of kept snapshots and tags; files in several snapshots count once."""

    snapshots: int = 0
    tags: int = 0
    files: int = 0
    size_bytes: int = 0
    changelog_bytes: int = 0


@dataclass(frozen=True)
class Stats:
    """Counts rows and files of tables."""

    transaction: Transaction

    def staged(self, table_id: str) -> StagedTotals:
        """Return the table's staging area."""
        columns = batches.c
        query = sa.select(
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(columns.records), 0),
            sa.func.coalesce(sa.func.sum(columns.size_bytes), 0),
            sa.func.min(columns.accepted_at),
        ).where(columns.table_id == table_id, columns.state == BatchState.STAGED)
        count, records, size, oldest = self.transaction.execute(query).one()
        return StagedTotals(count, int(records), int(size), oldest)

    def ignored_columns(self, table_id: str) -> dict[str, int]:
        """Return the ignored columns of the last hundred batches that had some, with counts as in
        ``Batch.ignored_columns``.
        """
        query = (
            sa.select(batches.c.ignored_columns)
            .where(batches.c.table_id == table_id, batches.c.ignored_columns.is_not(None))
            .order_by(batches.c.number.desc())
            .limit(_LAST_BATCHES)
        )
        counts: Counter[str] = Counter()
        for row in self.transaction.execute(query):
            counts.update(row.ignored_columns)
        return dict(counts)

    def staged_tables(self) -> list[StagedTable]:
        """Return the staging area of every table that has one, the largest first."""
        size = sa.func.sum(batches.c.size_bytes)
        query = (
            sa.select(
                tables.c.id,
                databases.c.name.label("database"),
                tables.c.name,
                sa.func.count().label("batches"),
                sa.func.sum(batches.c.records).label("records"),
                size.label("size"),
                sa.func.min(batches.c.accepted_at).label("oldest"),
            )
            .select_from(
                batches.join(tables, tables.c.id == batches.c.table_id).join(
                    databases, databases.c.id == tables.c.database_id
                )
            )
            .where(batches.c.state == BatchState.STAGED)
            .group_by(tables.c.id, databases.c.name, tables.c.name)
            .order_by(size.desc(), tables.c.id)
        )
        return [
            StagedTable(
                row.id, row.database, row.name, StagedTotals(row.batches, int(row.records), int(row.size), row.oldest)
            )
            for row in self.transaction.execute(query)
        ]

    def waits(self, table_id: str | None = None) -> list[Wait]:
        """Return how long the oldest staged batch of each table (or of one) has waited, claimed or not; the oldest
        first.
        """
        staged = sa.select(batches.c.table_id, sa.func.min(batches.c.accepted_at).label("oldest"))
        staged = staged.where(
            batches.c.state == BatchState.STAGED, *([batches.c.table_id == table_id] if table_id else [])
        )
        of_table = staged.group_by(batches.c.table_id).subquery()
        runs = sa.exists().where(
            merges.c.table_id == tables.c.id, merges.c.kind == TaskKind.MERGE, merges.c.state == TaskState.RUNNING
        )
        forgets = sa.exists().where(forgettings.c.table_id == tables.c.id, forgettings.c.forgotten_at.is_(None))
        query = (
            TABLES.add_columns(of_table.c.oldest, tables.c.failed_merges)
            .add_columns(runs.label("merging"), forgets.label("forgetting"))
            .join(of_table, of_table.c.table_id == tables.c.id)
            .order_by(of_table.c.oldest, tables.c.id)
        )
        return [
            Wait(table, row.oldest, row.failed_merges > 0, bool(row.merging), bool(row.forgetting))
            for row, table in intact(self.transaction.execute(query))
        ]

    def tables_with_files(self, most: int = 100) -> list[str]:
        """Return the ids of up to ``most`` tables with staged batches, and up to as many with data files."""
        staged = sa.select(batches.c.table_id).where(batches.c.state == BatchState.STAGED, batches.c.records > 0)
        of_runs = sa.select(data_files.c.table_id)
        table_ids = [self.transaction.execute(query.distinct().limit(most)).scalars() for query in (staged, of_runs)]
        return sorted({table_id for ids in table_ids for table_id in ids})

    def failing_tables(self) -> int:
        """Return how many tables' last merge has failed."""
        query = sa.select(sa.func.count()).select_from(tables).where(tables.c.failed_merges > 0)
        return int(self.transaction.execute(query).scalar_one())

    def set_aside_batches(self) -> int:
        """Return how many batches are set aside."""
        query = sa.select(sa.func.count()).select_from(batches).where(batches.c.state.in_(SET_ASIDE))
        return int(self.transaction.execute(query).scalar_one())

    def damaged_files(self) -> int:
        """Return how many files are known to be damaged."""
        return int(self.transaction.execute(sa.select(sa.func.count()).select_from(damages)).scalar_one())

    def unclaimed_since(self) -> datetime | None:
        """Return when the oldest pending task was requested, if no worker holds a lease; None if there is none."""
        now = self.transaction.now()
        held = sa.select(merges.c.id).where(merges.c.state == TaskState.RUNNING, merges.c.lease_expires_at > now)
        if self.transaction.execute(held.limit(1)).first() is not None:
            return None
        oldest = sa.select(sa.func.min(merges.c.requested_at)).where(merges.c.state == TaskState.PENDING)
        since: datetime | None = self.transaction.execute(oldest).scalar_one()
        return since

    def retained(self, table_id: str) -> RetainedTotals:
        """Return all snapshots, tags, files and changelogs of the table."""
        files, size = self._files(data_files, table_id)
        _, changelogs = self._files(changelog_files, table_id)
        snapshot_count, tag_count = self._count(snapshots, table_id), self._count(tags, table_id)
        return RetainedTotals(snapshot_count, tag_count, files, size, changelogs)

    def succeeded(self, table_id: str, kind: TaskKind) -> tuple[int, CatalogTask | None]:
        """Return how many merges (or compactions) of the table have succeeded, and the last of them."""
        over = (merges.c.table_id == table_id) & (merges.c.state == TaskState.SUCCEEDED) & (merges.c.kind == kind)
        listed = self.transaction.execute(sa.select(sa.func.count()).where(over)).scalar_one()
        forgotten = self.transaction.execute(sa.select(FORGOTTEN[kind]).where(tables.c.id == table_id)).scalar() or 0
        newest = sa.select(merges).where(over).order_by(merges.c.finished_at.desc(), merges.c.id).limit(1)
        row = self.transaction.execute(newest).first()
        return listed + forgotten, None if row is None else task_of(row)

    def _files(self, source: sa.Table, table_id: str) -> tuple[int, int]:
        query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(source.c.size_bytes), 0))
        count, size = self.transaction.execute(query.where(source.c.table_id == table_id)).one()
        return count, int(size)

    def _count(self, source: sa.Table, table_id: str) -> int:
        query = sa.select(sa.func.count()).select_from(source).where(source.c.table_id == table_id)
        return int(self.transaction.execute(query).scalar_one())
