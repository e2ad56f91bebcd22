"""History: the records of merged batches, kept for a while to explain rows, and the snapshots they are explained from
(docs/decisions/0034).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import NotFound, Unavailable
from app.core.table.history import Base, Batch, HistoryFile, SnapshotKind, Table
from app.core.table.keys import Key
from app.core.table.records import Record, batch_number
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import DamagedFile
from app.core.table.upkeep.kept_history import Kept, Retention, joined, kept_next
from app.files.folders import REQUESTS_AT_ONCE
from app.files.layout import Warehouse
from app.services.shared.damage import noted
from app.services.shared.each_table import faults_kept
from app.storage.history.history import (
    CUT,
    Cut,
    NewestRecords,
    Room,
    all_exist,
    join_history,
    key_records,
    staged_key_records,
    unpacked_bytes,
    write_history,
)
from app.telemetry.entries import Upkeep

logger = logging.getLogger(__name__)
# Staging files of about this size are filed in one transaction.
ROUND_BYTES = 2**28
# At most this much is read of one explained key.
KEY_ROOM: Final = Room(records=10_000, size_bytes=2**24)
BatchesOf = Callable[[Collection[int]], Mapping[int, Batch]]
"""Of numbers of a table's batches those that are known, by number."""


@dataclass(frozen=True)
class KeptRecord:
    """A merged record, its batch, and the schema that it was written under."""

    batch: Batch
    schema: TableSchema
    record: Record


def kept_since(repository: Repository, table: Table) -> int:
    """Return the number of the snapshot since which every merged record is kept, and which is kept itself; 0 if all
    are kept from the table's first batch on.
    """
    if not retention_of(table).window:
        return table.snapshot_id or 0
    return repository.history.extent(table.id).since


@dataclass(frozen=True)
class KeptFiles:
    """The files with the records that were merged into the snapshots after number ``after`` up to ``until``: history
    files, oldest first, and batches in merge order, each with the schema that it was written under.
    """

    table_id: str
    after: int
    until: int
    files: Sequence[tuple[HistoryFile, TableSchema]]
    unfiled: Sequence[tuple[Batch, TableSchema]]


@dataclass(frozen=True)
class KeptRecords:
    """Records of a key in merge order (by snapshot, batch number, position): all those of snapshots after number
    ``after``.
    """

    after: int
    records: Sequence[KeptRecord]


def kept_files(repository: Repository, table: Table, after: int, until: int) -> KeptFiles:
    """Return the kept files of the snapshots after number ``after``, which is not before ``kept_since``, up to
    ``until``.
    """
    files = [
        history_file
        for history_file in repository.history.files(table.id, after)
        if history_file.first_snapshot <= until
    ]
    unfiled = [batch for batch in repository.history.unfiled(table.id, after) if (batch.snapshot_id or 0) <= until]
    numbers = {file.schema_id for file in files} | {batch.schema_id for batch in unfiled}
    schemas = {number: repository.tables.schema_at(table.id, number) for number in numbers}
    return KeptFiles(
        table.id,
        after,
        until,
        [(history_file, schemas[history_file.schema_id]) for history_file in files],
        [(batch, schemas[batch.schema_id]) for batch in unfiled],
    )


def kept_records(
    warehouse: Warehouse, files: KeptFiles, key: Key, batches_of: BatchesOf, room: Room = KEY_ROOM
) -> KeptRecords:
    """Return the newest records of ``key``, as many as ``room`` allows. ``batches_of`` reads the catalog, in a
    transaction in which no file is read.

    Raise ``DamagedFile``; it is ``missing`` also if a sweep has moved records to another file since ``files`` was read:
    then repeat both (``app.services.shared.damage.read_again``).
    """
    return _KeyRecords(warehouse, files, key, batches_of, room).read()


