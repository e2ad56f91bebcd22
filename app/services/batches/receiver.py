"""Reads the records of a request for one table, and applies its policies: unknown columns and faulty events are
refused, left out, added or set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict, FaultCode, Invalid, Violation
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.faulty_events import FaultyEvents, OnFault
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.plan.records.unknown_columns import FoundColumns, UnknownColumns
from app.core.table.history import Table
from app.core.table.schema_bounds import SchemaBounds
from app.files.layout import Warehouse
from app.services.batches.first_records import check_of_first_records
from app.services.batches.staged_uploads import Request, StagedUpload, staged_upload
from app.services.batches.unknown_columns import changes_for, log_ignored
from app.services.rows.known_rows import KnownRows
from app.services.tables.tables import alter_within, altered_schema
from app.storage.ingest.pieces import Piece


class Sent(Request, Protocol):
    """A request with policies for unknown columns and for faulty events."""

    @property
    def unknown_columns(self) -> UnknownColumns:
        """The treatment of columns that the table does not have."""

    @property
    def on_fault(self) -> OnFault:
        """The treatment of events with faults."""

    @property
    def schema_bounds(self) -> SchemaBounds:
        """The bounds of the table's schema: it may get columns from the batch."""


_MOST_TURNS: Final = 5  # the first finds the columns, the second reads them; faults may hide later columns
_NO_END: Final = "the records name more columns each time that they are read"


@dataclass(frozen=True)
class Receiver:
    """Stages the records of one table; ``known`` looks up its rows."""

    database: CatalogDatabase
    warehouse: Warehouse
    table: Table
    known: KnownRows

    def staged(self, sent: Sent, read: Callable[[RecordDecoder], Iterable[Piece]]) -> StagedUpload:
        """Stage the records of ``sent``, decoded by ``read``, and return the upload. Its ``changes`` are schema
        changes that come first; its ``faulty`` events are set aside.

        Raise as ``staged_upload`` does, ``Invalid`` if the table cannot have the columns, or events of it cannot be
        set aside.
        """
        if sent.on_fault is OnFault.SET_ASIDE:
            _check_ordered(self.table)
        table, changes, faulty = self.table, list[Mapping[str, Any]](), None
        for _ in range(_MOST_TURNS):
            unknown = _columns_of(sent)
            staged, failure = None, None
            try:
                staged = self._staged(table, sent, read, unknown, faulty)
            except Invalid as error:
                failure = error
            new = changes_for(table, unknown, _faults(failure, faulty))
            if staged is not None and not new:
                log_ignored(table, unknown)
                return replace(staged, changes=changes, faulty=faulty.events if faulty is not None else ())
            if staged is not None:
                staged.delete(self.warehouse)
            if failure is not None and not new:
                if sent.on_fault is OnFault.REFUSE or faulty is not None:
                    raise failure
                faulty = FaultyEvents()
                continue
            faulty = None if faulty is None else FaultyEvents()
            changes += new
            # As it will be once the changes are made, in the transaction that enters the batch.
            with self.database.reading() as repository:
                schema = altered_schema(repository, self.table, changes, sent.schema_bounds)
            table = replace(self.table, schema=schema, schema_id=self.table.schema_id + 1)
        fault = Violation("/unknownColumns", FaultCode.TOO_MANY, _NO_END, "alter the table, then post")
        raise Invalid("the columns are not added", violations=[fault])

    def _staged(
        self,
        table: Table,
        sent: Request,
        read: Callable[[RecordDecoder], Iterable[Piece]],
        unknown: FoundColumns | None,
        faulty: FaultyEvents | None,
    ) -> StagedUpload:
        plan = compile_plan(table.schema)
        decoder = RecordDecoder(plan, check_of_first_records(plan, self.known), unknown, faulty)
        return staged_upload(self.database, self.warehouse, table, sent, read(decoder), unknown)


def _faults(failure: Invalid | None, faulty: FaultyEvents | None) -> Iterator[Violation]:
    """Yield the faults of a refused body, or of the events that are set aside."""
    if failure is not None:
        yield from failure.violations
    elif faulty is not None:
        for event in faulty.events:
            yield from event.faults


def _columns_of(sent: Sent) -> FoundColumns | None:
    """Return a collector of columns that the table does not have; None if such columns are faults."""
    if sent.unknown_columns is UnknownColumns.REFUSE:
        return None
    return FoundColumns({} if sent.unknown_columns is UnknownColumns.ADD else None)


def _check_ordered(table: Table) -> None:
    """Raise ``Invalid`` for a table in which a retried event would overwrite a later one."""
    options = table.schema.parsed
    columns = table.schema.value_columns
    grouped = columns and all(options.group_of(column.name) is not None for column in columns)
    if options["sequence.field"] or grouped:
        return
    message = f"nothing orders the events of {table.name!r}: a retried event would overwrite a later one"
    fix = "set sequence.field, such as a column with fields.<column>.from-event, or remove onFault"
    raise Invalid(
        message, violations=[Violation("/onFault", FaultCode.CONTRADICTING_PARAMETERS, message, fix, table=table.name)]
    )


def alters(staged: Sequence[StagedUpload], sent: Sent) -> Callable[[Repository], None] | None:
    """Return a function that adds the columns which ``staged`` need to the schemas, in a transaction; None if they
    need none. It raises ``Conflict`` (COMMIT_CONFLICT) if another change of the schema came first.
    """
    changed = [upload for upload in staged if upload.changes]

    def alter(repository: Repository) -> None:
        for upload in changed:
            table = repository.tables.get(upload.table.database, upload.table.name)
            if table.schema_id != upload.new.schema_id - 1:
                raise Conflict(f"table {table.full_name} was altered while the batch was read; retry")
            alter_within(repository, table, upload.changes, sent.sender, sent.schema_bounds)

    return alter if changed else None


def sets_aside(staged: Sequence[StagedUpload], sent: Sent) -> Callable[[Repository], None] | None:
    """Return a function that stores the faulty events of ``staged`` as set aside, in a transaction; None if there are
    none.
    """
    with_faults = [upload for upload in staged if upload.faulty]

    def settle(repository: Repository) -> None:
        for upload in with_faults:
            repository.set_aside_events.add(upload.table.id, upload.new.id, sent.sender, upload.faulty)

    return settle if with_faults else None
