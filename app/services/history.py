"""History: the records of merged batches, kept for a while to explain rows, and the snapshots they are explained from
(docs/decisions/0034).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import KeyfoldError, NotFound, Unavailable
from app.core.table.damage import DamagedFile
from app.core.table.history import Base, Batch, HistoryFile, SnapshotKind, Table
from app.core.table.kept_history import Kept, Retention, joined, kept_next
from app.core.table.keys import Key
from app.core.table.records import Record, batch_number
from app.core.table.schema import TableSchema
from app.services.damage import noted
from app.storage.history import CUT, Cut, all_there, join_history, key_records, write_history
from app.storage.layout import Warehouse
from app.storage.staging import read_key_records

logger = logging.getLogger(__name__)
ROUND_BYTES = 2**28  # of staging files that are filed in one transaction


@dataclass(frozen=True)
class KeptRecord:
    """A merged record, its batch, and the schema that it was written under."""

    batch: Batch
    schema: TableSchema
    record: Record


def kept_since(repository: Repository, table: Table) -> int:
    """The number of the snapshot after which every merged record is kept: it is kept, too. 0 where all are kept from
    the table's first batch on.
    """
    if not retention_of(table).window:
        return table.snapshot_id or 0
    return repository.history.of(table.id).since


def kept_records(
    repository: Repository, warehouse: Warehouse, table: Table, key: Key, after_snapshot: int | None = None
) -> list[KeptRecord]:
    """The records of ``key`` that merges brought into snapshots after ``after_snapshot``, as far as they are kept, in
    merge order: by snapshot, batch number, position.

    Raises ``DamagedFile``; ``missing`` also where a sweep has moved records to another file since the transaction
    began: to be read again (``app.services.damage.read_again``) in a new one.
    """
    after = max(kept_since(repository, table), after_snapshot or 0)
    filed = list(_filed_records(repository, warehouse, table, key, after))
    filed.sort(key=lambda one: (one.batch.snapshot_id or 0, one.record.arrival))
    return [*filed, *_staged_records(repository, warehouse, table, key, after)]


def _filed_records(
    repository: Repository, warehouse: Warehouse, table: Table, key: Key, after: int
) -> Iterator[KeptRecord]:
    files = [
        (file, repository.tables.schema_at(table.id, file.schema_id))
        for file in repository.history.files(table.id, after)
    ]
    found = list(zip(files, key_records(warehouse, table.id, files, key), strict=True))
    numbers = {batch_number(record.arrival) for _, records in found for record in records}
    batches = repository.history.batches(table.id, numbers)
    for (_, schema), records in found:
        for record in records:
            batch = batches.get(batch_number(record.arrival))  # what history does not have any more is forgotten
            if batch is not None and (batch.snapshot_id or 0) > after:
                yield KeptRecord(batch, schema, record)


def _staged_records(
    repository: Repository, warehouse: Warehouse, table: Table, key: Key, after: int
) -> Iterator[KeptRecord]:
    for batch in repository.history.unfiled(table.id, after):
        schema = repository.tables.schema_at(table.id, batch.schema_id)
        for record in read_key_records(warehouse, batch, schema, key):
            yield KeptRecord(batch, schema, record)


def file_history(database: CatalogDatabase, warehouse: Warehouse, table: Table, cut: Cut = CUT) -> None:
    """Put what is kept in the staging files of merged batches into history files, and small ones into larger ones.

    A file is named when it is whole, and what it has is forgotten elsewhere in the same transaction: whoever is
    interrupted leaves files that nobody names. Records whose staging file is damaged end what is kept: history begins
    anew after them. Raises ``OSError``, and ``KeyfoldError`` where catalog or warehouse do not answer.
    """
    if not retention_of(table).window:
        return
    try:
        while _file_some(database, warehouse, table, cut):
            continue
        _join_some(database, warehouse, table)
    except NotFound:
        return  # dropped meanwhile
    except DamagedFile as error:
        _give_up(database, table, error)


def file_histories(database: CatalogDatabase, warehouse: Warehouse) -> None:
    """File the history of all tables of which something was merged since. Where that cannot be done it is told, and
    done later.
    """
    with database.reading() as repository:
        found = [repository.tables.find(table_id) for table_id in repository.history.behind()]
    for table in filter(None, found):
        try:
            file_history(database, warehouse, table)
        except (OSError, KeyfoldError):
            logger.warning("the history of table %s is filed later", table.full_name, exc_info=True)


def _file_some(database: CatalogDatabase, warehouse: Warehouse, table: Table, cut: Cut) -> bool:
    """File the next batches, all of some snapshots; whether there may be more."""
    with database.reading() as repository:
        before = repository.history.of(table.id)
        waiting = repository.history.unfiled(table.id)
        bases = [base.snapshot_id for base in repository.history.bases(table.id)]
        some = _next(waiting, bases)
        schemas = {batch.schema_id: repository.tables.schema_at(table.id, batch.schema_id) for batch in some}
    if not some:
        return False
    files = [
        file
        for schema_id, schema in schemas.items()
        for file in write_history(warehouse, table.id, [one for one in some if one.schema_id == schema_id], schema, cut)
    ]
    with database.transaction(wakes=False) as repository:
        named = repository.history.file(table.id, before, some[-1].snapshot_id or 0, files, some)
        _check_there(warehouse, table, files)
    return named and len(some) < len(waiting)


def _next(waiting: Sequence[Batch], bases: Sequence[int]) -> Sequence[Batch]:
    """The first batches of ``waiting``, all of their snapshots: no file has records from before and after a base, so
    that it goes as a whole.
    """
    size = 0
    for place, (batch, following) in enumerate(pairwise(waiting), 1):
        last, first = batch.snapshot_id or 0, following.snapshot_id or 0
        size += batch.size_bytes
        if last < first and (size >= ROUND_BYTES or any(last <= base < first for base in bases)):
            return waiting[:place]
    return waiting


def _join_some(database: CatalogDatabase, warehouse: Warehouse, table: Table) -> None:
    with database.reading() as repository:
        files = repository.history.files(table.id)
        bases = [base.snapshot_id for base in repository.history.bases(table.id)]
        schemas = {file.schema_id: repository.tables.schema_at(table.id, file.schema_id) for file in files}
    for parts in joined(files, bases):
        whole = join_history(warehouse, table.id, parts, schemas[parts[0].schema_id])
        with database.transaction(wakes=False) as repository:
            repository.history.join(table.id, parts, whole)
            _check_there(warehouse, table, [whole])


def _check_there(warehouse: Warehouse, table: Table, files: Sequence[HistoryFile]) -> None:
    """Under the table's lock, under which sweeps remove what nobody names: who slept before the commit may be too late.

    Raises ``Unavailable``.
    """
    if not all_there(warehouse, table.id, files):
        raise Unavailable(f"history files of table {table.full_name} were swept before they were named; tried again")


def _give_up(database: CatalogDatabase, table: Table, error: DamagedFile) -> None:
    """What cannot be read is not promised any more."""
    if error.file.batch_id is None:
        noted(database, error)  # whoever needs the file is told, until history begins after it
        return
    with database.transaction(wakes=False) as repository:
        repository.tables.lock(table.id)
        if not repository.damage.is_needed(error.file):
            return  # another sweep has filed it
        current = repository.tables.existing(table.id).snapshot_id or 0
        repository.history.begin_after(table.id, current, [current])
    logger.error("%s; the history of table %s begins anew", error.message, table.full_name)


def retention_of(table: Table) -> Retention:
    """What the table's options ask for."""
    options = table.schema.parsed
    return Retention(options["history.time-retained"], options["history.max-size"])


