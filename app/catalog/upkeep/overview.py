"""All tables at a glance: the totals of a page of tables, in a few statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from app.catalog.shared.models import batches, databases, merges, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.tables import TABLES, table_of
from app.catalog.upkeep.stats import StagedTotals
from app.core.access import TokenScope
from app.core.table.history import SET_ASIDE, BatchState, Failures, Table, TaskKind, TaskState


@dataclass(frozen=True)
class MergeFailure:
    """Why the last merge of a table failed."""

    failures: Failures
    error: str


@dataclass(frozen=True)
class Overview:
    """Reads totals of many tables at once."""

    transaction: Transaction

    def tables(
        self, scope: TokenScope, *, after: tuple[str, str] | None = None, limit: int, part: str = ""
    ) -> list[Table]:
        """Return up to ``limit`` tables of ``scope`` in the order of their databases and names: after the table
        ``after``, with ``part`` in their full name.
        """
        query = TABLES.where(_in_scope(scope), *_having(part))
        if after is not None:
            query = query.where(sa.tuple_(databases.c.name, tables.c.name) > sa.tuple_(*after))
        query = query.order_by(databases.c.name, tables.c.name).limit(limit)
        return [table_of(row) for row in self.transaction.execute(query)]

    def count(self, scope: TokenScope, part: str = "") -> int:
        """Return how many tables of ``scope`` have ``part`` in their full name."""
        of_both = tables.join(databases, databases.c.id == tables.c.database_id)
        query = sa.select(sa.func.count()).select_from(of_both).where(_in_scope(scope), *_having(part))
        return int(self.transaction.execute(query).scalar_one())

    def counts(self, scope: TokenScope, names: Collection[str]) -> Mapping[str, int]:
        """Return how many tables of ``scope`` each of the databases ``names`` has."""
        of_both = tables.join(databases, databases.c.id == tables.c.database_id)
        query = sa.select(databases.c.name, sa.func.count()).select_from(of_both)
        query = query.where(_in_scope(scope), databases.c.name.in_(names)).group_by(databases.c.name)
        return {row[0]: row[1] for row in self.transaction.execute(query)}

    def failing(self, scope: TokenScope, limit: int) -> list[Table]:
        """Return up to ``limit`` tables of ``scope`` whose last merge failed, the latest failure first."""
        query = TABLES.where(_in_scope(scope), tables.c.failed_merges > 0).order_by(tables.c.merge_failed_at.desc())
        return [table_of(row) for row in self.transaction.execute(query.limit(limit))]

    def staged(self, table_ids: Collection[str]) -> Mapping[str, StagedTotals]:
        """Return the staging areas of the tables that have one."""
        columns = batches.c
        totals = (sa.func.count(), sa.func.sum(columns.records), sa.func.sum(columns.size_bytes))
        query = sa.select(columns.table_id, *totals, sa.func.min(columns.accepted_at))
        query = query.where(columns.state == BatchState.STAGED, columns.table_id.in_(table_ids))
        rows = self.transaction.execute(query.group_by(columns.table_id))
        return {row[0]: StagedTotals(row[1], int(row[2]), int(row[3]), row[4]) for row in rows}

    def set_aside(self, table_ids: Collection[str]) -> Mapping[str, int]:
        """Return how many batches of the tables are set aside."""
        query = sa.select(batches.c.table_id, sa.func.count())
        query = query.where(batches.c.state.in_(SET_ASIDE), batches.c.table_id.in_(table_ids))
        return {row[0]: row[1] for row in self.transaction.execute(query.group_by(batches.c.table_id))}

    def last_merges(self, table_ids: Collection[str]) -> Mapping[str, datetime]:
        """Return when the last merge of each table succeeded, if one is known."""
        query = sa.select(merges.c.table_id, sa.func.max(merges.c.finished_at))
        query = query.where(
            merges.c.table_id.in_(table_ids), merges.c.state == TaskState.SUCCEEDED, merges.c.kind == TaskKind.MERGE
        )
        return {row[0]: row[1] for row in self.transaction.execute(query.group_by(merges.c.table_id)) if row[1]}

    def merge_failures(self, table_ids: Collection[str]) -> Mapping[str, MergeFailure]:
        """Return the failures of the tables whose last merge failed."""
        failing = sa.select(tables.c.id, tables.c.failed_merges, tables.c.merge_failed_at)
        failing = failing.where(tables.c.id.in_(table_ids), tables.c.failed_merges > 0)
        return {row.id: self._failure(row) for row in self.transaction.execute(failing)}

    def _failure(self, row: AnyRow) -> MergeFailure:
        of_table = (merges.c.table_id == row.id) & (merges.c.kind == TaskKind.MERGE)
        query = sa.select(merges.c.error).where(of_table, merges.c.state == TaskState.FAILED)
        error = self.transaction.execute(query.order_by(merges.c.finished_at.desc()).limit(1)).scalar()
        return MergeFailure(Failures(row.failed_merges, row.merge_failed_at), error or "")


def _in_scope(scope: TokenScope) -> sa.ColumnElement[bool]:
    if scope.everything:
        return sa.true()
    whole = databases.c.name.in_(scope.databases)
    single = sa.tuple_(databases.c.name, tables.c.name).in_([*scope.tables])
    return sa.or_(whole, single) if scope.tables else whole


def _having(part: str) -> list[sa.ColumnElement[bool]]:
    full_name = databases.c.name + "." + tables.c.name
    return [sa.func.lower(full_name).contains(part.lower(), autoescape=True)] if part else []