class _KeyRecords:
    """Reads the records of one key, the newest first."""

    def __init__(self, warehouse: Warehouse, kept: KeptFiles, key: Key, batches_of: BatchesOf, room: Room) -> None:
        self._warehouse, self._kept, self._key, self._batches_of, self._room = warehouse, kept, key, batches_of, room
        self._batches: dict[int, Batch | None] = {}
        self._records: list[KeptRecord] = []
        self._after = kept.after

    def read(self) -> KeptRecords:
        """Return the newest records that fit into the room, in merge order."""
        if self._read_staged():
            self._read_filed()
        complete = [record for record in self._records if (record.batch.snapshot_id or 0) > self._after]
        complete.sort(key=lambda kept_record: (kept_record.batch.snapshot_id or 0, kept_record.record.arrival))
        return KeptRecords(self._after, complete)

    def _read_staged(self) -> bool:
        """Read the records that are in no history file yet, which are the newest. Return whether there was room for
        all of them.
        """
        for batch, schema in reversed(self._kept.unfiled):
            self._batches[batch.number] = batch
            if not self._take(schema, staged_key_records(self._warehouse, batch, schema, self._key, self._room)):
                return False
        return True

    def _read_filed(self) -> None:
        rest = list(self._kept.files)
        at_once = REQUESTS_AT_ONCE if self._warehouse.is_store else 1
        while rest:
            some = rest[-at_once:]
            filed = key_records(self._warehouse, self._kept.table_id, some, self._key, self._wanted, self._room)
            for newest in reversed(filed):
                # Files that were read in parallel had the whole room each.
                if not (self._room.holds(newest) and self._take(rest.pop()[1], newest)):
                    self._after = max([self._after, *(file.last_snapshot for file, _ in rest)])
                    return

    def _wanted(self, numbers: Collection[int]) -> Collection[int]:
        new = set(numbers) - self._batches.keys()
        if new:
            known = self._batches_of(new)
            self._batches.update((number, known.get(number)) for number in new)
        return [number for number in numbers if self._kept.after < self._snapshot(number) <= self._kept.until]

    def _snapshot(self, number: int) -> int:
        """Return the snapshot of a batch; 0 for a batch that the history no longer has."""
        batch = self._batches[number]
        return (batch.snapshot_id or 0) if batch else 0

    def _take(self, schema: TableSchema, newest: NewestRecords) -> bool:
        """Add the records. Return whether these are all: if not, the history of the key begins after the snapshot of
        the first one that is left out.
        """
        for record in newest.records:
            batch = self._batches[batch_number(record.arrival)]
            if batch is not None:
                self._records.append(KeptRecord(batch, schema, record))
        self._room = self._room.less(newest)
        if newest.cut is None:
            return True
        self._after = max(self._after, self._snapshot(newest.cut))
        return False


def file_history(database: CatalogDatabase, warehouse: Warehouse, table: Table, cut: Cut = CUT) -> None:
    """Move the kept records of merged batches from staging files to history files, and join small history files.

    The transaction that names a complete file also drops its records elsewhere, so an interruption leaves only files
    that nothing names. If a staging file is damaged, the history begins again after it. Raise ``OSError``, and
    ``KeyfoldError`` if catalog or warehouse do not answer.
    """
    if not retention_of(table).window:
        return
    try:
        while _file_some(database, warehouse, table, cut):
            continue
        _join_some(database, warehouse, table, cut)
    except NotFound:
        return  # dropped meanwhile
    except DamagedFile as error:
        _give_up(database, table, error)


def file_histories(database: CatalogDatabase, warehouse: Warehouse, least_batches: int = 0) -> None:
    """File the history of all tables of which ``least_batches`` or more were merged since the last time. A failure is
    logged, and retried later.
    """
    with database.reading() as repository:
        late_tables = [repository.tables.find(table_id) for table_id in repository.history.behind(least_batches)]
    for table in filter(None, late_tables):
        with faults_kept(database.metrics, Upkeep.HISTORY, table.full_name):
            file_history(database, warehouse, table)