def move_history(repository: Repository, table: Table, now: datetime) -> None:
    """Let history begin where the table's options say by ``now``, at a snapshot that is kept for it.

    Raises ``NotFound`` when the table is gone.
    """
    repository.tables.lock(table.id)
    current = repository.commits.find(table.id, repository.commits.heads([table.id]).get(table.id, 0))
    if current is None:
        return
    before = Kept(repository.history.of(table.id).since, tuple(repository.history.bases(table.id)))
    after = kept_next(
        before,
        Base(current.snapshot_id, current.committed_at),
        table.created_at,
        now,
        retention_of(table),
        lambda snapshot: repository.history.size_after(table.id, snapshot),
        _restored(repository, table.id, before.since),
    )
    if after != before:
        repository.history.begin_after(table.id, after.since, [base.snapshot_id for base in after.bases])
        repository.rewrites.forget(table.id, after.since)


def _restored(repository: Repository, table_id: str, since: int) -> list[Base]:
    """The snapshots of rollbacks to what was before all that is kept: it cannot be explained from any other."""
    rewrites = repository.rewrites.after(table_id, since)
    back = [one for one in rewrites if one.kind is SnapshotKind.ROLLBACK and (one.restored_from or 0) < since]
    commits = (repository.commits.find(table_id, one.snapshot_id) for one in back)
    return [Base(commit.snapshot_id, commit.committed_at) for commit in commits if commit is not None]
