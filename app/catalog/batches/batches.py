"""Batches: accepted POSTs, numbered per table in commit order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from app.catalog.batches.history import kept, unfiled
from app.catalog.shared import checksums
from app.catalog.shared.models import batches, databases, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.tables import Tables
from app.core.errors import Conflict, ErrorCode, KeyfoldError, KeyReused, NotFound, Resource, not_found
from app.core.table.history import UNMERGED, Batch, BatchState, NewBatch

_OVER = (BatchState.MERGED, BatchState.DELETED)
_LARGEST_NUMBER = 2**63 - 1
_FILES_AT_ONCE = 500
# Built once: building a statement takes as long as running it.
_ADDED = batches.insert()
_NUMBERED = tables.update().where(tables.c.id == sa.bindparam("table")).values(last_batch_number=sa.bindparam("number"))
_BY_KEY = sa.select(batches).where(
    batches.c.table_id == sa.bindparam("table"), batches.c.idempotency_key == sa.bindparam("key")
)
_OF_TABLE = batches.c.table_id == sa.bindparam("table")
_STAGED = sa.select(batches).where(batches.c.state == BatchState.STAGED).order_by(batches.c.number)
_STAGED_AFTER = _STAGED.where(_OF_TABLE, batches.c.number > sa.bindparam("after"))
_CLAIMED = _STAGED.where(batches.c.merge_id.in_(sa.bindparam("tasks", expanding=True)))
_STAGED_NUMBERS = (
    sa.select(batches.c.number).where(_OF_TABLE, batches.c.state == BatchState.STAGED).order_by(batches.c.number)
)
_LAST_NUMBER = sa.select(tables.c.last_batch_number).where(tables.c.id == sa.bindparam("table"))
_LAST_NUMBER_OF = (
    sa.select(tables.c.id, tables.c.last_batch_number)
    .join(databases, databases.c.id == tables.c.database_id)
    .where(databases.c.name == sa.bindparam("database"), tables.c.name == sa.bindparam("table"))
)
_IN_DATABASE = (
    sa.select(batches)
    .join(tables, tables.c.id == batches.c.table_id)
    .join(databases, databases.c.id == tables.c.database_id)
    .where(databases.c.name == sa.bindparam("database"), batches.c.idempotency_key == sa.bindparam("key"))
    .order_by(tables.c.name)
)


def _not_staged(batch_id: str, why: str) -> Conflict:
    return Conflict(
        f"batch {batch_id!r} cannot be deleted: {why}",
        code=ErrorCode.BATCH_NOT_STAGED,
        resource_type="BATCH",
        resource_name=batch_id,
    )


@dataclass(frozen=True)
class Batches:
    """Reads and writes batches."""

    transaction: Transaction
    tables: Tables

    def add(self, table: AnyRow, news: Sequence[NewBatch]) -> list[Batch | KeyfoldError]:
        """Return for each of ``news`` its batch, staged under the next number of the table, or the error. ``table`` is
        the row that ``Tables.lock`` returned in this transaction.

        If the same request came before with its Idempotency-Key, that earlier batch (another id, any state) is
        returned and nothing is added. The error is ``KeyReused`` if the key was used for another request, ``Conflict``
        (COMMIT_CONFLICT) if the table has another schema by now. An error does not keep the others out.
        """
        # The lock is held until the commit: the next number is given only after this one is visible or rolled back, so
        # numbers have no gaps, and a transaction that sees batch n sees every batch before it.
        added: list[Batch] = []
        outcomes = [self._outcome(table, new, added) for new in news]
        if added:
            self.transaction.execute(_NUMBERED, {"table": table.id, "number": added[-1].number})
            self.transaction.execute(
                _ADDED, [{**vars(batch), "checksum": checksums.of_batch(batch)} for batch in added]
            )
        return outcomes

    def _outcome(self, table: AnyRow, new: NewBatch, added: list[Batch]) -> Batch | KeyfoldError:
        """Return the earlier batch of the same request, or add a new one to ``added``."""
        if new.idempotency_key is not None:
            same = [batch for batch in added if batch.idempotency_key == new.idempotency_key]
            earlier = same[0] if same else self.find_by_key(table.id, new.idempotency_key)
            if earlier is not None:
                return _same_request(earlier, new)
        if table.schema_id != new.schema_id:
            return Conflict(f"table {table.id!r} was altered while the batch was read; retry")
        batch = Batch(
            table_id=table.id,
            number=table.last_batch_number + len(added) + 1,
            state=BatchState.STAGED,
            accepted_at=self.transaction.now(),
            merge_id=None,
            snapshot_id=None,
            **vars(new),
        )
        added.append(batch)
        return batch

    def get(self, table_id: str, batch_id: str) -> Batch:
        """Return the table's batch with this id. Raise ``NotFound``."""
        query = sa.select(batches).where(batches.c.table_id == table_id, batches.c.id == batch_id)
        row = self.transaction.execute(query).first()
        if row is None:
            raise not_found(Resource.BATCH, batch_id)
        return checksums.batch_of(row)

    def find_by_key(self, table_id: str, idempotency_key: str) -> Batch | None:
        """Return the table's batch that was posted with this Idempotency-Key, if any."""
        row = self.transaction.execute(_BY_KEY, {"table": table_id, "key": idempotency_key}).first()
        return None if row is None else checksums.batch_of(row)

    def with_key(self, database: str, idempotency_key: str) -> list[Batch]:
        """Return the batches of all tables of the database that were posted with this Idempotency-Key."""
        rows = self.transaction.execute(_IN_DATABASE, {"database": database, "key": idempotency_key})
        return [checksums.batch_of(row) for row in rows]

    def page(
        self, table_id: str, *, after_number: int | None = None, limit: int, state: BatchState | None = None
    ) -> list[Batch]:
        """Return up to ``limit`` batches in number order, those after ``after_number``, those in ``state``."""
        after = max(after_number or 0, 0)
        if after >= _LARGEST_NUMBER:
            return []
        return self._some(table_id, batches.c.number > after, batches.c.number, limit, state)

    def newest(
        self, table_id: str, *, after_number: int | None = None, limit: int, state: BatchState | None = None
    ) -> list[Batch]:
        """Return up to ``limit`` batches, the last one first, with numbers below ``after_number``, in ``state``."""
        before = _LARGEST_NUMBER if after_number is None else min(after_number, _LARGEST_NUMBER)
        return self._some(table_id, batches.c.number < before, batches.c.number.desc(), limit, state)

    def _some(
        self,
        table_id: str,
        which: sa.ColumnElement[bool],
        order: sa.ColumnElement[int],
        limit: int,
        state: BatchState | None,
    ) -> list[Batch]:
        query = sa.select(batches).where(batches.c.table_id == table_id, which)
        if state is not None:
            query = query.where(batches.c.state == state)
        return [checksums.batch_of(row) for row in self.transaction.execute(query.order_by(order).limit(limit))]

    def staged(self, table_id: str, *, after: int = 0) -> list[Batch]:
        """Return the table's staged batches with numbers above ``after``, by number."""
        return self._batches(_STAGED_AFTER, {"table": table_id, "after": after})

    def staged_numbers(self, table_id: str) -> list[int]:
        """Return the numbers of the table's staged batches, ascending."""
        return list(self.transaction.execute(_STAGED_NUMBERS, {"table": table_id}).scalars())

    def count_merged_after(self, table_id: str, number: int) -> int:
        """Return how many batches were merged into snapshots after number ``number``."""
        query = sa.select(sa.func.count()).where(
            batches.c.table_id == table_id, batches.c.state == BatchState.MERGED, batches.c.snapshot_id > number
        )
        return int(self.transaction.execute(query).scalar_one())

    def last_number(self, table_id: str) -> int:
        """Return the number of the last batch that was accepted, 0 before the first. Raise ``NotFound`` for the
        table.
        """
        number = self.transaction.execute(_LAST_NUMBER, {"table": table_id}).scalar()
        if number is None:
            raise not_found(Resource.TABLE, table_id)
        return int(number)

    def last_number_of(self, database: str, name: str) -> tuple[str, int] | None:
        """Return the id and the last batch's number of the table of this name; None if there is none."""
        row = self.transaction.execute(_LAST_NUMBER_OF, {"database": database, "table": name}).first()
        return None if row is None else (row.id, row.last_batch_number)

    def delete_staged(self, table_id: str, batch_id: str) -> Batch:
        """Withdraw the batch and return it; it keeps its number. A batch that was withdrawn before is returned
        unchanged.

        Raise ``NotFound``, or ``Conflict`` if it is merged or a running merge has claimed it.
        """
        self.tables.lock(table_id)  # a claim takes the same lock, so the batch is either withdrawn or claimed
        batch = self.get(table_id, batch_id)
        if batch.state is BatchState.DELETED:
            return batch
        if batch.state is BatchState.MERGED:
            raise _not_staged(batch_id, f"it is merged into snapshot {batch.snapshot_id}")
        if batch.merge_id is not None and batch.state is BatchState.STAGED:
            raise _not_staged(batch_id, f"merge {batch.merge_id!r} is folding it now")
        change = batches.update().where(batches.c.id == batch_id).values(state=BatchState.DELETED)
        self.transaction.execute(change)
        return self.get(table_id, batch_id)

    def unmerged(self, table_id: str) -> list[Batch]:
        """Return the batches that are staged or set aside, whose files are needed, in number order."""
        condition = (batches.c.table_id == table_id) & batches.c.state.in_(UNMERGED)
        return [
            checksums.batch_of(row)
            for row in self.transaction.execute(sa.select(batches).where(condition).order_by(batches.c.number))
        ]

    def live_staging_files(self, table_id: str) -> set[str]:
        """Return the staging files that a merge may still read, or whose history is in no history file yet; the
        table's other staging files are garbage.
        """
        condition = (batches.c.table_id == table_id) & (batches.c.state.in_(UNMERGED) | unfiled())
        return set(self.transaction.execute(sa.select(batches.c.file).where(condition)).scalars())

    def unnamed_staging_files(self, table_id: str, files: Collection[str]) -> set[str]:
        """Return those of ``files`` that no batch or history needs. Lock the table."""
        try:
            self.tables.lock(table_id)
        except NotFound:
            return set(files)
        return set(files) - self.live_staging_files(table_id)

    def files_of_batches(self, table_id: str, files: Sequence[str]) -> set[str]:
        """Return those of ``files`` that a batch of the table names or named. Later uploads use other names."""
        existing: set[str] = set()
        for start in range(0, len(files), _FILES_AT_ONCE):
            condition = (batches.c.table_id == table_id) & batches.c.file.in_(files[start:][:_FILES_AT_ONCE])
            existing |= set(self.transaction.execute(sa.select(batches.c.file).where(condition)).scalars())
        return existing

    def forget(self, table_id: str, before: datetime, keyed_before: datetime, most: int) -> int:
        """Delete up to ``most`` merged or withdrawn batches that were accepted ``before``, or ``keyed_before`` if they
        have an Idempotency-Key, except those whose records are kept as history. Return how many.
        """
        old = (
            sa.select(batches.c.id)
            .where(batches.c.table_id == table_id, batches.c.state.in_(_OVER), batches.c.accepted_at < before)
            .where(batches.c.idempotency_key.is_(None) | (batches.c.accepted_at < keyed_before))
            .where(sa.not_(kept()))
            .order_by(batches.c.number)
            .limit(most)
        )
        return self.transaction.execute(batches.delete().where(batches.c.id.in_(old))).rowcount

    def of_merge(self, merge_id: str) -> list[Batch]:
        """Return the batches that the merge has claimed or folded, in number order."""
        query = sa.select(batches).where(batches.c.merge_id == merge_id).order_by(batches.c.number)
        return [checksums.batch_of(row) for row in self.transaction.execute(query)]

    def claimed_by(self, *merge_ids: str) -> list[Batch]:
        """Return the batches that the merges have claimed and that are in no snapshot, in number order."""
        return self._batches(_CLAIMED, {"tasks": merge_ids})

    def _batches(self, query: sa.Select[AnyRow], values: Mapping[str, object]) -> list[Batch]:
        return [checksums.batch_of(row) for row in self.transaction.execute(query, values)]


def _same_request(earlier: Batch, new: NewBatch) -> Batch | KeyfoldError:
    if earlier.fingerprint == new.fingerprint:
        return earlier
    return key_reused(earlier)


def key_reused(earlier: Batch) -> KeyReused:
    """Return the error: the request sends the Idempotency-Key of ``earlier``, which was a different request."""
    return KeyReused(
        f"the Idempotency-Key {earlier.idempotency_key!r} was used for another request (batch {earlier.id!r});"
        " send a new key with a new request",
        resource_type="BATCH",
        resource_name=earlier.id,
    )
