"""Views: the state of a table that lookups see, read in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from app.catalog.repository import Repository
from app.core.plan.merging.evolution import renamed_record, shows_alike
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.history import Batch, Run, Snapshot, Table
from app.core.table.keys import Key, token_of
from app.core.table.records import Record
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.storage.staging.staged_index import StagedIndex
from app.storage.staging.staging import read_key_records


@dataclass(frozen=True)
class View:
    """The state of a table that lookups see, read in one transaction.

    ``schemas`` are those under which runs and staged batches were written. The records of ``staged`` batches are in
    ``index``, those of ``unread`` ones only in their files. ``last_batch`` is the number of the last accepted batch;
    ``set_aside`` counts the batches that no answer includes.
    """

    table: Table
    plan: MergePlan
    snapshot: Snapshot | None
    schemas: Mapping[int, TableSchema]
    staged: tuple[Batch, ...] = ()
    unread: tuple[Batch, ...] = ()
    index: StagedIndex = field(default_factory=StagedIndex)
    last_batch: int = 0
    set_aside: int = 0
    latest: View | None = None  # the same with what this leaves out

    @property
    def merged(self) -> View:
        """The same view without staged records."""
        first = self.staged[0].number - 1 if self.staged else self.last_batch
        return replace(self, staged=(), unread=(), index=StagedIndex(), last_batch=first, latest=self)

    @property
    def snapshot_id(self) -> int | None:
        """The number of the snapshot."""
        return self.snapshot.id if self.snapshot else None

    @property
    def runs(self) -> Sequence[Run]:
        """The runs of the snapshot, oldest first."""
        return self.snapshot.runs if self.snapshot else ()

    @cached_property
    def deciding(self) -> Sequence[Run] | None:
        """The runs in an order in which the first that has a key answers for it; None if it needs the others too."""
        whole = self.plan.whole
        if whole is None or whole.compares:
            return None
        return self.runs[::-1] if whole.latest else self.runs

    @cached_property
    def by_partition(self) -> Mapping[str | None, Sequence[Run]]:
        """The runs of each partition in the order of a lookup: that of ``deciding``, or oldest first."""
        groups: dict[str | None, list[Run]] = defaultdict(list)
        for run in self.runs if self.deciding is None else self.deciding:
            groups[run.partition].append(run)
        return groups

    @cached_property
    def columns(self) -> Sequence[str]:
        """The columns of an answer if a request names none."""
        return tuple(self.table.schema.by_name)

    @cached_property
    def readable(self) -> Mapping[int, TableSchema | None]:
        """``schemas`` of runs that images can answer; None if the plan must compute the visible
        values from the state.
        """
        return {n: schema if shows_alike(schema, self.plan.schema) else None for n, schema in self.schemas.items()}

    @cached_property
    def stages(self) -> bool:
        """Whether any key may have staged records."""
        return bool(self.unread or self.index.segments)

    def may_be_staged(self, token: int) -> bool:
        """Return whether a key with this token may have staged records."""
        return bool(self.unread) or self.index.holds(token)

    def staged_records(self, warehouse: Warehouse, key: Key) -> Iterator[Record]:
        """Yield the key's staged records in arrival order, by the column names of the table."""
        records = [*self._indexed(key), *self._in_files(warehouse, key)]
        for schema, record in sorted(records, key=lambda pair: pair[1].arrival):
            yield renamed_record(record, schema, self.table.schema)

    def _indexed(self, key: Key) -> Iterator[tuple[TableSchema, Record]]:
        if self.index.segments:
            yield from self.index.records(token_of(self.table.schema, key), key)

    def _in_files(self, warehouse: Warehouse, key: Key) -> Iterator[tuple[TableSchema, Record]]:
        for batch in self.unread:
            schema = self.schemas[batch.schema_id]
            for record in read_key_records(warehouse, batch, schema, key):
                yield schema, record


def view_of(repository: Repository, table: Table, before: View | None = None) -> View:
    """Return the view of ``table``, which was read in the same transaction; staged batches are not loaded. Batches
    that ``before`` has loaded are reused, unless keys were forgotten since, which replaces their files.
    """
    snapshot = repository.snapshots.current_of(table)
    if before is not None and forgot_since(repository, table, before):
        before = None
    known = {batch.number: batch for batch in before.staged} if before else {}
    numbers = repository.batches.staged_numbers(table.id)
    fresh = (
        repository.batches.staged(table.id, after=before.last_batch if before else 0)
        if set(numbers) - known.keys()
        else []
    )
    known |= {batch.number: batch for batch in fresh}
    staged = tuple(known[number] for number in numbers)
    schemas = schemas_of(repository, table, snapshot, staged)
    last, aside = repository.batches.last_number(table.id), repository.set_aside.count(table.id)
    plan = compile_plan(table.schema)
    return View(table, plan, snapshot, schemas, staged, staged, last_batch=last, set_aside=aside)


def forgot_since(repository: Repository, table: Table, before: View) -> bool:
    """Return whether keys of the table were forgotten since ``before`` was read."""
    moved = table.snapshot_id is not None and table.snapshot_id != before.snapshot_id
    return moved and repository.forgettings.any_after(table.id, before.snapshot_id or 0)


def schemas_of(
    repository: Repository, table: Table, snapshot: Snapshot | None, staged: tuple[Batch, ...] = ()
) -> Mapping[int, TableSchema]:
    """Return the schemas under which the runs of the snapshot and the staged batches were written, and the table's
    own.
    """
    written = {run.schema_id for run in (snapshot.runs if snapshot else ())} | {batch.schema_id for batch in staged}
    older = written - {table.schema_id}
    return {number: repository.tables.schema_at(table.id, number) for number in older} | {table.schema_id: table.schema}
