"""Records with values for columns that the table does not have: what they say is left out, or the table gets the
columns (``unknownColumns``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Protocol

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.alter.actions import holds
from app.core.errors import Conflict, FaultCode, Invalid, Violation
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.plan.records.unknown_columns import MOST_NAMES, DeclaredColumn, FoundColumns, UnknownColumns
from app.core.table.history import Table
from app.core.table.options.entries import MergeEngine
from app.core.table.schema_bounds import SchemaBounds
from app.core.types.parser import parse_type
from app.files.layout import Warehouse
from app.services.batches.first_records import check_of_first_records
from app.services.batches.staged_uploads import Request, StagedUpload, staged_upload
from app.services.rows.known_rows import KnownRows
from app.services.tables.guesses import type_of
from app.services.tables.tables import alter_within, altered_schema
from app.storage.ingest.pieces import Piece

# Faults of values that a wider type may hold.
_TOO_NARROW: Final = frozenset(
    {FaultCode.OUT_OF_RANGE, FaultCode.TOO_LONG, FaultCode.TOO_MANY_DIGITS, FaultCode.WRONG_TYPE}
)


class Sent(Request, Protocol):
    """A request that says what to do with columns that its table does not have."""

    @property
    def unknown_columns(self) -> UnknownColumns:
        """What to do with them."""

    @property
    def schema_bounds(self) -> SchemaBounds:
        """How large the table may become."""


_MOST_TURNS: Final = 4  # one finds the columns, one more reads them; faults may hide columns that come after
_NO_END: Final = "the records name more columns each time that they are read"
_TOO_MANY: Final = f"the records name more than {MOST_NAMES} columns that the table does not have"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receiver:
    """What stages the records of one table; ``known`` are its rows."""

    database: CatalogDatabase
    warehouse: Warehouse
    table: Table
    known: KnownRows

    def staged(self, sent: Sent, read: Callable[[RecordDecoder], Iterable[Piece]]) -> StagedUpload:
        """Return what ``sent`` sends, as ``read`` reads it. Its ``changes`` are those that the table needs first.

        Raise as ``staged_upload`` does, and ``Invalid`` where the table cannot have the columns.
        """
        if sent.unknown_columns is UnknownColumns.REFUSE:
            return self._staged(self.table, sent, read, None)
        table, changes = self.table, list[Mapping[str, Any]]()
        for _ in range(_MOST_TURNS):
            found = FoundColumns({} if sent.unknown_columns is UnknownColumns.ADD else None)
            staged, failure = None, None
            try:
                staged = self._staged(table, sent, read, found)
            except Invalid as error:
                failure = error
            new = _changes(table, found, failure)
            if staged is not None and not new:
                _tell(table, found)
                return replace(staged, changes=changes)
            if staged is not None:
                staged.delete(self.warehouse)
            if failure is not None and not new:
                raise failure
            changes += new
            # As it will be once the changes are made, in the transaction that enters the batch.
            with self.database.reading() as repository:
                schema = altered_schema(repository, self.table, changes, sent.schema_bounds)
            table = replace(self.table, schema=schema, schema_id=self.table.schema_id + 1)
        fault = Violation("/unknownColumns", FaultCode.TOO_MANY, _NO_END, "alter the table, then post")
        raise Invalid("the columns are not added", violations=[fault])

    def _staged(
        self, table: Table, sent: Request, read: Callable[[RecordDecoder], Iterable[Piece]], found: FoundColumns | None
    ) -> StagedUpload:
        plan = compile_plan(table.schema)
        decoder = RecordDecoder(plan, check_of_first_records(plan, self.known), found)
        return staged_upload(self.database, self.warehouse, table, sent, read(decoder), found)


def _changes(table: Table, found: FoundColumns, failure: Invalid | None) -> list[Mapping[str, Any]]:
    """Return the changes (Paimon's JSON) that give the table the columns, and wider types to those at fault; none where
    nothing is to be added. Raise ``Invalid`` for too many columns.
    """
    if found.declared is None:
        return []
    if found.more:
        fault = Violation("/unknownColumns", FaultCode.TOO_MANY, _TOO_MANY, "alter the table, then post")
        raise Invalid("the columns are not added", violations=[fault])
    changes: list[Mapping[str, Any]] = []
    for name in found.records:
        of = _type(found.declared, found.values, name)
        if of is not None:
            changes.append({"action": "addColumn", "fieldNames": [name], "dataType": of})
            changes += _default(table, found.declared.get(name), name)
    faults = failure.violations if failure is not None else ()
    narrow = {fault.column for fault in faults if fault.column is not None and fault.code in _TOO_NARROW}
    for name in sorted(narrow & found.declared.keys() & table.schema.by_name.keys()):
        of = found.declared[name].type
        if holds(table.schema.by_name[name].type, parse_type(of), name in table.schema.primary_key):
            changes.append(
                {"action": "updateColumnType", "fieldNames": [name], "newDataType": of, "keepNullability": True}
            )
    return changes


def _type(declared: Mapping[str, DeclaredColumn], values: Mapping[str, Sequence[Any]], name: str) -> str | None:
    """Return the type that the source declares, else what the values have in common; None for nulls alone, which have
    any.
    """
    if name in declared:
        return declared[name].type
    return type_of(values[name]) if values[name] else None


def _default(table: Table, declared: DeclaredColumn | None, name: str) -> Sequence[Mapping[str, Any]]:
    """Return the change that gives a column its default where rows show it that were there before: not where it
    replaces nulls that are sent (merge-semantics A.6).
    """
    at_write = table.schema.parsed.engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW)
    if declared is None or declared.default is None or at_write:
        return []
    return [{"action": "updateColumnDefaultValue", "fieldNames": [name], "newDefaultValue": declared.default}]


def _tell(table: Table, found: FoundColumns) -> None:
    for name in found.records:
        _tell_once(table.full_name, name)


@lru_cache(maxsize=1024)
def _tell_once(table: str, column: str) -> None:
    logger.warning("records for %s have a column %r, which is left out (unknownColumns=ignore)", table, column)


def alters(staged: Sequence[StagedUpload], sent: Sent) -> Callable[[Repository], None] | None:
    """Return what changes the schemas as ``staged`` need it, in a transaction; None where they need no change. It
    raises ``Conflict`` (COMMIT_CONFLICT) where another schema came first.
    """
    changed = [one for one in staged if one.changes]

    def alter(repository: Repository) -> None:
        for one in changed:
            table = repository.tables.get(one.table.database, one.table.name)
            if table.schema_id != one.new.schema_id - 1:
                raise Conflict(f"table {table.full_name} was altered while the batch was read; post it again")
            alter_within(repository, table, one.changes, sent.sender, sent.schema_bounds)

    return alter if changed else None