def _file_some(database: CatalogDatabase, warehouse: Warehouse, table: Table, cut: Cut) -> bool:
    """Write the next batches of whole snapshots into history files. Return whether there may be more."""
    with database.reading() as repository:
        before = repository.history.extent(table.id)
        current = repository.commits.heads([table.id]).get(table.id, 0)
        waiting = repository.history.unfiled(table.id)
        bases = [base.snapshot_id for base in repository.history.bases(table.id)]
        some = _next(waiting, bases)
        schemas = {batch.schema_id: repository.tables.schema_at(table.id, batch.schema_id) for batch in some}
    # If nothing else waits, later snapshots have no batches. They count as filed: the table needs no further look.
    filed = current if len(some) == len(waiting) else some[-1].snapshot_id or 0
    if filed <= before.filed:
        return False
    files = [
        file
        for schema_id, schema in schemas.items()
        for file in write_history(
            warehouse, table.id, [batch for batch in some if batch.schema_id == schema_id], schema, cut
        )
    ]
    with database.transaction(wakes=False) as repository:
        named = repository.history.file(table.id, before, filed, files, some)
        _check_files(warehouse, table, files)
    return named and len(some) < len(waiting)


def _next(waiting: Sequence[Batch], bases: Sequence[int]) -> Sequence[Batch]:
    """Return the first batches of ``waiting``, by whole snapshots: a file never has records from before and after a
    base, so that it expires as a whole.
    """
    size = 0
    for place, (batch, following) in enumerate(pairwise(waiting), 1):
        last, first = batch.snapshot_id or 0, following.snapshot_id or 0
        size += batch.size_bytes
        if last < first and (size >= ROUND_BYTES or any(last <= base < first for base in bases)):
            return waiting[:place]
    return waiting


def _join_some(database: CatalogDatabase, warehouse: Warehouse, table: Table, cut: Cut) -> None:
    with database.reading() as repository:
        files = repository.history.files(table.id)
        bases = [base.snapshot_id for base in repository.history.bases(table.id)]
        schemas = {file.schema_id: repository.tables.schema_at(table.id, file.schema_id) for file in files}
    unpacked = cache(lambda file: unpacked_bytes(warehouse, table.id, file))
    for parts in joined(files, bases, unpacked, cut.most_bytes):
        whole = join_history(warehouse, table.id, parts, schemas[parts[0].schema_id], cut)
        with database.transaction(wakes=False) as repository:
            repository.history.join(table.id, parts, whole)
            _check_files(warehouse, table, [whole])


def _check_files(warehouse: Warehouse, table: Table, files: Sequence[HistoryFile]) -> None:
    """Raise ``Unavailable`` if a sweep removed one of ``files`` before it was named. Lock the table first."""
    if not all_exist(warehouse, table.id, files):
        raise Unavailable(f"history files of table {table.full_name} were swept before they were named; retried")


def _give_up(database: CatalogDatabase, table: Table, error: DamagedFile) -> None:
    """Report a damaged history file, or let history begin after a damaged staging file."""
    if error.file.batch_id is None:
        noted(database, error)  # requests that need the file report it, until history begins after it
        return
    with database.transaction(wakes=False) as repository:
        repository.tables.lock(table.id)
        if not repository.damage.is_needed(error.file):
            return  # another sweep has filed it
        current = repository.tables.existing(table.id).snapshot_id or 0
        repository.history.begin_after(table.id, current, [current])
    logger.error("%s; the history of table %s starts again after it", error.message, table.full_name)


def retention_of(table: Table) -> Retention:
    """Return the retention that the table's options set."""
    options = table.schema.parsed
    return Retention(options["history.time-retained"], options["history.max-size"])


def move_history(repository: Repository, table: Table, now: datetime) -> None:
    """Advance the start of the history as far as the retention options allow at ``now``, to a snapshot that is kept
    for this.

    Raise ``NotFound`` if the table was dropped.
    """
    repository.tables.lock(table.id)
    current = repository.commits.find(table.id, repository.commits.heads([table.id]).get(table.id, 0))
    if current is None:
        return
    before = Kept(repository.history.extent(table.id).since, tuple(repository.history.bases(table.id)))
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
    """Return the snapshots of rollbacks to a state from before the history: that state cannot be explained from
    another snapshot.
    """
    rewrites = repository.rewrites.after(table_id, since)
    back = [
        rewrite
        for rewrite in rewrites
        if rewrite.kind is SnapshotKind.ROLLBACK and (rewrite.restored_from or 0) < since
    ]
    commits = (repository.commits.find(table_id, snapshot.snapshot_id) for snapshot in back)
    return [Base(commit.snapshot_id, commit.committed_at) for commit in commits if commit is not None]
