"""The history of one key up to a snapshot: the records that are in effect there, the events between them, and the
snapshots from which they can be folded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.snapshots.commits import Commit
from app.core.errors import NotFound
from app.core.plan.merging.evolution import renamed_record
from app.core.rules.rule import State
from app.core.table.history import Batch, Rewrite, SnapshotKind, Table
from app.core.table.keys import Key, partition_of
from app.core.table.lineage import Lineage, lineage, undone_by
from app.core.table.records import POSITION_BITS, Record
from app.core.table.schema import TableSchema
from app.services.explaining.history import KeptFiles, KeptRecord, kept_files, kept_records, kept_since
from app.services.rows.lookups import stored_state, view_at
from app.services.rows.views import View
from app.services.shared.damage import Moved
from app.storage.images import Images


@dataclass(frozen=True)
class Taken:
    """A record with the schema of its merge, or of the table if it is ``staged``."""

    batch: Batch
    schema: TableSchema
    record: Record
    staged: bool = False

    @property
    def position(self) -> int:
        """Its place in the batch, from 0."""
        return self.record.arrival & ((1 << POSITION_BITS) - 1)

    @property
    def snapshot(self) -> int | None:
        """The snapshot that has it; None while it is staged."""
        return None if self.staged else self.batch.snapshot_id


@dataclass(frozen=True)
class Turn:
    """A rollback, a drop of the key's partition, or a forgetting of keys; ``undone`` are the records that it removed
    from the table.
    """

    rewrite: Rewrite
    undone: Sequence[Taken] = ()

    @property
    def snapshot(self) -> int | None:
        """The snapshot that did it."""
        return self.rewrite.snapshot_id


@dataclass(frozen=True)
class Base:
    """The state to fold upon: the key's state row in the snapshot ``commit``, under ``schema``; empty before the first
    batch, with ``commit`` None.
    """

    commit: Commit | None = None
    schema: TableSchema | None = None
    state: State | None = None

    @property
    def snapshot(self) -> int:
        """Its number, 0 before the first."""
        return self.commit.snapshot_id if self.commit else 0


@dataclass(frozen=True)
class Known:
    """A table's history in the catalog up to a snapshot (0: before the first), read in one transaction. Records that
    were merged after snapshot ``since`` are kept, in ``files``.
    """

    rewrites: Sequence[Rewrite]
    commits: Sequence[Commit]
    since: int
    files: KeptFiles


def known_history(repository: Repository, table: Table, until: int) -> Known:
    """Return the history of ``table`` that the transaction sees; the table was read in it."""
    commits = [commit for commit in repository.commits.every(table.id) if commit.snapshot_id <= until]
    since = kept_since(repository, table)
    return Known(repository.rewrites.after(table.id), commits, since, kept_files(repository, table, since, until))


class KeptHistory:
    """The history of ``key`` in the table of ``view``. Files are read and records folded outside of transactions;
    other reads of the catalog are short.

    Raises ``Moved`` if the catalog has dropped a part of it since.
    """

    def __init__(self, database: CatalogDatabase, images: Images, view: View, key: Key, known: Known) -> None:
        self.database, self.images, self.view, self.key = database, images, view, key
        self.until = view.snapshot_id or 0
        self._rewrites, self.commits, self.since = known.rewrites, known.commits, known.since
        self.lineage: Lineage = lineage(self._rewrites, self.until)
        self._read = kept_records(images.warehouse, known.files, key, self._batches)
        self._kept = self._read.records
        self._bases: dict[int, Base] = {}

    @contextmanager
    def _asking(self) -> Iterator[Repository]:
        table = self.view.table
        moved = f"the history of table {table.full_name} was moved while it was read; repeat the request"
        try:
            with self.database.reading() as repository:
                yield repository
                if repository.history.extent(table.id).since > self.since:
                    raise Moved(moved)
        except NotFound as error:
            raise Moved(moved) from error

    def _batches(self, numbers: Collection[int]) -> Mapping[int, Batch]:
        with self._asking() as repository:
            return repository.history.batches(self.view.table.id, numbers)

    @property
    def read_after(self) -> int:
        """The snapshot after which all kept records were read. Earlier records were too many,
        unless it is ``since``.
        """
        return self._read.after

    @cached_property
    def merged(self) -> Sequence[Taken]:
        """The records that are in effect in the snapshot, in merge order."""
        return [record for record in self._taken if self.lineage.holds(record.snapshot or 0)]

    @cached_property
    def staged(self) -> Sequence[Taken]:
        """The records that are staged on top, in arrival order."""
        by_number = {batch.number: batch for batch in self.view.staged}
        records = self.view.staged_records(self.images.warehouse, self.key)
        return [
            Taken(by_number[record.arrival >> POSITION_BITS], self.view.table.schema, record, staged=True)
            for record in records
        ]

    @cached_property
    def turns(self) -> Sequence[Turn]:
        """Rollbacks, drops of the key's partition and forgettings, in order; those before the kept records too."""
        partition = partition_of(self.view.table.schema, self.key)
        return [
            Turn(rewrite, self._undone(rewrite))
            for rewrite in self.lineage.rewrites
            if rewrite.kind is not SnapshotKind.PARTITION_DROP or partition in rewrite.partitions
        ]

    def _undone(self, rewrite: Rewrite) -> Sequence[Taken]:
        if rewrite.kind is not SnapshotKind.ROLLBACK or rewrite.restored_from is None:
            return ()
        undone = undone_by(self._rewrites, rewrite)
        return [record for record in self._taken if undone.holds(record.snapshot or 0)]

    @cached_property
    def _taken(self) -> Sequence[Taken]:
        """All kept records, each under the schema of its merge."""
        schemas = self._schemas(self._kept)
        return [
            Taken(record.batch, schema, renamed_record(record.record, record.schema, schema))
            for record in self._kept
            if (schema := schemas[record.batch.snapshot_id or 0])
        ]

    def _schemas(self, records: Sequence[KeptRecord]) -> Mapping[int, TableSchema]:
        """Return the schema under which each merge folded. For an expired snapshot it is estimated: not older than the
        schemas of its batches, nor than that of the previous merge.
        """
        table = self.view.table
        numbers = sorted({record.batch.snapshot_id or 0 for record in records})
        accepted = {record.batch.snapshot_id or 0: record.batch.schema_id for record in records}
        schemas: dict[int, TableSchema] = {}
        last = 0
        with self._asking() as repository:
            known = repository.changelogs.written_under(table.id, numbers)
            for number in numbers:
                last = known.get(number, max(last, accepted[number]))
                schemas[number] = repository.tables.schema_at(table.id, last)
        return schemas

    @property
    def nothing(self) -> bool:
        """Whether no record of the key is known."""
        return not (self._kept or self.staged)

    @cached_property
    def bases(self) -> Sequence[int]:
        """The numbers of the snapshots upon which the records in effect can be folded, oldest first; 0 is the empty
        table.
        """
        first = max(self.since, self.read_after, self.lineage.first)
        numbers = [0] if self.since == self.read_after == 0 and self.lineage.complete else []
        snapshot_ids = [commit.snapshot_id for commit in self.commits]
        numbers += [number for number in snapshot_ids if number >= first and self.lineage.holds(number)]
        return numbers or [self.until]  # older than all that is kept: its own state is all that is known of it

    def base(self, number: int) -> Base:
        """Return the key's state in the snapshot ``number``, which has not expired; 0 is before the first."""
        known = self._bases.get(number)
        if known is None:
            known = self._bases[number] = self._state_in(number)
        return known

    def _state_in(self, number: int) -> Base:
        if number == 0:
            return Base()
        commit = next(commit for commit in self.commits if commit.snapshot_id == number)
        with self._asking() as repository:
            view = view_at(repository, self.view.table, str(number))
        stored = stored_state(view, self.images, self.key)
        if stored is None:
            return Base(commit)
        schema, state = stored
        return Base(commit, schema, dict(state))

    def after(self, number: int) -> list[Taken | Turn]:
        """Return the records and turns after a snapshot, in order, the staged records last."""
        merged: list[Taken | Turn] = [*self.merged, *self.turns]
        later = [event for event in merged if (event.snapshot or 0) > number]
        # A rollback or a drop shares its number with no merge.
        return [*sorted(later, key=lambda event: event.snapshot or 0), *self.staged]

    def forgotten(self, after: int, before: int) -> Commit | None:
        """Return the last compaction between two snapshots, if it has forgotten the key; None also if its snapshot has
        expired.
        """
        between = [commit for commit in self.commits if after < commit.snapshot_id < before]
        compactions = [
            commit
            for commit in between
            if commit.kind is SnapshotKind.COMPACTION and self.lineage.holds(commit.snapshot_id)
        ]
        if not compactions or self.base(compactions[-1].snapshot_id).state is not None:
            return None
        return compactions[-1]
