"""Merges and compactions for their requesters, and the backlogs from which a worker requests them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

import sqlalchemy as sa

from app.catalog.shared.models import batches, merges, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.tables import TABLES, Tables, intact
from app.core.errors import Invalid, NotFound, Resource, not_found
from app.core.table.history import Backlog, BatchState, CatalogTask, Failures, Table, TaskKind, TaskState, TaskTrigger

FORGOTTEN: Mapping[TaskKind, sa.Column[int]] = {
    TaskKind.MERGE: tables.c.forgotten_merges,
    TaskKind.COMPACTION: tables.c.forgotten_compactions,
}
"""Where a table counts those that succeeded and are not listed any more."""

# It repeats other conditions, to use the indexes of unfinished tasks: the list of all tasks is long.
_other = merges.alias("other")
UNFINISHED = merges.c.id.in_(
    sa.union_all(
        *(sa.select(_other.c.id).where(_other.c.state == state) for state in (TaskState.PENDING, TaskState.RUNNING))
    )
)
"""Merges and compactions that wait or run."""

# Requests that come together get times with this difference.
_ONE_AFTER_ANOTHER = timedelta(microseconds=1)
_ADDED = merges.insert()
_kind: sa.BindParameter[TaskKind] = sa.bindparam("of")
_PENDING = sa.select(merges.c.table_id).where(
    merges.c.table_id.in_(sa.bindparam("tables", expanding=True)),
    merges.c.kind == _kind,
    merges.c.state == TaskState.PENDING,
)
_unclaimed = (batches.c.state == BatchState.STAGED) & batches.c.merge_id.is_(None)
_backlog_of = (
    sa.select(
        batches.c.table_id,
        sa.func.count().label("batches"),
        sa.func.sum(batches.c.records).label("records"),
        sa.func.min(batches.c.accepted_at).label("oldest"),
        sa.func.max(batches.c.accepted_at).label("newest"),
    )
    .where(_unclaimed)
    .group_by(batches.c.table_id)
    .subquery()
)
_merges_wait = sa.select(merges.c.table_id).where(merges.c.state == TaskState.PENDING, merges.c.kind == TaskKind.MERGE)
# Built once: building it takes as long as running it, and workers run it at every commit.
_BACKLOGS = (
    TABLES.add_columns(_backlog_of.c.batches, _backlog_of.c.records, _backlog_of.c.oldest, _backlog_of.c.newest)
    .add_columns(tables.c.failed_merges, tables.c.merge_failed_at, tables.c.id.in_(_merges_wait).label("pending"))
    .join(_backlog_of, _backlog_of.c.table_id == tables.c.id, isouter=True)
    .where(tables.c.id.in_(sa.select(batches.c.table_id).where(_unclaimed).union(_merges_wait)))
    .order_by(_backlog_of.c.oldest, tables.c.id)
)


def _failed(compactions: sa.ColumnElement[bool]) -> sa.Select[AnyRow]:
    """Return the tables whose last compaction in ``compactions`` has failed, with the number of failures in a row, and
    the time.
    """
    succeeded = (
        sa.select(merges.c.table_id, sa.func.max(merges.c.finished_at).label("at"))
        .where(compactions, merges.c.state == TaskState.SUCCEEDED)
        .group_by(merges.c.table_id)
        .subquery()
    )
    since = succeeded.c.at.is_(None) | (merges.c.finished_at > succeeded.c.at)
    return (
        sa.select(merges.c.table_id, sa.func.count().label("failures"), sa.func.max(merges.c.finished_at).label("at"))
        .join(succeeded, succeeded.c.table_id == merges.c.table_id, isouter=True)
        .where(compactions, merges.c.state == TaskState.FAILED, since)
        .group_by(merges.c.table_id)
    )


_compactions = merges.c.kind == TaskKind.COMPACTION
_FAILED = _failed(_compactions)
_FAILED_OF = _failed(_compactions & merges.c.table_id.in_(sa.bindparam("tables", expanding=True)))
_TASK_COLUMNS = [merges.c[field.name] for field in fields(CatalogTask)]


def task_of(row: AnyRow) -> CatalogTask:
    """Return the task that a row of ``merges`` describes; without its lease, which only workers need."""
    return CatalogTask(**{column.key: row._mapping[column] for column in _TASK_COLUMNS})


@dataclass(frozen=True)
class Tasks:
    """Requests, lists, cancels and deletes tasks."""

    transaction: Transaction
    tables: Tables

    def request(
        self, table_id: str, trigger: TaskTrigger, kind: TaskKind = TaskKind.MERGE, *, full: bool = False
    ) -> CatalogTask:
        """Return the table's pending task of the kind. Create it if none is pending.

        A running task does not count: it may have claimed its batches or runs before the newest arrived. Raise
        ``NotFound`` if the table was dropped.
        """
        self.tables.lock(table_id)
        condition = (merges.c.table_id == table_id) & (merges.c.kind == kind)
        pending = sa.select(merges).where(condition, merges.c.state == TaskState.PENDING)
        row = self.transaction.execute(pending).first()
        if row is not None and full and not row.full:
            self.transaction.execute(merges.update().where(merges.c.id == row.id).values(full=True))
            return self.get(table_id, row.id)
        if row is not None:
            return task_of(row)
        task = CatalogTask(
            uuid.uuid4().hex, table_id, TaskState.PENDING, trigger, self.transaction.now(), kind=kind, full=full
        )
        values = {column.key: getattr(task, column.key) for column in _TASK_COLUMNS}
        self.transaction.execute(_ADDED, values)
        return task

    def request_all(
        self, triggers: Mapping[str, TaskTrigger], kind: TaskKind = TaskKind.MERGE, *, full: Collection[str] = ()
    ) -> None:
        """Store a pending task of the kind for each of the tables (by id) that still exist, as ``request`` does for
        one; they are claimed in the order given. ``full`` are the tables whose compactions take all runs.
        """
        existing = self.tables.lock_all(triggers)
        waits = self.pending(existing, kind)
        new = [table_id for table_id in triggers if table_id in existing and table_id not in waits]
        now = self.transaction.now()
        tasks = [
            CatalogTask(
                uuid.uuid4().hex,
                one,
                TaskState.PENDING,
                triggers[one],
                now - (len(new) - 1 - place) * _ONE_AFTER_ANOTHER,
                kind=kind,
                full=one in full,
            )
            for place, one in enumerate(new)
        ]
        if tasks:
            values = [{column.key: getattr(task, column.key) for column in _TASK_COLUMNS} for task in tasks]
            self.transaction.execute(_ADDED, values)
        for task_id in waits.intersection(full):
            self.request(task_id, triggers[task_id], kind, full=True)

    def pending(self, table_ids: Collection[str], kind: TaskKind) -> set[str]:
        """Return those of the tables that have a pending task of the kind."""
        return set(self.transaction.execute(_PENDING, {"tables": [*table_ids], "of": kind}).scalars())

    def get(self, table_id: str, task_id: str) -> CatalogTask:
        """Return the table's task with this id. Raise ``NotFound``."""
        return task_of(self.row(table_id, task_id))

    def page(
        self,
        table_id: str,
        *,
        after: str | None = None,
        limit: int,
        state: TaskState | None = None,
        kind: TaskKind | None = None,
    ) -> list[CatalogTask]:
        """Return up to ``limit`` tasks of the table, newest first, after the task with the id ``after``, in ``state``
        and of ``kind``.

        Raise ``Invalid`` if ``after`` is no task of the table.
        """
        query = sa.select(merges).where(merges.c.table_id == table_id)
        if state is not None:
            query = query.where(merges.c.state == state)
        if kind is not None:
            query = query.where(merges.c.kind == kind)
        place = sa.tuple_(merges.c.requested_at, merges.c.id)
        if after is not None:
            try:
                last = self.get(table_id, after)
            except NotFound as error:
                raise Invalid("the page token is not from this list; send a nextPageToken of it, or none") from error
            query = query.where(place < sa.tuple_(sa.literal(last.requested_at, merges.c.requested_at.type), last.id))
        query = query.order_by(merges.c.requested_at.desc(), merges.c.id.desc()).limit(limit)
        return [task_of(row) for row in self.transaction.execute(query)]

    def request_cancel(self, table_id: str, task_id: str) -> CatalogTask:
        """Cancel the task and return it: cancelled if it was pending, marked to stop if it runs, unchanged if it has
        ended.

        Raise ``NotFound``.
        """
        row = self.row(table_id, task_id, lock=True)
        change = merges.update().where(merges.c.id == task_id)
        if row.state is TaskState.PENDING:
            cancelled = {"state": TaskState.CANCELLED, "cancel_requested": True, "finished_at": self.transaction.now()}
            self.transaction.execute(change.values(cancelled))
        elif row.state is TaskState.RUNNING:
            self.transaction.execute(change.values(cancel_requested=True))
        return self.get(table_id, task_id)

    def forget(self, table_id: str, before: datetime, most: int) -> int:
        """Delete up to ``most`` merges and compactions that ended ``before`` and that no batch names, but never the
        last success of a kind. Return how many. Their counts are kept.
        """
        newest = (
            sa.select(merges.c.id)
            .where(merges.c.table_id == table_id, merges.c.state == TaskState.SUCCEEDED)
            .order_by(merges.c.finished_at.desc(), merges.c.id)
            .limit(1)
        )
        last = [self.transaction.execute(newest.where(merges.c.kind == kind)).scalar() for kind in TaskKind]
        over = (merges.c.table_id == table_id) & (merges.c.finished_at < before)
        named = sa.select(batches.c.id).where(batches.c.merge_id == merges.c.id).exists()
        old = sa.select(merges.c.id, merges.c.kind, merges.c.state).where(over, ~named)
        old = old.where(merges.c.id.not_in([task_id for task_id in last if task_id is not None]))
        rows = list(self.transaction.execute(old.order_by(merges.c.finished_at).limit(most)))
        if rows:
            self.transaction.execute(merges.delete().where(merges.c.id.in_([row.id for row in rows])))
            counted = Counter(row.kind for row in rows if row.state is TaskState.SUCCEEDED)
            self.transaction.execute(
                tables.update()
                .where(tables.c.id == table_id)
                .values({column.key: column + counted[kind] for kind, column in FORGOTTEN.items()})
            )
        return len(rows)

    def compacts(self, table_id: str) -> bool:
        """Return whether a compaction of the table is pending or runs."""
        active = merges.c.state.in_((TaskState.PENDING, TaskState.RUNNING))
        query = sa.select(merges.c.id).where(
            merges.c.table_id == table_id, merges.c.kind == TaskKind.COMPACTION, active
        )
        return self.transaction.execute(query.limit(1)).first() is not None

    def running(self, table_id: str) -> list[str]:
        """Return the ids of the merges and compactions of the table that a worker has claimed."""
        condition = (merges.c.table_id == table_id) & (merges.c.state == TaskState.RUNNING)
        return list(self.transaction.execute(sa.select(merges.c.id).where(condition).order_by(merges.c.id)).scalars())

    def oldest_running_since(self, table_id: str) -> datetime | None:
        """Return when the oldest running merge or compaction of the table began; None if none runs."""
        query = sa.select(sa.func.min(merges.c.started_at))
        running = (merges.c.table_id == table_id) & (merges.c.state == TaskState.RUNNING)
        started: datetime | None = self.transaction.execute(query.where(running)).scalar_one()
        return started

    def failed_compactions(self, table_ids: Collection[str] | None = None) -> dict[str, Failures]:
        """Return the failures of the tables (all, or those given) whose last finished compaction has failed; a
        cancelled one is not a failure.
        """
        query, values = (_FAILED, {}) if table_ids is None else (_FAILED_OF, {"tables": [*table_ids]})
        return {row.table_id: Failures(row.failures, row.at) for row in self.transaction.execute(query, values)}

    def backlogs(self) -> list[Backlog]:
        """Return the backlog of every table with a pending merge, or with staged batches that no running merge has
        claimed. The table with the oldest batch comes first.
        """
        return [_backlog(row, table) for row, table in intact(self.transaction.execute(_BACKLOGS))]

    def row(self, table_id: str, task_id: str, *, lock: bool = False) -> AnyRow:
        """Return the task's row; with ``lock`` it is locked until the transaction ends. Raise ``NotFound``."""
        query = sa.select(merges).where(merges.c.table_id == table_id, merges.c.id == task_id)
        row = self.transaction.execute(query.with_for_update() if lock else query).first()
        if row is None:
            raise not_found(Resource.MERGE, task_id)
        return row


def _backlog(row: AnyRow, table: Table) -> Backlog:
    return Backlog(
        table=table,
        batches=row.batches or 0,
        records=int(row.records or 0),
        oldest_accepted_at=row.oldest,
        newest_accepted_at=row.newest,
        failures=Failures(row.failed_merges, row.merge_failed_at) if row.failed_merges else None,
        pending=row.pending,
    )
